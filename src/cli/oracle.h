/*
 * The verification: a process of its own that runs every request again, alone and in one piece, and
 * compares tokens, logits, landed pages and contexts with what a decode node reports.
 */
#ifndef HALAGE_CLI_ORACLE_H
#define HALAGE_CLI_ORACLE_H

#include "../node/config.h"
#include "../node/control.h"
#include "workload.h"

#include <sys/types.h>

struct oracle {
    pid_t pid;
    int socket; /* verdicts come here; its end means that the process is gone */
};

struct oracle_verdict {
    uint64_t number;
    uint32_t same;     /* 1: all is as it should be */
    uint32_t constant; /* 1: all tokens of a long enough output are the same */
    char text[128];    /* the first difference */
};

/* Fork it. Before any thread. Returns 0 or -HLG_EIO. */
int oracle_start(struct oracle *oracle, const struct node_config *config,
                 const struct workload *workload);

/* Hand a result over. Wait for the verdict before the next. Returns 0 or -HLG_EIO. */
int oracle_ask(const struct oracle *oracle, const struct control_result *result);

/* Take the verdict. Returns 1; 0 when there is none yet; -HLG_EIO when the process is gone. */
int oracle_take(const struct oracle *oracle, struct oracle_verdict *verdict);

void oracle_stop(struct oracle *oracle);

#endif
