/*
 * Layer counters on a GPU: the word that an engine's stream stamps and ticks and that the layer poller
 * reads (hlg_messenger_counter_watch()). It lies in host memory that the GPU writes to, so that the
 * poller reads its own cache; it holds forward << 8 | layers done. Stamp and tick happen in stream
 * order, after everything that the stream did before is visible to CPUs and NICs.
 *
 * With CUDA graphs: capture the ticks; stamp before each launch of the graph, outside of it. A captured
 * tick takes the forward number from the last stamp that ran before it, so that one graph serves any
 * number of forward passes, and passes with no stamp (warm-up) say nothing new. Functions that take
 * `error` [error_bytes] write one sentence there on failure; it may be NULL with 0 bytes.
 */
#ifndef HALAGE_COUNTER_H
#define HALAGE_COUNTER_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the host memory of a word takes, alone: its start is a multiple of this too. */
#define HLG_COUNTER_BYTES 4096u

/* What carries out a stamp or tick in the stream. */
enum hlg_counter_way {
    HLG_COUNTER_KERNEL = 1, /* a kernel of one thread: ticks may be captured */
    HLG_COUNTER_WRITE, /* a write of the stream itself (cuStreamWriteValue32): takes no room on the
                               GPU, cannot be captured; driver of CUDA 11.7 or newer */
};

struct hlg_counter_config {
    int32_t
        device;   /* ordinal as this process counts; its primary context, as of the CUDA runtime */
    uint32_t way; /* enum hlg_counter_way */
    /* [HLG_COUNTER_BYTES] host memory for the word, say of an hlg_memory that the process of the
       messenger imports: the caller's, mapped until release, of which this process makes no other counter.
       NULL: memory of this process. */
    void *memory;
};

struct hlg_counter;

/*
 * Make a counter of one stream. Runs a stamp and a tick of forward 0, which no messenger heeds, on a
 * stream of its own, waits for them and looks at the word, which is 0 thereafter. Not while any stream
 * of the process is captured.
 *
 * Returns 0; -HLG_EINVAL (no such device or way, memory unaligned or in use by another counter);
 * -HLG_EUNSUPPORTED (no driver, no device, a GPU older than sm_70, a driver that lacks the way);
 * -HLG_ENOMEM; -HLG_EIO (driver failed, or the word was not seen). Cost: KERNEL has the driver compile
 * some lines of PTX, milliseconds.
 */
int hlg_counter_create(const struct hlg_counter_config *config, struct hlg_counter **counter,
                       char *error, size_t error_bytes);

/* The word, for hlg_messenger_counter_watch(). Good until release. */
const HLG_ATOMIC_U32 *hlg_counter_word(const struct hlg_counter *counter);

/*
 * Put into a stream: forward pass `forward` begins, no layer is done. After hlg_messenger_chunk() was
 * called for all of its chunks.
 *
 * stream   CUstream or cudaStream_t of the counter's device, by one thread at a time; always the same
 *          but for synchronised moves; NULL: the legacy stream
 * forward  1 to 2^24 - 1
 *
 * Returns 0; -HLG_EINVAL; -HLG_ESTATE when the stream is being captured (a replay would stamp the same
 * number again: stamp before the launch); -HLG_EIO or what the driver's error means. On failure nothing
 * was put into the stream. Three to five calls of the driver; no allocation or lock of ours.
 */
int hlg_counter_stamp(struct hlg_counter *counter, void *stream, uint32_t forward, char *error,
                      size_t error_bytes);

/*
 * Put into a stream, or into the graph that it is captured to: `done` layers of the stage are done. Where
 * the word speaks for all ranks (see hlg_layout), after the layer's all-reduce. A tick may be left out, a
 * later one implies it.
 *
 * done  1 to 255: layers of the stage in the order of their global numbers, then one more for the context
 *
 * Returns as stamp; -HLG_ESTATE when the stream is captured and the way is WRITE.
 */
int hlg_counter_tick(struct hlg_counter *counter, void *stream, uint32_t done, char *error,
                     size_t error_bytes);

/* Nothing of it may still be in a stream, no graph with its ticks be launched any more, and no
 * messenger watch its word. Takes NULL. */
void hlg_counter_release(struct hlg_counter *counter);

#ifdef __cplusplus
}
#endif

#endif
