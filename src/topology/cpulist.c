/* Lists of cores, as the kernel writes them: "0-3,8". */
#include <halage/placement.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define WORDS (HLG_CORES_MAX / 64)

/* Read a number below HLG_CORES_MAX. Returns where it ends, or NULL. */
static const char *read_core(const char *text, uint32_t *core)
{
    uint32_t value = 0;
    if (!isdigit((unsigned char)*text)) {
        return NULL;
    }
    for (; isdigit((unsigned char)*text); text++) {
        value = value * 10 + (uint32_t)(*text - '0');
        if (value >= HLG_CORES_MAX) {
            return NULL;
        }
    }
    *core = value;
    return text;
}

int hlg_cpulist_read(const char *text, uint64_t cores[WORDS])
{
    uint64_t read[WORDS] = {0};
    int count = 0;
    while (text != NULL) {
        uint32_t first = 0;
        text = read_core(text, &first);
        uint32_t last = first;
        if (text != NULL && *text == '-') {
            text = read_core(text + 1, &last);
        }
        if (text == NULL || last < first || (*text != ',' && *text != '\0')) {
            return -HLG_EINVAL;
        }
        for (uint32_t core = first; core <= last; core++) {
            const uint64_t bit = 1ull << core % 64;
            count += (read[core / 64] & bit) == 0;
            read[core / 64] |= bit;
        }
        text = *text == ',' ? text + 1 : NULL;
    }
    if (count == 0) {
        return -HLG_EINVAL;
    }
    memcpy(cores, read, sizeof read);
    return count;
}

static bool has(const uint64_t *cores, uint32_t core)
{
    return core < HLG_CORES_MAX && (cores[core / 64] >> core % 64 & 1) != 0;
}

int hlg_cpulist_write(const uint64_t cores[WORDS], char *text, size_t bytes)
{
    size_t used = 0;
    HLG_ASSERT(bytes > 0);
    text[0] = '\0';
    for (uint32_t core = 0; core < HLG_CORES_MAX; core++) {
        if (!has(cores, core)) {
            continue;
        }
        const uint32_t first = core;
        while (has(cores, core + 1)) {
            core++;
        }
        const char *comma = used == 0 ? "" : ",";
        const int more = core == first
                             ? snprintf(text + used, bytes - used, "%s%u", comma, first)
                             : snprintf(text + used, bytes - used, "%s%u-%u", comma, first, core);
        if (more < 0 || (size_t)more >= bytes - used) {
            return -HLG_EINVAL;
        }
        used += (size_t)more;
    }
    return (int)used;
}
