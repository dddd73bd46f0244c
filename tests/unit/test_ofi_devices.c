/* Which of libfabric's devices are used, by name, by the RDMA device's name, by bus id: lists of fi_info as providers
 * return them (with a NIC, with one that says nothing of its bus, without), made by hand. */
#include "devices.h"

#include <rdma/fabric.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *copy(const char *text)
{
    char *made = calloc(1, strlen(text) + 1);
    assert_non_null(made);
    memcpy(made, text, strlen(text));
    return made;
}

/* One entry; bus 0: libfabric knows no NIC (fi_info->nic is NULL). fi_freeinfo() frees all of it. */
static struct fi_info *make(const char *provider, const char *domain, uint8_t bus,
                            struct fi_info *next)
{
    struct fi_info *info = fi_allocinfo();
    assert_non_null(info);
    info->fabric_attr->prov_name = copy(provider);
    info->domain_attr->name = copy(domain);
    info->next = next;
    if (bus != 0) {
        info->nic = calloc(1, sizeof *info->nic);
        assert_non_null(info->nic);
        info->nic->bus_attr = calloc(1, sizeof *info->nic->bus_attr);
        assert_non_null(info->nic->bus_attr);
        info->nic->bus_attr->bus_type = FI_BUS_PCI;
        info->nic->bus_attr->attr.pci.bus_id = bus;
    }
    return info;
}

/* fi_freeinfo() frees a NIC by its own operations, which these have not. */
static void give(struct fi_info *infos)
{
    for (struct fi_info *info = infos; info != NULL; info = info->next) {
        if (info->nic != NULL) {
            free(info->nic->bus_attr);
            free(info->nic);
            info->nic = NULL;
        }
    }
    ofi_infos_free(infos);
}

static struct fi_info *four(void)
{
    return make("efa", "rdmap16s0-rdm", 0x10,
                make("efa", "rdmap17s0-rdm", 0x11,
                     make("efa", "rdmap18s0-rdm", 0x12, make("efa", "rdmap19s0-rdm", 0x13, NULL))));
}

static void devices_are_told_with_their_bus(void **state)
{
    struct hlg_ofi_device device;
    (void)state;
    struct fi_info *infos = make("efa", "rdmap16s0-rdm", 0x10, make("net", "lo", 0, NULL));
    ofi_device_tell(infos, &device);
    assert_string_equal(device.name, "rdmap16s0-rdm");
    assert_string_equal(device.provider, "efa");
    assert_true(device.on_bus);
    assert_int_equal(device.bus, 0x10);
    ofi_device_tell(infos->next, &device);
    assert_false(device.on_bus);
    assert_int_equal(device.bus, 0);
    infos->nic->bus_attr->bus_type = FI_BUS_UNKNOWN;
    ofi_device_tell(infos, &device);
    assert_false(device.on_bus);
    give(infos);
}

/* Each entry is one of its own: the list has the chosen ones, in the order chosen, once each. */
static void chosen_devices_are_kept_in_their_order(void **state)
{
    char error[256] = "";
    (void)state;
    struct fi_info *all[4];
    struct fi_info *infos = four();
    for (uint32_t i = 0; i < 4; i++) {
        all[i] = i == 0 ? infos : all[i - 1]->next;
    }
    /* By libfabric's name, the RDMA device's, the bus; one twice. */
    for (uint32_t i = 0; i < 4;
         i += 2) { /* those that go are freed by libfabric: without a NIC of ours */
        free(all[i]->nic->bus_attr);
        free(all[i]->nic);
        all[i]->nic = NULL;
    }
    assert_int_equal(
        ofi_devices_keep(&infos, "rdmap19s0,0000:11:00.0,rdmap19s0-rdm", error, sizeof error), 0);
    assert_ptr_equal(infos, all[3]);
    assert_ptr_equal(infos->next, all[1]);
    assert_null(infos->next->next);
    give(infos);
}

static void a_device_that_there_is_not_is_said_with_those_there_are(void **state)
{
    static const char *const names[] = {"rdmap20s0", "rdmap16s0-rd", "rdmap16s",    "",
                                        ",",         "rdmap16s0,",   "0000:14:00.0"};
    (void)state;
    struct fi_info *infos = four();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char error[256] = "";
        uint32_t count = 0;
        assert_int_equal(ofi_devices_keep(&infos, names[i], error, sizeof error), -HLG_EINVAL);
        assert_non_null(strstr(error, " of provider efa: there are "));
        for (uint32_t bus = 16; bus < 20; bus++) {
            char name[32];
            (void)snprintf(name, sizeof name, " rdmap%us0-rdm", bus);
            assert_non_null(strstr(error, name));
        }
        for (const struct fi_info *info = infos; info != NULL; info = info->next) {
            count++;
        }
        assert_int_equal(count, 4); /* nothing is lost */
    }
    give(infos);
}

static void rails_take_the_lanes_devices_in_order(void **state)
{
    static const struct {
        const char *names;
        uint32_t picks[4];
    } cases[] = {
        {"rdmap18s0", {2, 2, 2, 2}},
        {"rdmap19s0,rdmap16s0", {3, 0, 3, 0}},
        {"rdmap16s0,rdmap17s0,rdmap18s0,rdmap19s0", {0, 1, 2, 3}},
        {"12:00.0", {HLG_NONE}}, /* a bus id is written whole */
        {NULL, {HLG_NONE, HLG_NONE, HLG_NONE, HLG_NONE}},
    };
    (void)state;
    struct fi_info *infos = four();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char error[256] = "";
        uint32_t picks[4] = {7, 7, 7, 7};
        const int status = ofi_devices_pick(infos, cases[i].names, 4, picks, error, sizeof error);
        if (cases[i].names != NULL && cases[i].picks[0] == HLG_NONE) {
            assert_int_equal(status, -HLG_EINVAL);
            assert_non_null(strstr(error, "there is no NIC '12:00.0' of provider efa"));
            continue;
        }
        assert_int_equal(status, 0);
        assert_memory_equal(picks, cases[i].picks, sizeof picks);
    }
    give(infos);
}

/* The whole way, with what is everywhere: a fabric whose lanes name their device. */
static void a_fabric_opens_the_lanes_devices(void **state)
{
    const char *lanes[] = {"lo", NULL};
    struct hlg_ofi_config config = {
        .provider = "tcp", .rails = 2, .lane_devices = lanes, .lane_count = 2};
    struct hlg_fabric *fabric = NULL;
    struct hlg_transport *endpoint = NULL;
    char error[256] = "";
    (void)state;
    assert_int_equal(hlg_ofi_open(&config, &fabric, error, sizeof error), 0);
    for (uint32_t lane = 0; lane < 3; lane++) {
        assert_int_equal(fabric->open(fabric, lane, 1, &endpoint), 0);
        assert_int_equal(endpoint->ops->close(endpoint), 0);
        endpoint->ops->free(endpoint);
    }
    hlg_ofi_close(fabric);
    lanes[1] = "mlx5_0";
    assert_int_equal(hlg_ofi_open(&config, &fabric, error, sizeof error), -HLG_EINVAL);
    assert_non_null(strstr(error, "there is no NIC 'mlx5_0' of provider "));
    assert_non_null(strstr(error, ": there is lo"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_told_with_their_bus),
        cmocka_unit_test(chosen_devices_are_kept_in_their_order),
        cmocka_unit_test(a_device_that_there_is_not_is_said_with_those_there_are),
        cmocka_unit_test(rails_take_the_lanes_devices_in_order),
        cmocka_unit_test(a_fabric_opens_the_lanes_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
