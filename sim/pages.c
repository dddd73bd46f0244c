#include "pages.h"

#include <stdlib.h>

enum page_state {
    PAGE_FREE = 0, /* on the free list */
    PAGE_USED,     /* users >= 1 */
    PAGE_CACHED,   /* no user, a name, on the list by age */
    PAGE_LOST      /* poisoned, no user */
};

struct page {
    uint64_t name;
    uint32_t users;
    uint32_t older; /* CACHED: neighbours by age. FREE: `older` is the next free page */
    uint32_t newer;
    uint32_t chain; /* named: next page of the same bucket */
    uint8_t state;  /* enum page_state */
    bool named;
    bool poisoned;
};

struct sim_pages {
    struct page *pages; /* [count] */
    uint32_t *buckets;  /* [mask + 1] first page of each */
    uint32_t mask;
    uint32_t count;
    bool cache;
    uint32_t free; /* top of the stack of free pages */
    uint32_t free_count;
    uint32_t oldest;
    uint32_t newest;
    uint32_t cached_count;
    uint32_t used_count;
};

static uint32_t bucket_of(const struct sim_pages *pages, uint64_t name)
{
    uint64_t mixed = name * 0x9e3779b97f4a7c15ull;

    return (uint32_t)((mixed >> 32) ^ (mixed >> 20)) & pages->mask;
}

int sim_pages_create(uint32_t count, bool cache, struct sim_pages **out)
{
    struct sim_pages *pages = NULL;
    uint32_t buckets = 1;

    if (count == 0 || count > SIM_PAGES_MAX) {
        return -HLG_EINVAL;
    }
    while (cache && buckets < count) {
        buckets *= 2;
    }
    pages = calloc(1, sizeof(*pages));
    if (pages == NULL) {
        return -HLG_ENOMEM;
    }
    pages->pages = calloc(count, sizeof(*pages->pages));
    pages->buckets = calloc(buckets, sizeof(*pages->buckets));
    if (pages->pages == NULL || pages->buckets == NULL) {
        sim_pages_destroy(pages);
        return -HLG_ENOMEM;
    }
    pages->mask = buckets - 1;
    pages->count = count;
    pages->cache = cache;
    pages->free_count = count;
    pages->oldest = HLG_NONE;
    pages->newest = HLG_NONE;
    for (uint32_t b = 0; b < buckets; b++) {
        pages->buckets[b] = HLG_NONE;
    }
    for (uint32_t i = 0; i < count; i++) {
        pages->pages[i].older = i + 1 < count ? i + 1 : HLG_NONE;
    }
    *out = pages;
    return 0;
}

void sim_pages_destroy(struct sim_pages *pages)
{
    if (pages != NULL) {
        free(pages->pages);
        free(pages->buckets);
        free(pages);
    }
}

uint32_t sim_pages_count(const struct sim_pages *pages)
{
    return pages->count;
}

uint32_t sim_pages_available(const struct sim_pages *pages)
{
    return pages->free_count + pages->cached_count;
}

uint32_t sim_pages_used(const struct sim_pages *pages)
{
    return pages->used_count;
}

/* Returns the page of this name, or HLG_NONE. */
static uint32_t find(const struct sim_pages *pages, uint64_t name)
{
    uint32_t at = pages->buckets[bucket_of(pages, name)];

    while (at != HLG_NONE && pages->pages[at].name != name) {
        at = pages->pages[at].chain;
    }
    return at;
}

static void forget_name(struct sim_pages *pages, uint32_t index)
{
    struct page *page = &pages->pages[index];
    uint32_t *link = &pages->buckets[bucket_of(pages, page->name)];

    HLG_ASSERT(page->named);
    while (*link != index) {
        HLG_ASSERT(*link != HLG_NONE);
        link = &pages->pages[*link].chain;
    }
    *link = page->chain;
    page->named = false;
}

static void age_remove(struct sim_pages *pages, uint32_t index)
{
    struct page *page = &pages->pages[index];

    HLG_ASSERT(page->state == PAGE_CACHED && pages->cached_count != 0);
    if (page->older != HLG_NONE) {
        pages->pages[page->older].newer = page->newer;
    } else {
        pages->oldest = page->newer;
    }
    if (page->newer != HLG_NONE) {
        pages->pages[page->newer].older = page->older;
    } else {
        pages->newest = page->older;
    }
    pages->cached_count--;
}

static void age_append(struct sim_pages *pages, uint32_t index)
{
    struct page *page = &pages->pages[index];

    page->state = PAGE_CACHED;
    page->older = pages->newest;
    page->newer = HLG_NONE;
    if (pages->newest != HLG_NONE) {
        pages->pages[pages->newest].newer = index;
    } else {
        pages->oldest = index;
    }
    pages->newest = index;
    pages->cached_count++;
}

uint32_t sim_pages_peek(const struct sim_pages *pages, const uint64_t *names, uint32_t count)
{
    uint32_t found = 0;

    while (pages->cache && found < count && find(pages, names[found]) != HLG_NONE) {
        found++;
    }
    return found;
}

uint32_t sim_pages_match(struct sim_pages *pages, const uint64_t *names, uint32_t count,
                         uint32_t *out)
{
    uint32_t found = 0;

    for (; pages->cache && found < count; found++) {
        uint32_t index = find(pages, names[found]);

        if (index == HLG_NONE) {
            break;
        }
        if (pages->pages[index].state == PAGE_CACHED) {
            age_remove(pages, index);
            pages->pages[index].state = PAGE_USED;
            pages->used_count++;
        }
        HLG_ASSERT(pages->pages[index].users != UINT32_MAX);
        pages->pages[index].users++;
        out[found] = index;
    }
    return found;
}

static uint32_t take_one(struct sim_pages *pages)
{
    uint32_t index = pages->free;

    if (pages->free_count != 0) {
        pages->free = pages->pages[index].older;
        pages->free_count--;
    } else {
        index = pages->oldest;
        age_remove(pages, index);
        forget_name(pages, index);
    }
    HLG_ASSERT(pages->pages[index].users == 0 && !pages->pages[index].poisoned);
    pages->pages[index].state = PAGE_USED;
    pages->pages[index].users = 1;
    pages->used_count++;
    return index;
}

bool sim_pages_take(struct sim_pages *pages, uint32_t count, uint32_t *out)
{
    if (count > sim_pages_available(pages)) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        out[i] = take_one(pages);
    }
    return true;
}

void sim_pages_name(struct sim_pages *pages, const uint32_t *list, const uint64_t *names,
                    uint32_t count)
{
    for (uint32_t i = 0; pages->cache && i < count; i++) {
        struct page *page = &pages->pages[list[i]];

        HLG_ASSERT(list[i] < pages->count && page->state == PAGE_USED);
        if (!page->named && !page->poisoned && find(pages, names[i]) == HLG_NONE) {
            uint32_t *bucket = &pages->buckets[bucket_of(pages, names[i])];

            page->name = names[i];
            page->named = true;
            page->chain = *bucket;
            *bucket = list[i];
        }
    }
}

/* One user less of a page. */
static void give_one(struct sim_pages *pages, uint32_t index)
{
    struct page *page = &pages->pages[index];

    HLG_ASSERT(index < pages->count && page->state == PAGE_USED);
    HLG_ASSERT(page->users != 0 && pages->used_count != 0);
    page->users--;
    if (page->users != 0) {
        return;
    }
    pages->used_count--;
    if (page->poisoned) {
        page->state = PAGE_LOST;
    } else if (page->named) {
        age_append(pages, index);
    } else {
        page->state = PAGE_FREE;
        page->older = pages->free_count != 0 ? pages->free : HLG_NONE;
        pages->free = index;
        pages->free_count++;
    }
}

void sim_pages_give(struct sim_pages *pages, const uint32_t *list, uint32_t count)
{
    for (uint32_t i = count; i > 0; i--) {
        give_one(pages, list[i - 1]);
    }
}

void sim_pages_poison(struct sim_pages *pages, const uint32_t *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct page *page = &pages->pages[list[i]];

        HLG_ASSERT(list[i] < pages->count && page->state == PAGE_USED);
        if (page->named) {
            forget_name(pages, list[i]);
        }
        page->poisoned = true;
        give_one(pages, list[i]);
    }
}

/* What one page says of itself. Returns 0 or the number of the check that failed. */
static int check_page(const struct sim_pages *pages, uint32_t index)
{
    const struct page *page = &pages->pages[index];

    if ((page->users != 0) != (page->state == PAGE_USED)) {
        return 1;
    }
    if (page->state == PAGE_CACHED && (!page->named || page->poisoned)) {
        return 2;
    }
    if ((page->state == PAGE_FREE || page->poisoned) && page->named) {
        return 3;
    }
    if (page->state == PAGE_LOST && !page->poisoned) {
        return 4;
    }
    return page->named && find(pages, page->name) != index ? 5 : 0;
}

/* The lists. Returns 0 or the number of the check that failed. */
static int check_lists(const struct sim_pages *pages)
{
    uint32_t at = pages->free;
    uint32_t before = HLG_NONE;

    for (uint32_t i = 0; i < pages->free_count; i++) {
        if (at == HLG_NONE || pages->pages[at].state != PAGE_FREE) {
            return 6;
        }
        at = pages->pages[at].older;
    }
    at = pages->oldest;
    for (uint32_t i = 0; i < pages->cached_count; i++) {
        if (at == HLG_NONE || pages->pages[at].state != PAGE_CACHED ||
            pages->pages[at].older != before) {
            return 7;
        }
        before = at;
        at = pages->pages[at].newer;
    }
    return at != HLG_NONE || before != pages->newest ? 8 : 0;
}

int sim_pages_check(const struct sim_pages *pages)
{
    uint32_t counts[4] = {0};
    int failed = check_lists(pages);

    for (uint32_t i = 0; i < pages->count && failed == 0; i++) {
        failed = check_page(pages, i);
        counts[pages->pages[i].state]++;
    }
    if (failed != 0) {
        return failed;
    }
    return counts[PAGE_FREE] != pages->free_count || counts[PAGE_USED] != pages->used_count ||
                   counts[PAGE_CACHED] != pages->cached_count
               ? 9
               : 0;
}
