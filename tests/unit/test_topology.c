/* Bus ids, and NICs joined with what libfabric opens: by bus id, by name where there is none, and without. The machine is
 * one that this test writes down: two GPUs and two NICs on root ports of one socket. */
#define _GNU_SOURCE /* mkstemp() */
#include <halage/topology.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SETS "cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\""
#define FUNCTION(busid, type) \
    "<object type=\"PCIDev\" pci_busid=\"" busid "\" pci_type=\"" type "\">"
#define EFA(name, busid)                               \
    FUNCTION(busid, "0200 [1d0f:efa1] [0000:0000] 00") \
    "<object type=\"OSDev\" name=\"" name "\" osdev_type=\"3\"/></object>"

static const char machine[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
    "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" " SETS
    " allowed_cpuset=\"0x1\" allowed_nodeset=\"0x1\">"
    "<object type=\"NUMANode\" os_index=\"0\" " SETS " local_memory=\"4096\"/>"
    "<object type=\"PU\" os_index=\"0\" " SETS "/>"
    "<object type=\"Bridge\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[00-20]\">" //
    FUNCTION("0000:01:00.0", "0302 [10de:2330] [0000:0000] 00") "</object>"                //
    FUNCTION("0000:02:00.0", "0302 [10de:2330] [0000:0000] 00") "</object>"                //
    EFA("rdmap16s0", "0000:10:00.0")
        EFA("rdmap17s0", "0000:11:00.0") "</object></object></topology>\n";

static char path[] = "/tmp/halage-topology-XXXXXX";

static int write_machine(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    if (fd < 0 || write(fd, machine, sizeof machine - 1) != (ssize_t)sizeof machine - 1) {
        return -1;
    }
    return close(fd);
}

static int remove_machine(void **state)
{
    (void)state;
    return unlink(path);
}

static struct hlg_topology *load(struct hlg_topology_config *config)
{
    char error[1024] = "";
    struct hlg_topology *topology = NULL;
    config->size = sizeof *config;
    config->xml = path;
    if (hlg_topology_load(config, &topology, error, sizeof error) != 0) {
        fail_msg("%s", error);
    }
    assert_int_equal(topology->gpu_count, 2);
    assert_int_equal(topology->nic_count, 2);
    assert_false(topology->live);
    return topology;
}

static void bus_ids_are_read_in_all_their_forms(void **state)
{
    static const struct {
        const char *text;
        const char *written; /* NULL: refused */
    } cases[] = {
        {"0000:53:00.0", "0000:53:00.0"},
        {"53:00.0", "0000:53:00.0"},
        {"00000000:CA:1F.7", "0000:ca:1f.7"},
        {"10000:01:00.0", "10000:01:00.0"},
        {"1:2:3.4", "0001:02:03.4"},
        {"", NULL},
        {"0", NULL},
        {"0000:53:00", NULL},
        {"0000:53:20.0", NULL},
        {"0000:53:00.8", NULL},
        {"0000:53:00.0 ", NULL},
        {"0000:153:00.0", NULL},
        {"000000000:53:00.0", NULL},
        {"0000:53:00.0.0", NULL},
        {":53:00.0", NULL},
        {"0000::00.0", NULL},
        {"GPU-1", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hlg_bus_id id = {.bus = 0x77};
        char text[HLG_TOPOLOGY_BUS_BYTES];
        if (cases[i].written == NULL) {
            assert_int_equal(hlg_bus_id_read(cases[i].text, &id), -HLG_EINVAL);
            assert_int_equal(id.bus, 0x77);
            continue;
        }
        assert_int_equal(hlg_bus_id_read(cases[i].text, &id), 0);
        hlg_bus_id_write(&id, text);
        assert_string_equal(text, cases[i].written);
    }
}

static void domains_are_joined_by_bus_id(void **state)
{
    /* EFA's two domains of a function; the one for reliable datagrams is ours. Names alone would lie. */
    const struct hlg_topology_domain domains[] = {
        {.name = "rdmap17s0-dgrm", .on_bus = true, .bus = {.bus = 0x11}},
        {.name = "rdmap17s0-rdm", .on_bus = true, .bus = {.bus = 0x11}},
        {.name = "renamed-rdm", .on_bus = true, .bus = {.bus = 0x10}},
        {.name = "eth0"},
    };
    struct hlg_topology_config config = {.domains = domains, .domain_count = 4};
    (void)state;
    struct hlg_topology *t = load(&config);
    assert_string_equal(t->nics[0].domain, "renamed-rdm");
    assert_string_equal(t->nics[1].domain, "rdmap17s0-rdm");
    assert_int_equal(t->note_count, 0);
    assert_int_equal(t->gpus[0].share_count, 1);
    assert_int_equal(t->gpus[0].nics[0].nic, 0);
    assert_int_equal(t->gpus[1].nics[0].nic, 1);
    hlg_topology_free(t);
}

static void without_a_bus_id_the_name_joins(void **state)
{
    const struct hlg_topology_domain domains[] = {{.name = "rdmap16s0-rdm"}, {.name = "rdmap17s0"}};
    struct hlg_topology_config config = {.domains = domains, .domain_count = 2};
    (void)state;
    struct hlg_topology *t = load(&config);
    assert_string_equal(t->nics[0].domain, "rdmap16s0-rdm");
    assert_string_equal(t->nics[1].domain, "rdmap17s0");
    hlg_topology_free(t);
}

/* A NIC of which libfabric knows nothing cannot be used, and says so; so cannot one that is asked for. */
static void a_nic_that_libfabric_does_not_open_is_left_out(void **state)
{
    const struct hlg_topology_domain domains[] = {
        {.name = "rdmap17s0-rdm", .on_bus = true, .bus = {.bus = 0x11}}};
    struct hlg_topology_config config = {.domains = domains, .domain_count = 1};
    char error[256] = "";
    struct hlg_topology *none = NULL;
    (void)state;
    struct hlg_topology *t = load(&config);
    assert_false(t->nics[0].usable);
    assert_true(t->nics[1].usable);
    for (uint32_t gpu = 0; gpu < 2; gpu++) {
        assert_int_equal(t->gpus[gpu].nic_count, 1);
        assert_int_equal(t->gpus[gpu].nics[0].nic, 1);
    }
    assert_string_equal(t->notes[0], "libfabric does not open NIC rdmap16s0: it is left out");
    hlg_topology_free(t);
    config.nics = "rdmap16s0";
    assert_int_equal(hlg_topology_load(&config, &none, error, sizeof error), -HLG_EINVAL);
    assert_string_equal(error, "NIC 'rdmap16s0' cannot be used: libfabric does not open it");
    assert_null(none);
}

/* libfabric with TCP alone: the table is still of use, and tells. */
static void nothing_joined_is_told(void **state)
{
    const struct hlg_topology_domain domains[] = {{.name = "eth0"}, {.name = "lo"}};
    struct hlg_topology_config config = {.domains = domains, .domain_count = 2};
    (void)state;
    struct hlg_topology *t = load(&config);
    assert_string_equal(t->notes[0], "libfabric opens none of the 2 NICs: see halage doctor");
    assert_int_equal(t->gpus[0].nic_count, 2);
    hlg_topology_free(t);
}

static void a_nic_is_found_by_each_of_its_names(void **state)
{
    const struct hlg_topology_domain domains[] = {
        {.name = "rdmap16s0-rdm", .on_bus = true, .bus = {.bus = 0x10}},
        {.name = "rdmap17s0-rdm", .on_bus = true, .bus = {.bus = 0x11}}};
    struct hlg_topology_config config = {.domains = domains, .domain_count = 2};
    char error[256] = "";
    (void)state;
    struct hlg_topology *t = load(&config);
    assert_int_equal(hlg_topology_nic_find(t, "rdmap17s0", error, sizeof error), 1);
    assert_int_equal(hlg_topology_nic_find(t, "rdmap17s0-rdm", error, sizeof error), 1);
    assert_int_equal(hlg_topology_nic_find(t, "11:00.0", error, sizeof error), 1);
    assert_int_equal(hlg_topology_nic_find(t, "mlx5_0", error, sizeof error), -HLG_EINVAL);
    assert_string_equal(error, "there is no NIC 'mlx5_0': there are rdmap16s0 rdmap17s0");
    hlg_topology_free(t);
}

static void a_thread_is_placed_near_its_nic(void **state)
{
    struct hlg_topology_config config = {0};
    struct hlg_placement placement;
    char why[128];
    (void)state;
    struct hlg_topology *t = load(&config);
    assert_int_equal(hlg_topology_place(t, HLG_NONE, HLG_NONE, &placement, why, sizeof why), 1);
    assert_string_equal(placement.cores, "0");
    assert_int_equal(placement.numa, 0);
    assert_string_equal(why, "near rdmap16s0, NUMA node 0");
    assert_int_equal(hlg_topology_place(t, 1, HLG_NONE, &placement, why, sizeof why), 1);
    assert_string_equal(why, "near rdmap17s0, NUMA node 0");
    hlg_topology_free(t);
    config.cuda_visible = "";
    t = load(&(struct hlg_topology_config){.nics = "rdmap17s0"});
    t->gpu_count = 0;
    t->nic_count = 0;
    assert_int_equal(hlg_topology_place(t, HLG_NONE, HLG_NONE, &placement, why, sizeof why), 0);
    assert_string_equal(placement.cores, "");
    assert_int_equal(placement.numa, -1);
    hlg_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bus_ids_are_read_in_all_their_forms),
        cmocka_unit_test(domains_are_joined_by_bus_id),
        cmocka_unit_test(without_a_bus_id_the_name_joins),
        cmocka_unit_test(a_nic_that_libfabric_does_not_open_is_left_out),
        cmocka_unit_test(nothing_joined_is_told),
        cmocka_unit_test(a_nic_is_found_by_each_of_its_names),
        cmocka_unit_test(a_thread_is_placed_near_its_nic),
    };
    return cmocka_run_group_tests(tests, write_machine, remove_machine);
}
