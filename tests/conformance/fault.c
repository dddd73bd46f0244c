/*
 * The decorator over the backend `conformance_below`, with the rules of FAULT_SCRIPT. A network within
 * this process has one decorator for all nodes; else each node has its own, as in a process of its own:
 * the suite uses two threads then.
 */
#include "halage/transport/fault.h"
#include "conformance.h"

#define NODES 4u

extern const struct conformance_backend conformance_below;

static struct hlg_fault *faults[NODES]; /* all the same in one process */
static struct hlg_fabric *below[NODES];
static struct hlg_fabric *above[NODES];
static uint32_t users;

/* What happened, for whoever wants to see that something did. */
static void tell(const struct hlg_fault *fault)
{
    struct hlg_fault_stats stats;

    hlg_fault_stats(fault, &stats);
    for (uint32_t kind = 1; getenv("HALAGE_TEST_LOG") != NULL && kind < HLG_FAULT_KINDS; kind++) {
        if (stats.hits[kind] != 0) {
            (void)fprintf(stderr, "  %s %llu\n", hlg_fault_name(kind),
                          (unsigned long long)stats.hits[kind]);
        }
    }
}

static struct hlg_fault *make_fault(void)
{
    const char *seed = getenv("HALAGE_SEED");
    struct hlg_fault_config config;
    struct hlg_fault *fault = NULL;
    char error[256] = "";

    hlg_fault_config_default(&config);
    config.seed = seed != NULL ? strtoull(seed, NULL, 0) : 1;
    config.nodes = NODES;
    config.endpoints_max = 64;
    assert_int_equal(hlg_fault_create(&config, &fault), 0);
    if (hlg_fault_script(fault, FAULT_SCRIPT, error, sizeof error) != 0) {
        fail_msg("%s", error);
    }
    return fault;
}

static struct hlg_fabric *open_fabric(uint32_t node, hlg_time stall_ns)
{
    assert_true(node < NODES && above[node] == NULL);
    below[node] = conformance_below.open(node, stall_ns);
    assert_non_null(below[node]);
    if (faults[node] == NULL) {
        faults[node] = make_fault();
        for (uint32_t other = 0; FAULT_IN_PROCESS && other < NODES; other++) {
            faults[other] = faults[node];
        }
    }
    assert_int_equal(hlg_fault_fabric(faults[node], node, below[node], &above[node]), 0);
    users++;
    return above[node];
}

static void close_fabric(struct hlg_fabric *fabric)
{
    uint32_t node = 0;

    while (node < NODES && above[node] != fabric) {
        node++;
    }
    assert_true(node < NODES && users > 0);
    assert_int_equal(hlg_fault_check(faults[node]), 0);
    above[node] = NULL;
    users--;
    if (!FAULT_IN_PROCESS || users == 0) {
        tell(faults[node]);
    }
    if (!FAULT_IN_PROCESS) {
        hlg_fault_destroy(faults[node]);
        faults[node] = NULL;
    } else if (users == 0) {
        hlg_fault_destroy(faults[node]);
        memset(faults, 0, sizeof faults);
    }
    if (users == 0 || !FAULT_IN_PROCESS) {
        for (uint32_t i = 0; i < NODES; i++) {
            if (below[i] != NULL && above[i] == NULL) {
                conformance_below.close(below[i]);
                below[i] = NULL;
            }
        }
    }
}

#if FAULT_IN_PROCESS
static void step(void)
{
    conformance_below.step();
}

static void kill_fabric(struct hlg_fabric *fabric)
{
    for (uint32_t node = 0; node < NODES; node++) {
        if (above[node] == fabric) {
            const struct hlg_fault_rule rule = {.kind = HLG_FAULT_KILL,
                                                .node = node,
                                                .peer = HLG_FAULT_ANY,
                                                .lane = HLG_FAULT_ANY,
                                                .rail = HLG_FAULT_ANY};
            assert_true(hlg_fault_add(faults[node], &rule, NULL, 0) >= 0);
        }
    }
}
#endif

static uint32_t nobody(uint8_t *address, uint32_t capacity)
{
    return conformance_below.nobody(address, capacity);
}

const struct conformance_backend conformance_backend = {
    .name = FAULT_NAME,
    .limits = sizeof FAULT_SCRIPT > 1 ? LIMIT_TAKES_FIRST : 0, /* a piece that waits was taken */
    .open = open_fabric,
    .close = close_fabric,
#if FAULT_IN_PROCESS
    .step = step,
    .kill = kill_fabric,
#endif
    .nobody = nobody,
};
