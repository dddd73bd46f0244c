/*
 * The key that all nodes of a cluster share, as a file: 64 hexadecimal digits, as `halage key` prints them.
 */
#ifndef HALAGE_NODE_KEY_H
#define HALAGE_NODE_KEY_H

#include <halage/transport/sealed.h>

/*
 * Read a key from a file that nobody but its owner may read.
 *
 * text  [capacity] a sentence on failure, which begins with the path
 *
 * Returns 0 or -HLG_EINVAL.
 */
int node_key_read(const char *path, uint8_t key[HLG_SEALED_KEY_BYTES], char *text, size_t capacity);

/*
 * Put a key into a file without a name, for processes that inherit its descriptor and open
 * /proc/self/fd/N.
 *
 * Returns the descriptor, at least `fd_min` and closed over exec, or -HLG_EIO.
 */
int node_key_hold(const uint8_t key[HLG_SEALED_KEY_BYTES], int fd_min);

#endif
