#define _GNU_SOURCE /* close_range(), MAP_ANONYMOUS */
#include "rank.h"

#include <halage/places.h>

#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct rank_process {
    const struct rank_order *order;
    struct hlg_memory *memory;
    uint8_t *pages; /* the memory itself, or the working copy of it */
    struct tlm_rank *rank;
    uint64_t contexts; /* offset of the context group */
    float *logits;     /* [sequences_max][vocab], rank 0 of a node that samples */
    struct tlm_output *outputs;
};

static void *map_private(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* ---- The working copy ---- */

static int copied(const struct rank_process *process, int code, const char *verb)
{
    if (code != 0) {
        (void)snprintf(process->order->why, RANK_WHY_BYTES,
                       "its memory of GPU %d cannot be %s: see the driver's messages in dmesg",
                       hlg_memory_device(process->memory), verb);
    }
    return code;
}

static int copy_in(const struct rank_process *process, uint64_t offset, uint64_t bytes)
{
    return copied(process, hlg_memory_read(process->memory, offset, process->pages + offset, bytes),
                  "read");
}

static int copy_out(const struct rank_process *process, uint64_t offset, uint64_t bytes)
{
    return copied(process,
                  hlg_memory_write(process->memory, offset, process->pages + offset, bytes),
                  "written");
}

/* Copy a layer's pages of positions [begin, limit) of a sequence. */
static int copy_pages(const struct rank_process *process, const struct tlm_sequence *sequence,
                      uint32_t layer, uint32_t begin, uint32_t limit,
                      int (*copy)(const struct rank_process *process, uint64_t offset,
                                  uint64_t bytes))
{
    const struct tlm_config *model = process->order->config->model;
    const struct hlg_layout *layout = process->order->config->layout;
    const uint64_t bytes = tlm_page_bytes(model, layout->tp);
    int status = 0;
    for (uint32_t plane = 0; plane < tlm_planes(model); plane++) {
        const uint64_t base =
            tlm_plane_offset(model, layout->tp, layout->groups[0].page_count, layer, plane);
        /* Flooring: a position's page is the one that its slot is in. */
        for (uint32_t i = begin / model->page_tokens; i * model->page_tokens < limit && status == 0;
             i++) {
            status = copy(process, base + sequence->pages[i] * bytes, bytes);
        }
    }
    return status;
}

static int fetch(void *context, const struct tlm_batch *batch, uint32_t layer)
{
    const struct rank_process *process = context;
    int status = 0;
    for (uint32_t i = 0; i < batch->sequence_count && status == 0; i++) {
        const struct tlm_sequence *sequence = &batch->sequences[i];
        status = copy_pages(process, sequence, layer, 0, sequence->position, copy_in);
    }
    return status;
}

static int store(void *context, const struct tlm_batch *batch, uint32_t layer)
{
    const struct rank_process *process = context;
    const struct tlm_config *model = process->order->config->model;
    const struct hlg_layout *layout = process->order->config->layout;
    int status = 0;
    for (uint32_t i = 0; i < batch->sequence_count && status == 0; i++) {
        const struct tlm_sequence *sequence = &batch->sequences[i];
        if (layer < model->layers) {
            status = copy_pages(process, sequence, layer, sequence->position,
                                sequence->position + sequence->token_count, copy_out);
        } else if (process->outputs[i].context != NULL) {
            const uint64_t bytes = hlg_layout_page_bytes(layout, 1);
            status = copy_out(process,
                              process->contexts + process->order->step->contexts[i] * bytes, bytes);
        }
    }
    return status;
}

/* ---- Steps ---- */

static void sample(struct rank_process *process)
{
    const struct ranks_config *config = process->order->config;
    const uint32_t vocab = config->model->vocab;
    struct step *step = process->order->step;
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const float *logits = process->outputs[i].logits;
        step->sampled[i] = config->sample(logits, vocab);
        step->logits_hash[i] = tlm_hash(logits, vocab * sizeof *logits);
    }
}

/* The first failure counts, but that others gave up for it says least. */
static void tell_failure(struct step *step, int status)
{
    int32_t none = 0;
    if (status == TLM_E_ABORTED) {
        (void)atomic_compare_exchange_strong(&step->status, &none, status);
    } else if (status != 0) {
        atomic_store(&step->status, status);
    }
}

static void run_step(struct rank_process *process)
{
    struct step *step = process->order->step;
    const struct ranks_config *config = process->order->config;
    const struct tlm_batch batch = {
        .sequences = step->sequences,
        .word = config->prefill ? &step->word : NULL,
        .sequence_count = step->sequence_count,
        .forward = step->forward,
    };
    const uint64_t context_bytes = hlg_layout_page_bytes(config->layout, 1);
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const bool wanted = config->prefill && step->contexts[i] != HLG_NONE;
        uint8_t *context = process->pages + process->contexts + step->contexts[i] * context_bytes;
        process->outputs[i] = (struct tlm_output){
            .context = wanted ? (float *)(void *)context : NULL,
            .logits =
                process->logits == NULL ? NULL : process->logits + (size_t)i * config->model->vocab,
        };
    }
    const int status = tlm_forward(process->rank, &batch, process->outputs);
    if (status == 0 && process->logits != NULL) {
        sample(process);
    }
    tell_failure(step, status);
    if (atomic_fetch_add(&step->ranks_done, 1) + 1 == config->layout->tp) {
        (void)eventfd_write(process->order->done, 1);
    }
}

static void run_steps(struct rank_process *process)
{
    struct step *step = process->order->step;
    uint32_t seen = 0;
    while (!atomic_load(&step->end)) {
        const uint32_t posted = atomic_load(&step->posted);
        if (posted == seen) {
            (void)syscall(SYS_futex, &step->posted, FUTEX_WAIT, seen, NULL, NULL, 0);
            continue;
        }
        seen = posted;
        if (!atomic_load(&step->end)) {
            run_step(process);
        }
    }
}

/* ---- Its life ---- */

/* Keep stdio and two more descriptors. */
static void close_others(int a, int b)
{
    const unsigned low = (unsigned)(a < b ? a : b);
    const unsigned high = (unsigned)(a < b ? b : a);
    if (low > 3) {
        (void)close_range(3, low - 1, 0);
    }
    if (high > low + 1) {
        (void)close_range(low + 1, high - 1, 0);
    }
    (void)close_range(high + 1, ~0u, 0);
}

static bool make_outputs(struct rank_process *process)
{
    const struct ranks_config *config = process->order->config;
    const struct tlm_config *model = config->model;
    const bool first = process->order->lane % config->layout->tp == 0;
    process->outputs = calloc(model->batch_sequences_max, sizeof *process->outputs);
    if (config->sample != NULL && first) {
        process->logits =
            calloc((size_t)model->batch_sequences_max * model->vocab, sizeof *process->logits);
        return process->outputs != NULL && process->logits != NULL;
    }
    return process->outputs != NULL;
}

/* Make the KV memory. On failure order->why says why. */
static bool make_memory(struct rank_process *process, uint64_t bytes)
{
    const struct ranks_config *config = process->order->config;
    char *why = process->order->why;
    struct hlg_memory_site site = {.kind = HLG_MEMORY_HOST};
    if (config->cuda) {
        const int devices = hlg_memory_devices(why, RANK_WHY_BYTES);
        if (devices < 0) {
            return false;
        }
        site.kind = HLG_MEMORY_CUDA;
        site.device = config->device >= 0 ? config->device
                                          : (int32_t)(process->order->lane % (uint32_t)devices);
    }
    if (hlg_memory_create(&site, bytes, &process->memory, why, RANK_WHY_BYTES) != 0) {
        return false;
    }
    process->pages = config->cuda ? map_private(bytes) : hlg_memory_base(process->memory);
    return process->pages != NULL;
}

static bool send_memory(const struct rank_process *process)
{
    struct hlg_fd_header header;
    const int fd = hlg_memory_export(process->memory, &header, process->order->why, RANK_WHY_BYTES);
    if (fd < 0) {
        return false;
    }
    header.lane = process->order->lane;
    const int status = hlg_fd_send(process->order->socket, &header, fd);
    (void)close(fd);
    return status == 0;
}

/* Make all there is of the rank before the leader is told of its memory. Returns whether all went well. */
static bool prepare(struct rank_process *process)
{
    const struct rank_order *order = process->order;
    const struct ranks_config *config = order->config;
    const struct hlg_layout *layout = config->layout;
    const size_t scratch_bytes = tlm_rank_bytes(config->model, layout->tp);
    void *scratch = map_private(scratch_bytes);
    uint64_t bytes = 0;
    const int count = hlg_places_linear(layout, order->lane, NULL, 0, &bytes);
    if (count <= 0 || scratch == NULL || !make_memory(process, bytes)) {
        return false;
    }
    /* The context group is the last one and its only place the last. */
    process->contexts =
        bytes - (uint64_t)layout->groups[1].page_count * hlg_layout_page_bytes(layout, 1);
    if (tlm_rank_init(scratch, scratch_bytes, order->model, order->group, order->lane % layout->tp,
                      process->pages, layout->groups[0].page_count, &process->rank) != 0 ||
        !make_outputs(process)) {
        return false;
    }
    if (config->cuda) {
        const struct tlm_mirror mirror = {.fetch = fetch, .store = store, .context = process};
        tlm_rank_mirror(process->rank, &mirror);
    }
    return send_memory(process);
}

_Noreturn void rank_main(const struct rank_order *order)
{
    struct rank_process process = {.order = order};
    /* Dies with the leader, also when that died before this line. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != order->leader) {
        _exit(1);
    }
    (void)signal(SIGINT, SIG_IGN);
    close_others(order->socket, order->done);
    const bool prepared = prepare(&process);
    if (prepared) {
        run_steps(&process);
    }
    hlg_memory_release(process.memory);
    free(process.logits);
    free(process.outputs);
    exit(prepared ? 0
                  : 1); /* NOLINT(concurrency-mt-unsafe): the driver has its own things to end */
}
