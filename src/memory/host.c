/* Host memory: a sealed memfd, mapped shared. */
#define _GNU_SOURCE /* memfd_create, seals */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int system_error(uint64_t bytes, char *error, size_t error_bytes)
{
    const int cause = errno;

    return memory_fail(
        cause == ENOMEM || cause == EFBIG ? -HLG_ENOMEM : -HLG_EIO, error, error_bytes,
        "%llu bytes of host memory cannot be had (%s): ask for less, or raise the limits of "
        "the container and of open files",
        (unsigned long long)bytes, strerror(cause)); /* NOLINT(concurrency-mt-unsafe) */
}

static int map(struct hlg_memory *m, int fd, char *error, size_t error_bytes)
{
    void *base = mmap(NULL, (size_t)m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (base == MAP_FAILED) {
        return system_error(m->bytes, error, error_bytes);
    }
    m->fd = fd;
    m->base = base;
    return 0;
}

/* A file that can shrink makes whoever maps it die by SIGBUS: none that could is mapped. */
static bool seal(int fd, uint64_t bytes)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0) {
        return false; /* no memfd */
    }
    if ((seals & F_SEAL_SHRINK) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
        return false;
    }
    /* The size is looked at only now that it cannot shrink any more. */
    return fstat(fd, &status) == 0 && status.st_size >= 0 && (uint64_t)status.st_size >= bytes;
}

int memory_host_create(struct hlg_memory *m, char *error, size_t error_bytes)
{
    int code = 0;
    int fd = memfd_create("halage", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0) {
        return system_error(m->bytes, error, error_bytes);
    }
    if (ftruncate(fd, (off_t)m->bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        code = system_error(m->bytes, error, error_bytes);
    } else {
        code = map(m, fd, error, error_bytes);
    }
    if (code != 0) {
        (void)close(fd);
    }
    return code;
}

int memory_host_export(const struct hlg_memory *m, char *error, size_t error_bytes)
{
    int fd = fcntl(m->fd, F_DUPFD_CLOEXEC, 0);

    return fd >= 0 ? fd
                   : memory_fail(-HLG_EIO, error, error_bytes,
                                 "no descriptor is left to export memory with: raise ulimit -n");
}

int memory_host_import(struct hlg_memory *m, int fd, char *error, size_t error_bytes)
{
    if (!seal(fd, m->bytes)) {
        return memory_fail(
            -HLG_EINVAL, error, error_bytes,
            "the descriptor is no exported host memory of %llu bytes: send the one that "
            "hlg_memory_export() gave, with its header",
            (unsigned long long)m->bytes);
    }
    int own = memory_host_export(&(struct hlg_memory){.fd = fd}, error, error_bytes);
    if (own < 0) {
        return own;
    }
    int code = map(m, own, error, error_bytes);
    if (code != 0) {
        (void)close(own);
    }
    return code;
}

void memory_host_release(struct hlg_memory *m)
{
    int failed = munmap(m->base, (size_t)m->bytes);

    HLG_ASSERT(failed == 0);
    (void)close(m->fd);
}
