#include "record.h"

static const char *const part_names[SIM_TTFT_PARTS] = {
    "ingest",           "page wait", "dispatch",   "prefill queue", "prefill",
    "exposed transfer", "signal",    "batch wait", "first step",
};

static const char *const moment_names[SIM_MOMENTS] = {
    "arrived", "ingested", "submitted", "requested", "started",  "computed",
    "landed",  "ready",    "stepped",   "first",     "finished",
};

static const char *const outcome_names[] = {"unfinished", "done", "failed", "refused"};

const char *sim_part_name(uint32_t part)
{
    HLG_ASSERT(part < SIM_TTFT_PARTS);
    return part_names[part];
}

const char *sim_moment_name(uint32_t moment)
{
    HLG_ASSERT(moment < SIM_MOMENTS);
    return moment_names[moment];
}

const char *sim_outcome_name(uint32_t outcome)
{
    HLG_ASSERT(outcome <= SIM_REFUSED);
    return outcome_names[outcome];
}
