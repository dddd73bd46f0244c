/*
 * Streams run what is put into them in order, each in a thread of its own, and the caller goes on
 * meanwhile. FAKE_CUDA_DELAY_US makes each operation late, so that whoever does not wait is found out.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct cuda_stream_opaque {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news; /* something to do, or the end */
    pthread_cond_t idle;
    struct operations queue;
    struct operations *capture; /* NULL: it runs */
    bool busy;
    bool end;
};

struct cuda_event_opaque {
    uint64_t asked; /* records asked for */
    _Atomic uint64_t done;
};

/* Copy between host and device piece by piece of its mappings. Returns false where there is none. */
static bool move(cuda_ptr device, void *host, const void *from, size_t bytes, int fill)
{
    (void)pthread_mutex_lock(&fake.lock);
    bool whole = fake_mapped(device, bytes);
    for (size_t done = 0; whole && done < bytes;) {
        size_t room = 0;
        uint8_t *at = fake_bytes(device + done, &room);
        const size_t part = room < bytes - done ? room : bytes - done;
        if (from != NULL) {
            memcpy(at, (const uint8_t *)from + done, part);
        } else if (host != NULL) {
            memcpy((uint8_t *)host + done, at, part);
        } else {
            memset(at, fill, part);
        }
        done += part;
    }
    (void)pthread_mutex_unlock(&fake.lock);
    return whole;
}

_Atomic uint32_t *fake_word(cuda_ptr device)
{
    size_t room = 0;

    (void)pthread_mutex_lock(&fake.lock);
    void *at = fake_bytes(device, &room);
    (void)pthread_mutex_unlock(&fake.lock);
    if (at == NULL || room < sizeof(uint32_t)) {
        abort(); /* a GPU would stop as well */
    }
    return at;
}

static void nap(long ns)
{
    const struct timespec span = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    (void)nanosleep(&span, NULL);
}

static void carry_out(const struct operation *o)
{
    bool whole = true;

    if (fake.delay_us > 0) {
        nap(fake.delay_us * 1000L);
    }
    switch (o->kind) {
    case COPY_OUT:
        whole = move(o->device, o->host, NULL, o->bytes, 0);
        break;
    case COPY_IN:
        whole = move(o->device, NULL, o->host, o->bytes, 0);
        break;
    case FILL:
        whole = move(o->device, NULL, NULL, o->bytes, (int)o->value);
        break;
    case RECORD:
        atomic_store(&o->event->done, o->turn);
        break;
    case WRITE_WORD:
        atomic_store_explicit(fake_word(o->device), o->value, memory_order_release);
        break;
    case WAIT_WORD:
        while (atomic_load_explicit(fake_word(o->device), memory_order_acquire) < o->value) {
            nap(20000);
        }
        break;
    case KERNEL:
        fake_run(o);
        break;
    }
    if (!whole) {
        abort(); /* memory was unmapped under an operation */
    }
}

static void *run(void *of)
{
    cuda_stream s = of;

    (void)pthread_mutex_lock(&s->lock);
    while (!s->end || s->queue.first != NULL) {
        struct operation *o = s->queue.first;
        if (o == NULL) {
            s->busy = false;
            (void)pthread_cond_broadcast(&s->idle);
            (void)pthread_cond_wait(&s->news, &s->lock);
            continue;
        }
        s->queue.first = o->next;
        s->queue.last = o->next == NULL ? &s->queue.first : s->queue.last;
        (void)pthread_mutex_unlock(&s->lock);
        carry_out(o);
        free(o);
        (void)pthread_mutex_lock(&s->lock);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

void fake_operations_begin(struct operations *list)
{
    list->first = NULL;
    list->last = &list->first;
}

bool fake_operations_add(struct operations *list, const struct operation *operation)
{
    struct operation *o = malloc(sizeof *o);

    if (o == NULL) {
        return false;
    }
    *o = *operation;
    o->next = NULL;
    *list->last = o;
    list->last = &o->next;
    return true;
}

void fake_operations_free(struct operations *list)
{
    while (list->first != NULL) {
        struct operation *o = list->first;
        list->first = o->next;
        free(o);
    }
}

struct operations **fake_capture(cuda_stream stream)
{
    return &stream->capture;
}

cuda_result fake_put(cuda_stream s, const struct operation *operation)
{
    if (s == NULL) { /* the legacy stream: at once, which a driver may do as well */
        carry_out(operation);
        return CUDA_OK;
    }
    if (s->capture != NULL) {
        return fake_operations_add(s->capture, operation) ? CUDA_OK : CUDA_OUT_OF_MEMORY;
    }
    (void)pthread_mutex_lock(&s->lock);
    const bool added = fake_operations_add(&s->queue, operation);
    s->busy = s->busy || added;
    (void)pthread_cond_signal(&s->news);
    (void)pthread_mutex_unlock(&s->lock);
    return added ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

cuda_result fake_cuStreamCreate(cuda_stream *stream, unsigned flags)
{
    const cuda_result failed = fake_enter_current(CALL_cuStreamCreate);

    if (failed != CUDA_OK || flags > CUDA_STREAM_NON_BLOCKING) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
    }
    cuda_stream s = calloc(1, sizeof *s);
    if (s == NULL) {
        return CUDA_OUT_OF_MEMORY;
    }
    fake_operations_begin(&s->queue);
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->news, NULL);
    (void)pthread_cond_init(&s->idle, NULL);
    if (pthread_create(&s->thread, NULL, run, s) != 0) {
        free(s);
        return CUDA_OUT_OF_MEMORY;
    }
    (void)pthread_mutex_lock(&fake.lock);
    fake.live.streams++;
    (void)pthread_mutex_unlock(&fake.lock);
    *stream = s;
    return CUDA_OK;
}

cuda_result fake_cuStreamSynchronize(cuda_stream s)
{
    const cuda_result failed = fake_enter_current(CALL_cuStreamSynchronize);

    if (s->capture != NULL) {
        return CUDA_CAPTURE_UNSUPPORTED;
    }
    (void)pthread_mutex_lock(&s->lock);
    while (failed == CUDA_OK && s->busy) {
        (void)pthread_cond_wait(&s->idle, &s->lock);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return failed;
}

/* What is in it is still carried out, and waited for. */
cuda_result fake_cuStreamDestroy(cuda_stream s)
{
    const cuda_result failed = fake_enter_current(CALL_cuStreamDestroy);

    (void)pthread_mutex_lock(&s->lock);
    s->end = true;
    (void)pthread_cond_signal(&s->news);
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_cond_destroy(&s->news);
    (void)pthread_cond_destroy(&s->idle);
    free(s);
    (void)pthread_mutex_lock(&fake.lock);
    fake.live.streams--;
    (void)pthread_mutex_unlock(&fake.lock);
    return failed;
}

/* ---- Events ---- */

cuda_result fake_cuEventCreate(cuda_event *event, unsigned flags)
{
    const cuda_result failed = fake_enter_current(CALL_cuEventCreate);

    (void)flags;
    if (failed != CUDA_OK) {
        return failed;
    }
    *event = calloc(1, sizeof **event);
    if (*event == NULL) {
        return CUDA_OUT_OF_MEMORY;
    }
    (void)pthread_mutex_lock(&fake.lock);
    fake.live.events++;
    (void)pthread_mutex_unlock(&fake.lock);
    return CUDA_OK;
}

cuda_result fake_cuEventRecord(cuda_event event, cuda_stream stream)
{
    const cuda_result failed = fake_enter_current(CALL_cuEventRecord);

    if (failed != CUDA_OK) {
        return failed;
    }
    event->asked++;
    return fake_put(stream,
                    &(struct operation){.kind = RECORD, .event = event, .turn = event->asked});
}

cuda_result fake_cuEventQuery(cuda_event event)
{
    const cuda_result failed = fake_enter_current(CALL_cuEventQuery);

    if (failed != CUDA_OK) {
        return failed;
    }
    return atomic_load(&event->done) == event->asked ? CUDA_OK : CUDA_NOT_READY;
}

cuda_result fake_cuEventDestroy(cuda_event event)
{
    const cuda_result failed = fake_enter_current(CALL_cuEventDestroy);

    free(event);
    (void)pthread_mutex_lock(&fake.lock);
    fake.live.events--;
    (void)pthread_mutex_unlock(&fake.lock);
    return failed;
}

/* ---- Copies ---- */

static bool range_known(cuda_ptr device, size_t bytes)
{
    (void)pthread_mutex_lock(&fake.lock);
    const bool known = fake_mapped(device, bytes);
    (void)pthread_mutex_unlock(&fake.lock);
    return known;
}

cuda_result fake_cuMemcpyHtoD(cuda_ptr to, const void *from, size_t bytes)
{
    const cuda_result failed = fake_enter_current(CALL_cuMemcpyHtoD);

    if (failed != CUDA_OK) {
        return failed;
    }
    return move(to, NULL, from, bytes, 0) ? CUDA_OK : CUDA_INVALID_VALUE;
}

cuda_result fake_cuMemcpyDtoH(void *to, cuda_ptr from, size_t bytes)
{
    const cuda_result failed = fake_enter_current(CALL_cuMemcpyDtoH);

    if (failed != CUDA_OK) {
        return failed;
    }
    return move(from, to, NULL, bytes, 0) ? CUDA_OK : CUDA_INVALID_VALUE;
}

/* Host memory that is not pinned makes such a copy wait, as in the driver. */
static cuda_result copy_async(const struct operation *o, cuda_stream stream)
{
    if (!range_known(o->device, o->bytes)) {
        return CUDA_INVALID_VALUE;
    }
    (void)pthread_mutex_lock(&fake.lock);
    const bool is_async = fake_pinned(o->host);
    (void)pthread_mutex_unlock(&fake.lock);
    const cuda_result result = fake_put(stream, o);
    if (result == CUDA_OK && !is_async && stream != NULL) {
        (void)pthread_mutex_lock(&stream->lock);
        while (stream->busy) {
            (void)pthread_cond_wait(&stream->idle, &stream->lock);
        }
        (void)pthread_mutex_unlock(&stream->lock);
    }
    return result;
}

cuda_result fake_cuMemcpyHtoDAsync(cuda_ptr to, const void *from, size_t bytes, cuda_stream stream)
{
    const cuda_result failed = fake_enter_current(CALL_cuMemcpyHtoDAsync);
    const struct operation o = {
        .kind = COPY_IN, .device = to, .host = (void *)(uintptr_t)from, .bytes = bytes};

    return failed != CUDA_OK ? failed : copy_async(&o, stream);
}

cuda_result fake_cuMemcpyDtoHAsync(void *to, cuda_ptr from, size_t bytes, cuda_stream stream)
{
    const cuda_result failed = fake_enter_current(CALL_cuMemcpyDtoHAsync);
    const struct operation o = {.kind = COPY_OUT, .device = from, .host = to, .bytes = bytes};

    return failed != CUDA_OK ? failed : copy_async(&o, stream);
}

cuda_result fake_cuMemsetD8Async(cuda_ptr to, unsigned char value, size_t bytes, cuda_stream stream)
{
    const cuda_result failed = fake_enter_current(CALL_cuMemsetD8Async);

    if (failed != CUDA_OK || !range_known(to, bytes)) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
    }
    return fake_put(
        stream, &(struct operation){.kind = FILL, .device = to, .bytes = bytes, .value = value});
}

static cuda_result word(enum fake_call call, enum kind kind, cuda_stream stream, cuda_ptr at,
                        uint32_t value, unsigned flags)
{
    const cuda_result failed = fake_enter_current(call);

    if (failed != CUDA_OK || at % sizeof value != 0 || !range_known(at, sizeof value) ||
        flags != 0) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
    }
    return fake_put(stream, &(struct operation){.kind = kind, .device = at, .value = value});
}

cuda_result fake_cuStreamWriteValue32(cuda_stream stream, cuda_ptr to, uint32_t value,
                                      unsigned flags)
{
    return word(CALL_cuStreamWriteValue32, WRITE_WORD, stream, to, value, flags);
}

cuda_result fake_cuStreamWaitValue32(cuda_stream stream, cuda_ptr at, uint32_t value,
                                     unsigned flags)
{
    return word(CALL_cuStreamWaitValue32, WAIT_WORD, stream, at, value, flags);
}
