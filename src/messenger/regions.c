/* What an engine says of its memory before start: regions, places, counter words. */
#include "messenger_internal.h"

#include <stdio.h>
#include <sys/stat.h>

/* Whether no byte of it belongs to a region that was added before: pages would be in two places. */
static int check_overlap(struct hlg_messenger *m, uint32_t lane,
                         const struct hlg_mem_region *region)
{
    const uintptr_t base = (uintptr_t)region->base;
    char sentence[sizeof m->error];

    for (uint32_t i = 0; i < m->region_count; i++) {
        const struct hlg_mem_region *other = &m->regions[i].memory;
        const uintptr_t start = (uintptr_t)other->base;
        if (base < start + other->bytes && start < base + region->bytes) {
            (void)snprintf(
                sentence, sizeof sentence,
                "a region of lane %u at %p overlaps one of lane %u at %p: give each lane "
                "memory of its own",
                lane, region->base, m->regions[i].lane, other->base);
            return messenger_fail(m, -HLG_EINVAL, sentence);
        }
    }
    return 0;
}

int hlg_messenger_region_add(struct hlg_messenger *m, uint32_t lane,
                             const struct hlg_mem_region *region)
{
    char why[sizeof m->error];
    int error = messenger_before_start(m);

    if (error != 0) {
        return error;
    }
    if (lane >= hlg_layout_lanes(&m->config.layout)) {
        return messenger_fail(m, -HLG_EINVAL,
                              "a region is of a lane that the layout does not have");
    }
    error = hlg_memory_check(region, why, sizeof why);
    if (error != 0) {
        return messenger_fail(m, error, why);
    }
    error = check_overlap(m, lane, region);
    if (error != 0) {
        return error;
    }
    struct hlg_pump_region *regions = realloc(m->regions, (m->region_count + 1) * sizeof *regions);
    if (regions == NULL) {
        return messenger_fail(m, -HLG_ENOMEM, "out of memory");
    }
    m->regions = regions;
    /* Behind the last of its lane, so that they stay in order of lane. */
    uint32_t at = m->region_count;
    while (at > 0 && regions[at - 1].lane > lane) {
        regions[at] = regions[at - 1];
        at--;
    }
    regions[at] = (struct hlg_pump_region){.lane = lane, .memory = *region};
    m->region_count++;
    uint32_t number = 0;
    while (number < at && regions[at - number - 1].lane == lane) {
        number++;
    }
    return (int)number;
}

/* Host memory that was imported before has another address now, and would be two lanes' at once. (Descriptors of
 * CUDA memory cannot be told apart.) */
static int check_file(struct hlg_messenger *m, int fd, const struct hlg_fd_header *header,
                      uint64_t file[2])
{
    struct stat status;

    if (header->kind != HLG_MEMORY_HOST || fstat(fd, &status) != 0) {
        return 0; /* the import says what is wrong */
    }
    file[0] = status.st_dev;
    file[1] = status.st_ino;
    for (uint32_t i = 0; i < m->import_count; i++) {
        if (hlg_memory_kind(m->imports[i].memory) == HLG_MEMORY_HOST &&
            m->imports[i].file[0] == file[0] && m->imports[i].file[1] == file[1]) {
            return messenger_fail(
                m, -HLG_EINVAL,
                "the descriptor is of memory that was imported already: give each "
                "lane memory of its own");
        }
    }
    return 0;
}

int hlg_messenger_region_import(struct hlg_messenger *m, uint32_t lane, int fd,
                                const struct hlg_fd_header *header)
{
    struct hlg_memory *memory = NULL;
    uint64_t file[2] = {0};
    char why[sizeof m->error];
    int error = messenger_before_start(m);

    if (error == 0) {
        error = check_file(m, fd, header, file);
    }
    if (error != 0) {
        return error;
    }
    struct import *imports = realloc(m->imports, (m->import_count + 1) * sizeof *imports);
    if (imports == NULL) {
        return messenger_fail(m, -HLG_ENOMEM, "out of memory");
    }
    m->imports = imports;
    error = hlg_memory_import(fd, header, &memory, why, sizeof why);
    if (error != 0) {
        return messenger_fail(m, error, why);
    }
    const struct hlg_mem_region region = hlg_memory_region(memory);
    int number = hlg_messenger_region_add(m, lane, &region);
    if (number < 0) {
        hlg_memory_release(memory);
        return number;
    }
    m->imports[m->import_count++] = (struct import){memory, {file[0], file[1]}};
    return number;
}

static int add_places(struct hlg_messenger *m, const struct hlg_place *places, uint32_t count)
{
    struct hlg_place *all = realloc(m->places, (m->place_count + count) * sizeof *all);

    if (all == NULL) {
        return messenger_fail(m, -HLG_ENOMEM, "out of memory");
    }
    m->places = all;
    memcpy(all + m->place_count, places, count * sizeof *all);
    m->place_count += count;
    return 0;
}

int hlg_messenger_place_add(struct hlg_messenger *m, const struct hlg_place *place)
{
    int error = messenger_before_start(m);

    return error != 0 ? error : add_places(m, place, 1);
}

int hlg_messenger_places_linear(struct hlg_messenger *m)
{
    const struct hlg_layout *layout = &m->config.layout;
    int error = messenger_before_start(m);

    for (uint32_t lane = 0; error == 0 && lane < hlg_layout_lanes(layout); lane++) {
        int count = hlg_places_linear(layout, lane, NULL, 0, NULL);
        HLG_ASSERT(count >= 0);
        struct hlg_place *places = calloc((size_t)count + 1, sizeof *places);
        if (places == NULL) {
            return messenger_fail(m, -HLG_ENOMEM, "out of memory");
        }
        (void)hlg_places_linear(layout, lane, places, (uint32_t)count, NULL);
        error = count > 0 ? add_places(m, places, (uint32_t)count) : 0;
        free(places);
    }
    return error;
}

int hlg_messenger_counter_watch(struct hlg_messenger *m, uint32_t word,
                                const _Atomic uint32_t *counter)
{
    int error = messenger_before_start(m);

    if (error != 0) {
        return error;
    }
    if (word >= m->word_count) {
        return messenger_fail(m, -HLG_EINVAL, "a counter word has an unknown number");
    }
    m->words[word].counter = counter;
    return 0;
}
