/*
 * What happened to one request of a simulation: a row of times, from which every latency is derived.
 */
#ifndef HALAGE_SIM_RECORD_H
#define HALAGE_SIM_RECORD_H

#include <halage/base.h>

/* Moments of a request, in order; each part of the TTFT lies between two neighbours, so that the
 * parts sum to it. A moment that an engine does not have equals the one before it. */
enum sim_moment {
    SIM_ARRIVED = 0,
    SIM_INGESTED,  /* ingest: tokenised, routed, handed to the decode node */
    SIM_SUBMITTED, /* page wait: the decode node has pages and a slot, and asks the prefill node */
    SIM_REQUESTED, /* dispatch: the prefill engine has it */
    SIM_STARTED,   /* prefill queue: the forward with its first chunk begins */
    SIM_COMPUTED,  /* prefill: the forward with its last chunk is over */
    SIM_LANDED,    /* exposed transfer: its last byte is in the decode node */
    SIM_READY,     /* signal: the decode engine knows */
    SIM_STEPPED,   /* batch wait: its first decode step begins */
    SIM_FIRST,     /* first step: the first token is out */
    SIM_FINISHED,  /* it left the system: its last token is out, or it failed or was refused */
    SIM_MOMENTS
};
#define SIM_TTFT_PARTS 9u /* SIM_FIRST - SIM_ARRIVED */

enum sim_outcome {
    SIM_UNFINISHED = 0, /* the run ended before */
    SIM_DONE,
    SIM_FAILED,  /* reason says why; it was not tried again */
    SIM_REFUSED, /* longer than any node can hold */
};

struct sim_record {
    /* HLG_TIME_NEVER: not reached. ARRIVED is of the first attempt, FINISHED of the last; those in
       between are of the attempt in which the first token came out, or of the last if none did. */
    hlg_time at[SIM_MOMENTS];
    uint32_t request; /* index in the workload */
    uint32_t outcome; /* enum sim_outcome */
    uint32_t reason;  /* enum hlg_reason, when FAILED */
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t cached_tokens; /* of the prompt, found in the prefill node's cache */
    uint32_t chunks;        /* forwards that it took part in */
    uint32_t prefill_node;  /* HLG_NONE: none */
    uint32_t decode_node;
    uint32_t decode_rank;
    uint32_t steps;       /* decode steps */
    uint32_t preemptions; /* each made a new attempt */
    uint32_t retries;     /* likewise: attempts that failed */
    uint64_t bytes;       /* that landed for it, all copies */
};

const char *sim_part_name(uint32_t part);     /* 0 <= part < SIM_TTFT_PARTS */
const char *sim_moment_name(uint32_t moment); /* 0 <= moment < SIM_MOMENTS */
const char *sim_outcome_name(uint32_t outcome);

#endif
