/* A build without CUDA: no copier can be opened, so that nothing else is ever called. */
#include "copier.h"

int copier_open(int32_t device, uint32_t marks, struct copier **copier, char *error,
                size_t error_bytes)
{
    (void)device;
    (void)marks;
    (void)copier;
    return memory_fail(-HLG_EUNSUPPORTED, error, error_bytes,
                       "this build of halage has no CUDA memory: configure it with HALAGE_CUDA=ON");
}

void copier_close(struct copier *c)
{
    HLG_ASSERT(c == NULL);
}

int copier_pin(struct copier *c, uint64_t bytes, void **host, char *error, size_t error_bytes)
{
    (void)c;
    (void)bytes;
    (void)host;
    (void)error;
    (void)error_bytes;
    hlg_unreachable();
}

void copier_unpin(struct copier *c, void *host)
{
    (void)c;
    (void)host;
    hlg_unreachable();
}

int copier_begin(struct copier *c)
{
    (void)c;
    hlg_unreachable();
}

void copier_end(struct copier *c)
{
    (void)c;
    hlg_unreachable();
}

int copier_out(struct copier *c, void *host, const void *device, uint64_t bytes)
{
    (void)c;
    (void)host;
    (void)device;
    (void)bytes;
    hlg_unreachable();
}

int copier_in(struct copier *c, void *device, const void *host, uint64_t bytes)
{
    (void)c;
    (void)device;
    (void)host;
    (void)bytes;
    hlg_unreachable();
}

int copier_mark(struct copier *c, uint32_t mark)
{
    (void)c;
    (void)mark;
    hlg_unreachable();
}

int copier_done(struct copier *c, uint32_t mark)
{
    (void)c;
    (void)mark;
    hlg_unreachable();
}

int copier_wait(struct copier *c)
{
    (void)c;
    hlg_unreachable();
}

const char *copier_why(const struct copier *c)
{
    (void)c;
    hlg_unreachable();
}
