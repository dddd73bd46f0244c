#include "scenario.h"
#include "scenario_path.h"
#include "workload_trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Prefix a sentence with the place of its cause. */
static int refuse(const struct sim_scenario *scenario, const char *key, const char *sentence,
                  char *text, size_t capacity)
{
    (void)snprintf(text, capacity, "%s%s%s%s", scenario->path,
                   scenario->path[0] == '\0' ? "" : ": ", key, sentence);
    return -HLG_EINVAL;
}

static int find(const struct sim_scenario *scenario, const char *key, const char *name,
                char path[SIM_PATH_MAX], char *text, size_t capacity)
{
    char sentence[SIM_PATH_MAX + 96];
    if (name[0] != '\0' && sim_path_find(scenario->path, name, path)) {
        return 0;
    }
    (void)snprintf(sentence, sizeof sentence, ": '%s': %s", name,
                   name[0] == '\0' ? "name the file"
                                   : "there is no such file beside the scenario or in HALAGE_DATA");
    return refuse(scenario, key, sentence, text, capacity);
}

static int draw(const struct sim_scenario *scenario, struct sim_workload *workload, char *text,
                size_t capacity)
{
    char sentence[256] = "no memory";
    struct sim_workload_config config = scenario->traffic.drawn;
    config.seed = scenario->seed;
    if (config.prompt.kind == SIM_LENGTHS_EMPIRICAL && config.prompt.cdf == NULL) {
        return refuse(scenario, "traffic.prompt.cdf", ": '': name the file of lengths", text,
                      capacity);
    }
    if (config.output.kind == SIM_LENGTHS_EMPIRICAL && config.output.cdf == NULL) {
        return refuse(scenario, "traffic.output.cdf", ": '': name the file of lengths", text,
                      capacity);
    }
    const int result = sim_workload_draw(workload, &config, sentence, sizeof sentence);
    if (result < 0) {
        (void)refuse(scenario, result == -HLG_EINVAL ? "traffic." : "traffic: ", sentence, text,
                     capacity);
    }
    return result;
}

/* Arrivals come `speed` times as fast. */
static int hurry(const struct sim_scenario *scenario, struct sim_workload *workload, char *text,
                 size_t capacity)
{
    const double speed = scenario->traffic.speed;
    const double last = workload->count == 0
                            ? 0
                            : (double)workload->requests[workload->count - 1].arrival_ns / speed;
    if (last > (double)SIM_DAYS_MAX * 86400e9) {
        char sentence[128];
        (void)snprintf(sentence, sizeof sentence,
                       ": %g: the last request would come after %u days; write more", speed,
                       SIM_DAYS_MAX);
        sim_workload_fini(workload);
        return refuse(scenario, "traffic.trace.speed", sentence, text, capacity);
    }
    for (uint32_t i = 0; speed != 1 && i < workload->count; i++) {
        workload->requests[i].arrival_ns =
            (hlg_time)((double)workload->requests[i].arrival_ns / speed);
    }
    return 0;
}

static int read_trace(const struct sim_scenario *scenario, struct sim_workload *workload,
                      char *text, size_t capacity)
{
    const struct sim_traffic *const traffic = &scenario->traffic;
    enum sim_trace_format format = SIM_TRACE_AZURE;
    char path[SIM_PATH_MAX];
    char sentence[256];
    if (!sim_trace_format_find(traffic->format, &format)) {
        (void)snprintf(sentence, sizeof sentence,
                       ": '%s': write azure, burstgpt, mooncake or bailian", traffic->format);
        return refuse(scenario, "traffic.trace.format", sentence, text, capacity);
    }
    if (find(scenario, "traffic.trace.file", traffic->path, path, text, capacity) < 0) {
        return -HLG_EINVAL;
    }
    return sim_trace_read(workload, format, path,
                          traffic->count_max == 0 ? SIM_REQUESTS_MAX : traffic->count_max, text,
                          capacity);
}

static bool whole_seconds(hlg_time time, uint32_t *seconds)
{
    if (time % HLG_NS_PER_S != 0 || time / HLG_NS_PER_S > UINT32_MAX) {
        return false;
    }
    *seconds = (uint32_t)(time / HLG_NS_PER_S);
    return true;
}

static int draw_servegen(const struct sim_scenario *scenario, struct sim_workload *workload,
                         char *text, size_t capacity)
{
    const struct sim_traffic *const traffic = &scenario->traffic;
    struct sim_servegen_config config = {.seed = scenario->seed};
    char rates[SIM_PATH_MAX];
    char lengths[SIM_PATH_MAX];
    if (find(scenario, "traffic.trace.file", traffic->path, rates, text, capacity) < 0 ||
        find(scenario, "traffic.servegen.lengths", traffic->lengths_path, lengths, text, capacity) <
            0) {
        return -HLG_EINVAL;
    }
    if (!whole_seconds(traffic->begin_ns, &config.begin_s) ||
        !whole_seconds(traffic->limit_ns, &config.limit_s) ||
        !whole_seconds(traffic->period_ns, &config.window_s)) {
        return refuse(scenario, "traffic.servegen", ": begin, end and period: write whole seconds",
                      text, capacity);
    }
    config.rates_file = rates;
    config.lengths_file = lengths;
    const int result = sim_servegen_draw(workload, &config, text, capacity);
    if (result == 0 && traffic->count_max != 0) {
        workload->count = hlg_min_u32(workload->count, traffic->count_max);
    }
    return result;
}

int sim_scenario_workload(const struct sim_scenario *scenario, struct sim_workload *workload,
                          char *text, size_t capacity)
{
    int result = -HLG_EINVAL;
    switch (scenario->traffic.kind) {
    case SIM_WORKLOAD_DRAWN:
        return draw(scenario, workload, text, capacity);
    case SIM_WORKLOAD_TRACE:
        result = read_trace(scenario, workload, text, capacity);
        break;
    case SIM_WORKLOAD_SERVEGEN:
        result = draw_servegen(scenario, workload, text, capacity);
        break;
    }
    return result < 0 ? result : hurry(scenario, workload, text, capacity);
}
