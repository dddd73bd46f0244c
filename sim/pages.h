/*
 * The page numbers of one rank's KV cache as an engine manages them: free ones, ones in use, and a
 * prefix cache of pages that nobody uses now but whose content is known, evicted oldest first.
 */
#ifndef HALAGE_SIM_PAGES_H
#define HALAGE_SIM_PAGES_H

#include <halage/base.h>

struct sim_pages;

/* `cache`: keep named pages after use. Returns 0, -HLG_EINVAL for no pages, or -HLG_ENOMEM. */
int sim_pages_create(uint32_t count, bool cache, struct sim_pages **pages);
void sim_pages_destroy(struct sim_pages *pages);

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

/* Take `count` pages, all or none; evicts as needed. Returns whether it could. */
bool sim_pages_take(struct sim_pages *pages, uint32_t count, uint32_t *out);

/* Name pages in use whose content is computed now: later matches find them. A name that another page
 * has already is left there. */
void sim_pages_name(struct sim_pages *pages, const uint32_t *list, const uint64_t *names,
                    uint32_t count);

/* One user less of each. Unnamed pages are free then; named ones stay cached if nobody else uses them. */
void sim_pages_give(struct sim_pages *pages, const uint32_t *list, uint32_t count);

/* Forget a page for ever: it may be written at any time (HLG_NOTICE_POISONED). It must be in use. */
void sim_pages_poison(struct sim_pages *pages, const uint32_t *list, uint32_t count);

/* Recount. Returns 0, or the number of the check that failed. */
int sim_pages_check(const struct sim_pages *pages);

#endif
