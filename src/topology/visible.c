/* Which GPUs programs see, and in which order: NVIDIA_VISIBLE_DEVICES (the container runtime's) says which there are,
 * CUDA_VISIBLE_DEVICES (the driver's) numbers those that a program sees. Source of the rules: CUDA C++ Programming
 * Guide, "CUDA Environment Variables"; NVIDIA Container Toolkit, "Specialized Configurations with Docker". */
#include "internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TOKEN_BYTES 96u

enum found {
    FOUND,
    FOUND_NONE,    /* no such GPU */
    FOUND_UNKNOWN, /* cannot be told: a UUID of a GPU whose UUID is not known, or of a part of a GPU */
};

/* GPUs in the order in which they are seen, as indices in t->gpus. */
struct shown {
    uint32_t count;
    uint32_t gpus[HLG_TOPOLOGY_GPUS_MAX];
};

/* Cut the next word off a list. Returns where the rest is; NULL: that was the last. */
static const char *next_word(const char *list, char word[TOKEN_BYTES])
{
    while (isspace((unsigned char)*list)) {
        list++;
    }
    size_t bytes = strcspn(list, ",");
    const char *rest = list[bytes] == ',' ? list + bytes + 1 : NULL;
    while (bytes > 0 && isspace((unsigned char)list[bytes - 1])) {
        bytes--;
    }
    bytes = bytes < TOKEN_BYTES ? bytes : TOKEN_BYTES - 1;
    memcpy(word, list, bytes);
    word[bytes] = '\0';
    return rest;
}

/* The first `bytes` of a word as an index among `below`. */
static enum found find_index(const struct shown *below, const char *word, size_t bytes,
                             uint32_t *at)
{
    uint32_t index = 0;
    for (const char *digit = word; digit < word + bytes; digit++) {
        if (!isdigit((unsigned char)*digit) || index > HLG_TOPOLOGY_GPUS_MAX) {
            return FOUND_NONE;
        }
        index = index * 10 + (uint32_t)(*digit - '0');
    }
    if (index >= below->count) {
        return FOUND_NONE;
    }
    *at = index;
    return FOUND;
}

/* "GPU-8932f937" is enough of a UUID where no other begins so; "MIG-GPU-<uuid>/1/0" is a part of a GPU. */
static enum found find_uuid(const struct hlg_topology *t, const struct shown *below,
                            const char *word, uint32_t *at)
{
    uint32_t known = 0;
    uint32_t matches = 0;
    if (strncasecmp(word, "MIG-GPU-", 8) == 0) {
        word += 4;
    } else if (strncasecmp(word, "MIG-", 4) == 0) {
        return FOUND_UNKNOWN;
    }
    const size_t bytes = strcspn(word, "/");
    for (uint32_t i = 0; i < below->count; i++) {
        const char *uuid = t->gpus[below->gpus[i]].uuid;
        known += uuid[0] != '\0';
        if (uuid[0] != '\0' && strncasecmp(uuid, word, bytes) == 0) {
            matches++;
            *at = i;
        }
    }
    if (matches == 0) {
        return known == below->count ? FOUND_NONE : FOUND_UNKNOWN;
    }
    return matches == 1 ? FOUND : FOUND_NONE;
}

static enum found find_word(const struct hlg_topology *t, const struct shown *below,
                            bool of_runtime, const char *word, uint32_t *at)
{
    struct hlg_bus_id bus;
    const size_t digits = strspn(word, "0123456789");
    const bool part = of_runtime && word[digits] == ':' && /* "0:1": the second MIG part of GPU 0 */
                      strspn(word + digits + 1, "0123456789") == strlen(word + digits + 1);
    if (digits > 0 && (strchr(word, ':') == NULL || part)) {
        return find_index(below, word, part ? digits : strlen(word), at);
    }
    if (strncasecmp(word, "GPU-", 4) == 0 || strncasecmp(word, "MIG-", 4) == 0) {
        return find_uuid(t, below, word, at);
    }
    for (uint32_t i = 0; hlg_bus_id_read(word, &bus) == 0 && i < below->count; i++) {
        if (hlg_bus_id_equal(&t->gpus[below->gpus[i]].bus, &bus)) {
            *at = i;
            return FOUND;
        }
    }
    return FOUND_NONE;
}

/* Take the GPUs that a list names, in its order, up to the first that is none, as CUDA does. Returns whether all of
 * them could be told. */
static bool take_list(struct hlg_topology *t, bool of_runtime, const char *list,
                      const struct shown *below, struct shown *taken)
{
    char word[TOKEN_BYTES];
    const char *variable = of_runtime ? "NVIDIA_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES";
    bool seen[HLG_TOPOLOGY_GPUS_MAX] = {false};
    taken->count = 0;
    while (list != NULL) {
        uint32_t at = 0;
        list = next_word(list, word);
        switch (find_word(t, below, of_runtime, word, &at)) {
        case FOUND_UNKNOWN:
            topology_note(t, "%s names '%s', and nothing tells which GPU that is: all are shown",
                          variable, word);
            return false;
        case FOUND_NONE:
            if (word[0] != '\0' && strcmp(word, "-1") != 0) { /* how one says "none" */
                topology_note(t, "%s: '%s' is no GPU here: those after it are not visible, either",
                              variable, word);
            }
            return true;
        case FOUND:
            if (!seen[at]) {
                taken->gpus[taken->count++] = below->gpus[at];
            }
            seen[at] = true;
            break;
        }
    }
    return true;
}

/* Bring them into the order of bus ids again. */
static void sort(struct shown *shown)
{
    for (uint32_t i = 1; i < shown->count; i++) {
        for (uint32_t j = i; j > 0 && shown->gpus[j] < shown->gpus[j - 1]; j--) {
            const uint32_t gpu = shown->gpus[j];
            shown->gpus[j] = shown->gpus[j - 1];
            shown->gpus[j - 1] = gpu;
        }
    }
}

/* Indices follow CUDA's default order only among equal GPUs. */
static void note_order(struct hlg_topology *t)
{
    for (uint32_t i = 1; i < t->gpu_count; i++) {
        if (t->gpus[i].device != t->gpus[0].device) {
            topology_note(t, "the GPUs are of different models: set CUDA_DEVICE_ORDER=PCI_BUS_ID, "
                             "so that CUDA numbers them as this table does");
            return;
        }
    }
}

int topology_show(const struct hlg_topology_config *config, struct hlg_topology *t, char *error,
                  size_t error_bytes)
{
    struct shown all = {.count = t->gpu_count};
    struct shown shown;
    const char *nvidia = config->nvidia_visible;
    const char *cuda = config->cuda_visible;
    const char *by = "NVIDIA_VISIBLE_DEVICES";
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        all.gpus[i] = i;
    }
    note_order(t);
    /* "", "void" and a path are for others to interpret: the runtime then leaves the GPUs alone. */
    if (nvidia != NULL && strcmp(nvidia, "none") == 0) {
        all.count = 0;
    } else if (nvidia != NULL && nvidia[0] != '\0' && nvidia[0] != '/' &&
               strcmp(nvidia, "all") != 0 && strcmp(nvidia, "void") != 0 &&
               take_list(t, true, nvidia, &all, &shown)) {
        sort(&shown);
        all = shown;
    }
    if (cuda != NULL && take_list(t, false, cuda, &all, &shown)) {
        by = shown.count == all.count            ? by
             : all.count == t->machine_gpu_count ? "CUDA_VISIBLE_DEVICES"
                                                 : "NVIDIA_ and CUDA_VISIBLE_DEVICES";
        all = shown;
    }
    struct hlg_topology_gpu *gpus = calloc(all.count + 1, sizeof *gpus);
    if (gpus == NULL) {
        (void)snprintf(error, error_bytes, "topology: out of memory");
        return -HLG_ENOMEM;
    }
    for (uint32_t i = 0; i < all.count; i++) {
        gpus[i] = t->gpus[all.gpus[i]];
        gpus[i].index = i;
    }
    memset(t->gpus, 0, sizeof t->gpus);
    memcpy(t->gpus, gpus, all.count * sizeof *gpus);
    t->gpu_count = all.count;
    free(gpus);
    if (t->gpu_count < t->machine_gpu_count) {
        topology_note(t, "%u of the %u GPUs %s visible (%s)", t->gpu_count, t->machine_gpu_count,
                      t->gpu_count == 1 ? "is" : "are", by);
    }
    return 0;
}
