/*
 * Run pieces of work in forked children, several at a time: SimGrid allows one engine in a process, and
 * a piece that crashes must not end the others. Each gives back one JSON value through memory that both
 * share. The children die with this process.
 */
#ifndef HALAGE_SIM_POOL_H
#define HALAGE_SIM_POOL_H

#include <halage/base.h>

#include <jansson.h>

#define SIM_POOL_JOBS_MAX 1024u

struct sim_pool {
    uint32_t jobs; /* at a time, 1..SIM_POOL_JOBS_MAX */
    /* In a child: the piece of work; a new reference, or NULL without memory. */
    json_t *(*work)(void *context, uint32_t index);
    /* Here, in the order in which they end: `result` is borrowed; NULL with a sentence of how the
       child ended otherwise. Returns 0, or an error: no more begin then, and those that run are ended. */
    int (*done)(void *context, uint32_t index, json_t *result, const char *sentence);
    void *context;
    bool (*stopped)(void); /* true: no more begin, and those that run are ended; may be NULL */
};

/* CPUs that this process may use. */
uint32_t sim_pool_cpus(void);

/*
 * Work on indices [count] in order. Returns 0; -HLG_ECANCELED when stopped; what done() returned;
 * -HLG_EIO or -HLG_ENOMEM, when no child could be made: some were not worked on then.
 */
int sim_pool_run(const struct sim_pool *pool, const uint32_t *indices, uint32_t count);

#endif
