#define _GNU_SOURCE
#include "ofi.h"

#include <dirent.h>
#include <sys/mman.h>

static struct hlg_fabric *open_fabric(uint32_t node, hlg_time stall_ns)
{
    (void)node;
    return ofi_backend_open("shm", stall_ns);
}

/* Addresses name a process and a number within it. */
static uint32_t nobody(uint8_t *address, uint32_t capacity)
{
    static const char name[] = "fi_shm://4194305:0"; /* one more than the largest process number */

    assert_true(sizeof name <= capacity);
    memcpy(address, name, sizeof name);
    return sizeof name;
}

/* Its regions stay in /dev/shm under names that begin with the process number. */
static void bury(int pid)
{
    char prefix[16];
    DIR *directory = opendir("/dev/shm");

    const int bytes = snprintf(prefix, sizeof prefix, "%d:", pid);
    for (struct dirent *entry = NULL; directory != NULL && (entry = readdir(directory)) != NULL;) {
        if (strncmp(entry->d_name, prefix, (size_t)bytes) == 0) {
            (void)shm_unlink(entry->d_name);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
}

const struct conformance_backend conformance_backend = {
    .name = "shm",
    .limits = LIMIT_KILL_HANGS | LIMIT_FALSE_SUCCESS | LIMIT_PEERS_STAY | LIMIT_HEAD_OF_LINE,
    .open = open_fabric,
    .close = ofi_backend_close,
    .nobody = nobody,
    .bury = bury,
};
