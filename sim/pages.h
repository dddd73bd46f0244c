/*
 * The page numbers of one rank's KV cache as an engine manages them: free ones, ones in use, and a
 * prefix cache of pages that nobody uses now but whose content is known, evicted oldest first.
 *
 * A name stands for the tokens of a page and all in front of it, so that equal names mean equal
 * content; the longest known run of leading names is what a prompt needs not compute again.
 * Lists are in the order of the tokens. All calls cost O(1) a page.
 */
#ifndef HALAGE_SIM_PAGES_H
#define HALAGE_SIM_PAGES_H

#include <halage/base.h>

#define SIM_PAGES_MAX (1u << 30)

struct sim_pages;

/* `cache`: names count, and named pages are kept after use; else sim_pages_name() does nothing. All
 * memory is taken here: some 40 bytes a page. Returns 0, -HLG_EINVAL unless 1 <= count <= SIM_PAGES_MAX,
 * or -HLG_ENOMEM. */
int sim_pages_create(uint32_t count, bool cache, struct sim_pages **pages);
void sim_pages_destroy(struct sim_pages *pages);

/* count = available + used + poisoned ones that nobody uses any more. */
uint32_t sim_pages_count(const struct sim_pages *pages);
/* Pages that sim_pages_take() could give now: free ones and cached ones that nobody uses. */
uint32_t sim_pages_available(const struct sim_pages *pages);
uint32_t sim_pages_used(const struct sim_pages *pages);

/*
 * The longest run of leading names that are all cached. These pages are in use from now on, and may be
 * shared by several users. Returns how many, with their numbers in out [count].
 */
uint32_t sim_pages_match(struct sim_pages *pages, const uint64_t *names, uint32_t count,
                         uint32_t *out);
/* How many sim_pages_match() would find; changes nothing. */
uint32_t sim_pages_peek(const struct sim_pages *pages, const uint64_t *names, uint32_t count);

/* Take `count` pages, all or none; evicts as needed, oldest first. Returns whether it could. */
bool sim_pages_take(struct sim_pages *pages, uint32_t count, uint32_t *out);

/* Name pages in use whose content is computed now: later matches find them. A name that another page
 * has already is left there; a page keeps its first name, and poisoned ones take none. */
void sim_pages_name(struct sim_pages *pages, const uint32_t *list, const uint64_t *names,
                    uint32_t count);

/* One user less of each. Unnamed pages are free then; named ones stay cached if nobody else uses them:
 * the last of the list is the oldest, so that the end of a prefix is evicted before its beginning. */
void sim_pages_give(struct sim_pages *pages, const uint32_t *list, uint32_t count);

/* One user less of each, and forget the page for ever: it may be written at any time
 * (HLG_NOTICE_POISONED). It must be in use; another user may have poisoned it. */
void sim_pages_poison(struct sim_pages *pages, const uint32_t *list, uint32_t count);

/* Recount. Returns 0, or the number of the check that failed. */
int sim_pages_check(const struct sim_pages *pages);

#endif
