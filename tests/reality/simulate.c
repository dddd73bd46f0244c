/*
 * Run a scenario and print what became of each request: a row with its nodes and moments in
 * nanoseconds, as far as each came.
 *
 *     simulate FILE [KEY=VALUE...]
 */
#include <cluster.h>
#include <inttypes.h>
#include <stdio.h>

static int fail(const char *text)
{
    (void)fprintf(stderr, "simulate: %s\n", text);
    return 1;
}

static void print(const struct sim_run *run)
{
    (void)printf("request\tprefill_node\tdecode_node\tbytes");
    for (uint32_t moment = 0; moment < SIM_MOMENTS; moment++) {
        (void)printf("\t%s", sim_moment_name(moment));
    }
    (void)printf("\n");
    for (uint32_t i = 0; i < run->record_count; i++) {
        const struct sim_record *record = &run->records[i];
        (void)printf("%" PRIu32 "\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu64, record->request,
                     record->prefill_node, record->decode_node, record->bytes);
        for (uint32_t moment = 0; moment < SIM_MOMENTS; moment++) {
            if (record->at[moment] == HLG_TIME_NEVER) {
                (void)printf("\t");
            } else {
                (void)printf("\t%" PRIu64, record->at[moment]);
            }
        }
        (void)printf("\n");
    }
}

static int simulate(const struct sim_scenario *scenario)
{
    static struct sim_run run;
    char text[512];
    const struct sim_run_options options = {.check = true};
    struct sim_workload workload;
    if (sim_scenario_check(scenario, NULL, text, sizeof text) != 0 ||
        sim_scenario_workload(scenario, &workload, text, sizeof text) != 0) {
        return fail(text);
    }
    int status = sim_run(scenario, &workload, &options, &run, text, sizeof text);
    if (status == 0) {
        print(&run);
        sim_run_fini(&run);
    } else {
        status = fail(text);
    }
    sim_workload_fini(&workload);
    return status;
}

int main(int argc, char **argv)
{
    static struct sim_scenario scenario;
    char text[512];
    if (argc < 2) {
        return fail("which scenario? simulate FILE [KEY=VALUE...]");
    }
    if (sim_scenario_read(&scenario, argv[1], (const char *const *)argv + 2, (uint32_t)argc - 2,
                          text, sizeof text) != 0) {
        return fail(text);
    }
    const int status = simulate(&scenario);
    sim_scenario_fini(&scenario);
    return status;
}
