/* Of the YAML reader: what is refused before libcyaml sees it. */
#ifndef HALAGE_CLI_YAML_CHECK_H
#define HALAGE_CLI_YAML_CHECK_H

#include <stddef.h>
#include <stdint.h>

/* Refuse a second document and keys without a value. Text that is no YAML is left to the reader. Returns 0, or
 * -HLG_EINVAL with a sentence, which may hold control characters of the file: see yaml_file_one_line(). */
int yaml_check(const char *file, const uint8_t *bytes, size_t count, char *error, size_t capacity);

#endif
