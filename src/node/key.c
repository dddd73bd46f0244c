#define _GNU_SOURCE /* memfd_create(), explicit_bzero() */
#include "key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_BYTES 256u /* a key and spaces around it */

static int refuse(char *text, size_t capacity, const char *path, const char *why)
{
    (void)snprintf(text, capacity, "'%s' %s", path, why);
    return -HLG_EINVAL;
}

static int read_key(int fd, const char *path, uint8_t *key, char *text, size_t capacity)
{
    struct stat about;
    char digits[TEXT_BYTES + 1] = "";
    size_t used = 0;

    if (fstat(fd, &about) != 0) {
        return refuse(text, capacity, path, "cannot be looked at");
    }
    /* Before what others may do with it: nobody is to chmod a directory or a device. A pipe is a way to hand a key over. */
    if (!S_ISREG(about.st_mode) && !S_ISFIFO(about.st_mode)) {
        return refuse(text, capacity, path,
                      "is no file; name the one that 'halage key' was written to");
    }
    if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return refuse(text, capacity, path,
                      "can be used by others than its owner: a key must be secret; chmod 600 it, "
                      "or make a new one where others may have read it");
    }
    ssize_t got = 1;
    while (used < TEXT_BYTES && got > 0) {
        got = read(fd, digits + used, TEXT_BYTES - used);
        used += got > 0 ? (size_t)got : 0;
    }
    digits[used] = '\0';
    const bool good = got >= 0 && used < TEXT_BYTES && strlen(digits) == used &&
                      hlg_sealed_key_parse(digits, key);
    explicit_bzero(digits, sizeof digits);
    return good ? 0
                : refuse(text, capacity, path,
                         "holds no key: 64 hexadecimal digits and no more; 'halage key' makes one");
}

int node_key_read(const char *path, uint8_t key[HLG_SEALED_KEY_BYTES], char *text, size_t capacity)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        (void)snprintf(text, capacity, "'%s' cannot be read: %s", path, strerrordesc_np(errno));
        return -HLG_EINVAL;
    }
    const int error = read_key(fd, path, key, text, capacity);
    (void)close(fd);
    return error;
}

int node_key_hold(const uint8_t key[HLG_SEALED_KEY_BYTES], int fd_min)
{
    char text[HLG_SEALED_KEY_DIGITS + 1];
    const int fd = memfd_create("key", MFD_CLOEXEC);

    if (fd < 0) {
        return -HLG_EIO;
    }
    hlg_sealed_key_print(key, text);
    const bool written = fchmod(fd, S_IRUSR | S_IWUSR) == 0 &&
                         write(fd, text, HLG_SEALED_KEY_DIGITS) == (ssize_t)HLG_SEALED_KEY_DIGITS;
    explicit_bzero(text, sizeof text);
    const int held = written ? fcntl(fd, F_DUPFD_CLOEXEC, fd_min) : -1;
    (void)close(fd);
    return held < 0 ? -HLG_EIO : held;
}
