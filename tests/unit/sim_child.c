#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim_child.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void keep(struct child *child, struct sim_run *run)
{
    HLG_ASSERT(run->record_count <= CHILD_RECORDS_MAX && run->node_count <= CHILD_NODES_MAX);
    child->run = *run;
    memcpy(child->records, run->records, run->record_count * sizeof *run->records);
    memcpy(child->nodes, run->nodes, run->node_count * sizeof *run->nodes);
    child->run.records = child->records;
    child->run.nodes = child->nodes;
    sim_run_fini(run);
}

struct child *child_run(const struct sim_scenario *scenario, const struct sim_workload *workload,
                        const struct sim_run_options *options)
{
    struct child *child =
        mmap(NULL, sizeof *child, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = 0;

    assert_true(child != MAP_FAILED);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sim_run run;
        struct sim_run_options own = {0};
        if (options != NULL) {
            own = *options;
        }
        own.context = own.context == NULL ? child : own.context;
        child->error = sim_run(scenario, workload, &own, &run, child->text, sizeof child->text);
        if (child->error == 0) {
            keep(child, &run);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return child;
}

void child_free(struct child *child)
{
    assert_int_equal(munmap(child, sizeof *child), 0);
}

void child_scenario(struct sim_scenario *scenario, uint32_t decodes)
{
    sim_scenario_default(scenario);
    scenario->decode.nodes = decodes;
    scenario->prefill.engine.ingest_ns = 0;
    scenario->decode.engine.ingest_ns = 1000;
    scenario->prefill.engine.dispatch_ns = 2000;
    scenario->decode.engine.dispatch_ns = 3000;
    scenario->measure.warmup_requests = 0;
}

void child_workload(struct sim_workload *workload, uint32_t count, hlg_time gap_ns,
                    uint32_t prompt_tokens, uint32_t output_tokens)
{
    *workload = (struct sim_workload){0};
    for (uint32_t i = 0; i < count; i++) {
        struct sim_workload_request request = {.arrival_ns = i * gap_ns,
                                               .prompt_tokens = prompt_tokens,
                                               .output_tokens = output_tokens};
        assert_int_equal(sim_workload_append(workload, &request, NULL), 0);
    }
}
