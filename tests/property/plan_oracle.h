/*
 * What a plan must do, element by element, straight from the definition of who owns which head and
 * layer. It calls none of the planner's arithmetic: it applies the plan's slices as copies of tagged
 * bytes and looks at what has arrived.
 */
#ifndef HALAGE_TESTS_PLAN_ORACLE_H
#define HALAGE_TESTS_PLAN_ORACLE_H

#include <halage/plan.h>

#define ORACLE_RANKS      16u
#define ORACLE_GROUPS     2u
#define ORACLE_LAYERS     5u /* and one of them stands for the context */
#define ORACLE_PLANES     2u
#define ORACLE_PAGE_BYTES 96u

/* One page of a rank, group, layer and plane. */
struct oracle_page {
    uint32_t bytes; /* 0: this rank holds no such page */
    uint32_t tag[ORACLE_PAGE_BYTES];
    uint32_t got[ORACLE_PAGE_BYTES];    /* target: tag written, 0 for none */
    uint32_t rank[ORACLE_PAGE_BYTES];   /* target: source rank that wrote it */
    uint32_t origin[ORACLE_PAGE_BYTES]; /* target: offset in that rank's page */
};

struct oracle_side {
    struct oracle_page pages[ORACLE_RANKS][ORACLE_GROUPS][ORACLE_LAYERS][ORACLE_PLANES];
};

struct oracle {
    struct oracle_side source;
    struct oracle_side target;
    uint64_t pieces[ORACLE_RANKS]; /* written to each target rank by the last check */
    uint64_t sent[ORACLE_RANKS];   /* written by each source rank */
    uint32_t errors;               /* of the last check */
};

/* Whether the definition allows both groups' heads on both sides. */
bool oracle_can_shard(const struct hlg_layout *layout);

/* Tag the pages of both sides. */
void oracle_fill(struct oracle *oracle, const struct hlg_layout *source,
                 const struct hlg_layout *target);

/*
 * Apply the slices that `offset` uses to one page of each group and check that every target byte is
 * written once, with the right tag, from the right replica set; that nothing else is touched; that
 * runs are as long as they can be; that the planner's counts are those of the writes done.
 * Returns the number of faults found.
 */
uint32_t oracle_check(struct oracle *oracle, const struct hlg_plan *plan, uint32_t offset);

#endif
