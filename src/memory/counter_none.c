/* A build without CUDA: no counter can be made, so that nothing else is ever called. */
#include <halage/counter.h>

#include "internal.h"

int hlg_counter_create(const struct hlg_counter_config *config, struct hlg_counter **counter,
                       char *error, size_t error_bytes)
{
    (void)config;
    (void)counter;
    return memory_fail(-HLG_EUNSUPPORTED, error, error_bytes,
                       "this build of halage has no CUDA memory: configure it with HALAGE_CUDA=ON");
}

void hlg_counter_release(struct hlg_counter *c)
{
    HLG_ASSERT(c == NULL);
}

const HLG_ATOMIC_U32 *hlg_counter_word(const struct hlg_counter *c)
{
    (void)c;
    hlg_unreachable();
}

int hlg_counter_stamp(struct hlg_counter *c, void *stream, uint32_t forward, char *error,
                      size_t error_bytes)
{
    (void)c;
    (void)stream;
    (void)forward;
    (void)error;
    (void)error_bytes;
    hlg_unreachable();
}

int hlg_counter_tick(struct hlg_counter *c, void *stream, uint32_t done, char *error,
                     size_t error_bytes)
{
    (void)c;
    (void)stream;
    (void)done;
    (void)error;
    (void)error_bytes;
    hlg_unreachable();
}
