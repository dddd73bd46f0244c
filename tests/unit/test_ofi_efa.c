/*
 * What the libfabric backend does on EFA, which no machine of ours has: every rule of its row in
 * transports/ofi/provider.c, over a double that answers as the provider's source does (tests/support/fake_ofi.h).
 * That the real provider does so too is not shown here.
 */
#define _GNU_SOURCE
#include "ofi_case.h"

#include <rdma/fi_errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OPT_CUDA_API_PERMITTED             10
#define OPT_SHARED_MEMORY_PERMITTED        11
#define OPT_EFA_RNR_RETRY                  (-(0xefa << 16))
#define OPT_EFA_USE_DEVICE_RDMA            (OPT_EFA_RNR_RETRY + 4)
#define OPT_EFA_USE_UNSOLICITED_WRITE_RECV (OPT_EFA_RNR_RETRY + 8)

/*
 * Two devices, each of which has both fabrics, as fi_getinfo of 2.1 and later gives them. Source: libfabric 2.6,
 * prov/efa/src/efa_prov_info.c: mr_mode OFI_MR_BASIC_MAP less FI_MR_LOCAL, cq_data_size EFA_CQ_DATA_SIZE (4), keys of
 * the size of ibv_sge.lkey (4), messages without limit (segmented), addresses of 32 bytes (struct efa_ep_addr).
 * Queue depths are the device's; these are smaller than any. 1.22 knows no FI_WAIT_FD (efa_rdm_cq.c: -FI_ENOSYS).
 */
static const struct fake_device p5 = {
    .infos = {{"efa", "efa-direct", "rdmap0-rdm"},
              {"efa", "efa", "rdmap0-rdm"},
              {"efa", "efa-direct", "rdmap1-rdm"},
              {"efa", "efa", "rdmap1-rdm"}},
    .version = FI_VERSION(2, 6),
    .mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
    .mr_key_size = 4,
    .cq_data_size = 4,
    .tx_size = 1024,
    .max_msg_size = SIZE_MAX,
    .inject_size = 32,
    .addr_format = FI_ADDR_EFA,
    .address_bytes = 32,
    .cq_entries_max = 65536,
    .cq_descriptor = true,
    .has_rdma = true,
    .sets_rnr = true,
    .has_cuda = true,
};

static struct fake_device older(uint32_t version)
{
    struct fake_device device = p5;

    device.version = version;
    device.cq_descriptor = FI_VERSION_GE(version, FI_VERSION(2, 0));
    return device;
}

/* ---- versions ----------------------------------------------------------------------------- */

static void a_libfabric_that_is_too_old_is_refused_in_words(void **state)
{
    static const uint32_t minors[] = {17, 18, 20, 21};

    (void)state;
    for (size_t i = 0; i < sizeof minors / sizeof minors[0]; i++) {
        const struct fake_device device = older(FI_VERSION(1, minors[i]));
        char here[32];
        (void)snprintf(here, sizeof here, "this is 1.%u: ", minors[i]);
        assert_int_equal(case_try(&device, "efa"), -HLG_EIO);
        assert_non_null(strstr(case_error, "provider efa needs libfabric 1.22 or newer"));
        assert_non_null(strstr(case_error, here));
        assert_non_null(strstr(case_error, "EFA installer"));
        assert_int_equal(fake.getinfo_count, 0);
    }
    static const uint32_t good[] = {FI_VERSION(1, 22), FI_VERSION(2, 0), FI_VERSION(2, 6)};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const struct fake_device device = older(good[i]);
        assert_int_equal(case_try(&device, "efa"), 0);
    }
}

static void versions_can_be_asked_for(void **state)
{
    const struct fake_device old = older(FI_VERSION(1, 21));

    (void)state;
    fake_reset(&old);
    assert_int_equal(hlg_ofi_version().major, 1);
    assert_int_equal(hlg_ofi_version().minor, 21);
    assert_int_equal(hlg_ofi_version_min("efa").major, 1);
    assert_int_equal(hlg_ofi_version_min("efa").minor, 22);
    assert_int_equal(hlg_ofi_version_min("verbs;ofi_rxm").major, 0);
    assert_int_equal(hlg_ofi_version_min("nothing").major, 0);
}

/* auto goes on without it, and says so: somebody paid for that device. */
static void auto_says_why_it_leaves_a_device_alone(void **state)
{
    const struct fake_device old = older(FI_VERSION(1, 21));
    struct hlg_ofi_provider list[HLG_OFI_PROVIDERS_MAX];

    (void)state;
    assert_int_equal(case_try(&old, "auto"), -HLG_EIO); /* the double has no other provider */
    assert_non_null(
        strstr(case_heard, "provider efa needs libfabric 1.22 or newer, and this is 1.21"));
    assert_int_equal(hlg_ofi_list(NULL, list, HLG_OFI_PROVIDERS_MAX), 0);
    assert_int_equal(case_try(&p5, "auto"), 0);
    assert_non_null(strstr(case_heard, "provider efa, chosen by auto"));
    assert_int_equal(hlg_ofi_list(NULL, list, HLG_OFI_PROVIDERS_MAX), 1);
    assert_string_equal(list[0].name, "efa");
    assert_false(list[0].placed);
    assert_false(list[0].measured);
}

/* Device RDMA is for those who ask for the behaviour of 1.18 or later, and headers may be older than that. */
static void the_behaviour_of_1_22_is_asked_for(void **state)
{
    const struct fake_device least = older(FI_VERSION(1, 22));

    (void)state;
    assert_int_equal(case_try(&least, "efa"), 0);
    assert_int_equal(fake.api, FI_VERSION(1, 22));
    assert_int_equal(case_try(&p5, "efa"), 0);
    assert_true(FI_VERSION_GE(fake.api, FI_VERSION(1, 22)));
    assert_false(FI_VERSION_LT(p5.version, fake.api));
}

/* ---- options ------------------------------------------------------------------------------ */

static void options_are_set_before_the_endpoint_is_enabled(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &p5, NULL);
    assert_int_equal(fake.option_count, 5);
    for (uint32_t i = 0; i < fake.option_count; i++) {
        assert_false(fake.options[i].enabled);
    }
    assert_int_equal(fake_option_sets(OPT_SHARED_MEMORY_PERMITTED, false), 1);
    assert_int_equal(fake_option_sets(OPT_CUDA_API_PERMITTED, false), 1);
    assert_int_equal(fake_option_sets(OPT_EFA_USE_DEVICE_RDMA, true), 1);
    assert_int_equal(fake_option_sets(OPT_EFA_USE_UNSOLICITED_WRITE_RECV, true), 1);
    assert_int_equal(fake_option_sets(OPT_EFA_RNR_RETRY, 7), 1);
    for (uint32_t i = 0; i < fake.option_count; i++) {
        const size_t bytes =
            fake.options[i].number == OPT_EFA_RNR_RETRY ? sizeof(size_t) : sizeof(bool);
        assert_int_equal(fake.options[i].bytes, bytes);
    }
    assert_string_equal(case_heard, "");
    case_close(&c);
}

static void an_option_that_a_library_has_not_is_left_out(void **state)
{
    const struct fake_device device = older(FI_VERSION(1, 22));
    struct ofi_case c;

    (void)state;
    case_open(&c, &device, NULL);
    assert_int_equal(fake.option_count, 4);
    assert_int_equal(fake_option_sets(OPT_EFA_USE_UNSOLICITED_WRITE_RECV, true), 0);
    case_close(&c);
}

/* p4d has RDMA read alone, older ones none; FI_EFA_USE_DEVICE_RDMA=0 looks the same. */
static void a_device_that_cannot_write_is_refused(void **state)
{
    struct fake_device device = p5;

    (void)state;
    device.has_rdma = false;
    assert_int_equal(case_try(&device, "efa"), -HLG_EIO);
    assert_non_null(strstr(case_error, "provider efa: FI_OPT_EFA_USE_DEVICE_RDMA: "));
    assert_non_null(strstr(case_error, "a device with RDMA write is needed"));
    device.has_rdma = true;
    device.emulates_write = true;
    assert_int_equal(case_try(&device, "efa"), -HLG_EIO);
    assert_non_null(strstr(case_error, "provider efa: FI_OPT_EFA_EMULATED_WRITE: "));
    assert_non_null(strstr(case_error, "emulated in software"));
}

/* Neither of these is an error: no GPU is there, and not every device lets its retries be set. */
static void what_a_host_may_lack_ends_nothing(void **state)
{
    struct fake_device device = p5;

    (void)state;
    device.has_cuda = false;
    device.sets_rnr = false;
    assert_int_equal(case_try(&device, "efa"), 0);
    assert_non_null(strstr(case_heard, "FI_OPT_CUDA_API_PERMITTED could not be set"));
    assert_non_null(strstr(case_heard, "FI_OPT_EFA_RNR_RETRY could not be set"));
}

static void the_environment_is_made_before_libfabric_looks(void **state)
{
    static const char *const names[] = {"FI_EFA_FORK_SAFE", "RDMAV_FORK_SAFE",
                                        "FI_EFA_ENABLE_SHM_TRANSFER"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(unsetenv(names[i]), 0);
    }
    assert_int_equal(case_try(&p5, "efa"), 0);
    assert_string_equal(fake.fork_safe[0], "1");
    assert_string_equal(fake.fork_safe[1], "1");
    assert_string_equal(fake.fork_safe[2], "0");
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(setenv(names[i], "7", 1), 0);
    }
    assert_int_equal(case_try(&p5, "efa"), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(fake.fork_safe[i], "7"); /* the user's word stands */
        assert_int_equal(unsetenv(names[i]), 0);
    }
}

/* ---- devices and queues ------------------------------------------------------------------- */

/* A node's IP address is nothing to efa; one endpoint a device, of the fabric that bounds its queues. */
static void one_endpoint_a_device_of_the_fabric_that_is_meant(void **state)
{
    const struct hlg_ofi_config config = {.provider = "efa", .node = "192.0.2.7", .rails = 2};
    struct fake_device direct = p5;
    struct ofi_case c;

    (void)state;
    case_open(&c, &p5, &config);
    assert_string_equal(fake.node, "");
    struct hlg_transport *second = NULL;
    assert_int_equal(c.fabric->open(c.fabric, 0, 1, &second), 0);
    second->ops->free(second);
    case_close(&c);
    for (size_t i = 0; i < 4; i++) {
        direct.infos[i].fabric = "efa-direct";
    }
    assert_int_equal(case_try(&direct, "efa"), -HLG_EIO);
}

static void what_is_told_of_the_endpoint_is_so(void **state)
{
    struct fake_device device = p5;
    struct ofi_case c;

    (void)state;
    device.tx_size = 100;
    case_open(&c, &device, NULL);
    assert_string_equal(c.caps.provider, "efa");
    assert_false(
        c.caps
            .placed); /* SRD acknowledges receipt: DESIGN 4.3, reference/transfer-engines.md 3.1 */
    assert_true(c.caps.pollable);
    assert_int_equal(c.caps.pieces_max, 100);
    assert_int_equal(c.caps.cq_depth, 4096);
    assert_int_equal(fake.cq_asked, 4096 + 100);
    assert_int_equal(c.caps.piece_bytes_max, 512u << 20);
    assert_int_equal(c.caps.merge_bytes_max, 256u << 10);
    assert_int_equal(fake.cq_bound, FI_TRANSMIT | FI_RECV);
    assert_int_equal(fake.registered_access & (FI_WRITE | FI_REMOTE_WRITE),
                     FI_WRITE | FI_REMOTE_WRITE);
    assert_int_equal(c.exported.address, (uint64_t)(uintptr_t)c.memory);
    assert_true(c.exported.key > 0x5000); /* the provider's choice */
    case_close(&c);
}

/* Immediates that find the queue full are lost: the window must not be wider than what the device has. */
static void the_window_of_immediates_is_as_deep_as_the_queue(void **state)
{
    static const struct {
        size_t entries;
        uint32_t depth;
    } cases[] = {{4352, 4096}, {4351, 2048}, {1024 + 256, 1024}, {1000, 512}, {320, 64}, {319, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fake_device device = p5;
        struct ofi_case c;
        device.cq_entries_max = cases[i].entries;
        if (cases[i].depth == 0) {
            assert_int_equal(case_try(&device, "efa"), -HLG_EIO);
            assert_non_null(strstr(case_error, "fi_cq_open"));
            assert_non_null(strstr(case_error, "lower pieces_max, or use another device"));
            continue;
        }
        case_open(&c, &device, NULL);
        assert_int_equal(c.caps.cq_depth, cases[i].depth);
        c.fabric->query(c.fabric, &c.caps);
        assert_int_equal(c.caps.cq_depth,
                         cases[i].depth); /* which is what the pump's windows are made of */
        case_close(&c);
    }
}

static void a_queue_without_a_descriptor_is_said_to_have_none(void **state)
{
    const struct fake_device device = older(FI_VERSION(1, 22));
    struct ofi_case c;

    (void)state;
    case_open(&c, &device, NULL);
    assert_false(c.caps.pollable);
    assert_int_equal(c.t->ops->wait_fd(c.t), -HLG_ESTATE);
    case_close(&c);
}

/* ---- writes ------------------------------------------------------------------------------- */

/* No FI_MORE: the last write of a batch would have to go without it also when it is refused. No FI_INJECT, no
 * FI_DELIVERY_COMPLETE, which efa emulates by a message of its own. */
static void each_write_is_posted_as_efa_wants_it(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &p5, NULL);
    assert_int_equal(case_write(&c, 0, 0, 5, 0x00120030), 5);
    assert_int_equal(fake.write_count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        const struct fake_write *w = &fake.writes[i];
        assert_int_equal(w->flags, FI_REMOTE_CQ_DATA | FI_COMPLETION);
        assert_int_equal(w->data, 0x00120030);
        assert_int_equal(w->address, 0x10000000 + 128 * i);
        assert_int_equal(w->key, 0x99);
        assert_int_equal(w->bytes, CASE_PAGE_BYTES);
        assert_ptr_equal(w->local, c.memory + CASE_PAGE_BYTES * i);
        assert_non_null(w->descriptor);
        for (uint32_t j = 0; j < i; j++) {
            assert_ptr_not_equal(w->context, fake.writes[j].context);
        }
    }
    for (uint32_t i = 5; i > 0; i--) { /* completions come in any order */
        fake_done(i - 1);
    }
    case_poll(&c);
    assert_int_equal(c.done, 5);
    assert_int_equal(c.failed, 0);
    case_close(&c);
}

/* The first write to a peer waits for its handshake; a peer whose receiver is not ready backs off. Others go on. */
static void a_peer_that_says_again_is_refused_alone(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &p5, NULL);
    assert_int_equal(case_write(&c, 0, 0, 1, 0), 1);
    fake.again_peer = fake.writes[0].peer;
    fake.again_count = 3;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(case_write(&c, 0, 1, 4, 0), 0);
        assert_int_equal(case_write(&c, 1, 4 * i, 4 * i + 4, 0), 4);
    }
    assert_int_equal(case_write(&c, 0, 1, 4, 0), 3);
    for (uint32_t i = 0; i < fake.write_count; i++) {
        fake_done(i);
    }
    case_poll(&c);
    assert_int_equal(c.done, 16);
    assert_int_equal(c.downs[0] + c.downs[1], 0);
    case_close(&c);
}

/* In the midst of a batch: what was posted before it stands, and was rung in. */
static void again_in_a_batch_leaves_a_prefix(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &p5, NULL);
    assert_int_equal(case_write(&c, 0, 0, 2, 0), 2);
    fake.again_peer = fake.writes[0].peer;
    fake.again_count = 1;
    assert_int_equal(case_write(&c, 0, 2, 6, 0), 0);
    assert_int_equal(case_write(&c, 0, 2, 6, 0), 4);
    for (uint32_t i = 0; i < fake.write_count; i++) {
        assert_int_equal(fake.writes[i].flags & FI_MORE, 0);
    }
    assert_int_equal(fake.write_count, 6);
    case_close(&c);
    assert_int_equal(c.failed, 6); /* nothing completed: told at close */
    assert_int_equal(c.status, -HLG_ECANCELED);
}

static void a_peer_that_says_again_for_too_long_is_down(void **state)
{
    const struct hlg_ofi_config config = {.stall_ns = 50 * HLG_NS_PER_MS};
    struct ofi_case c;

    (void)state;
    case_open(&c, &p5, &config);
    assert_int_equal(case_write(&c, 1, 0, 1, 0), 1);
    fake.again_count = UINT32_MAX;
    fake.again_peer = fake.writes[0].peer + 1; /* nobody */
    assert_int_equal(case_write(&c, 0, 0, 1, 0), 1);
    fake.again_peer = fake.writes[1].peer;
    for (uint32_t i = 0; i < 5000 && c.downs[0] == 0; i++) {
        assert_int_equal(case_write(&c, 0, 1, 2, 0), 0);
        case_wait(&c, HLG_NS_PER_MS);
        case_poll(&c);
    }
    assert_int_equal(c.downs[0], 1);
    assert_int_equal(c.downs[1], 0);
    assert_int_equal(case_write(&c, 0, 1, 2, 0), -HLG_EPEER);
    assert_int_equal(case_write(&c, 1, 1, 2, 0), 1);
    case_close(&c);
}

static void a_post_that_fails_for_good_is_the_peers_end(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &p5, NULL);
    fake.write_rc = -FI_EINVAL;
    assert_int_equal(case_write(&c, 0, 0, 3, 0), -HLG_EPEER);
    fake.write_rc = 0;
    case_poll(&c);
    assert_int_equal(c.downs[0], 1);
    assert_int_equal(case_write(&c, 1, 0, 3, 0), 3);
    case_close(&c);
}

/* efa names the write that failed, and goes on: there is no connection that could break. */
static void a_failed_write_is_its_own(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &p5, NULL);
    assert_int_equal(case_write(&c, 0, 0, 3, 0), 3);
    fake_done(0);
    fake_error(1, FI_EIO, false);
    fake_done(2);
    case_poll(&c);
    assert_int_equal(c.done, 2);
    assert_int_equal(c.failed, 1);
    assert_int_equal(c.status, -HLG_EIO);
    assert_non_null(strstr(case_heard, "provider's error 10"));
    assert_int_equal(case_write(&c, 0, 3, 4, 0), 1);
    fake_error(3, FI_EHOSTUNREACH, false);
    case_poll(&c);
    assert_int_equal(c.status, -HLG_EPEER);
    fake_error(0, FI_EIO, true); /* of nobody's: a control packet of the provider */
    case_poll(&c);
    assert_int_equal(c.downs[0] + c.downs[1], 0);
    case_close(&c);
}

static void immediates_are_told_and_bare_writes_are_not(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &p5, NULL);
    fake_arrives(hlg_imm_make(5, 6, 0));
    fake_arrives_bare();
    fake_arrives(hlg_imm_make(5, 6, 3));
    fake_arrives(hlg_imm_make(5, 7, 0));
    case_poll(&c);
    assert_int_equal(c.immediates, 3);
    assert_int_equal(c.pieces, 10);
    case_close(&c);
}

/* ---- failures ----------------------------------------------------------------------------- */

static void each_call_that_fails_is_named_and_leaves_nothing_open(void **state)
{
    static const char *const calls[] = {"fi_fabric",   "fi_domain",  "fi_cq_open", "fi_av_open",
                                        "fi_endpoint", "fi_ep_bind", "fi_enable"};

    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const struct hlg_ofi_config config = {.provider = "efa"};
        struct hlg_fabric *fabric = NULL;
        fake_reset(&p5);
        fake.fail = calls[i];
        fake.fail_rc = -FI_ENOMEM;
        case_error[0] = '\0';
        assert_int_equal(hlg_ofi_open(&config, &fabric, case_error, sizeof case_error), -HLG_EIO);
        assert_non_null(strstr(case_error, calls[i]));
        assert_int_equal(fake.open, 0);
    }
}

/* One sentence, with what to do. */
static void what_can_be_done_about_a_failure_is_said(void **state)
{
    static const struct {
        int rc;
        const char *remedy;
    } cases[] = {
        {-FI_EADDRNOTAVAIL, "give an address that this host has"},
        {-FI_EADDRINUSE, "choose another first port"},
        {-FI_ENOMEM, "raise the limit of locked memory"},
        {-FI_ENOSPC, "raise the limit of locked memory"},
        {-FI_EMFILE, "raise the limit of open files"},
        {-FI_EACCES, "/dev/infiniband"},
        {-FI_EPERM, "/dev/infiniband"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct hlg_ofi_config config = {.provider = "efa"};
        struct hlg_fabric *fabric = NULL;
        fake_reset(&p5);
        fake.fail = "fi_endpoint";
        fake.fail_rc = cases[i].rc;
        assert_int_equal(hlg_ofi_open(&config, &fabric, case_error, sizeof case_error), -HLG_EIO);
        assert_ptr_equal(strstr(case_error, "provider efa: fi_endpoint: "), case_error);
        assert_non_null(strstr(case_error, cases[i].remedy));
        assert_null(strchr(case_error, '\n'));
    }
}

static void memory_that_cannot_be_registered_is_an_error(void **state)
{
    struct ofi_case c;
    hlg_mem mem = 0;

    (void)state;
    case_open(&c, &p5, NULL);
    fake.fail = "fi_mr_reg";
    fake.fail_rc = -FI_ENOMEM;
    assert_int_equal(c.t->ops->mem_register(c.t, &HLG_MEM_HOST(c.memory, 64), &mem), -HLG_ENOMEM);
    fake.fail_rc = -FI_EINVAL;
    assert_int_equal(c.t->ops->mem_register(c.t, &HLG_MEM_HOST(c.memory, 64), &mem), -HLG_EIO);
    fake.fail = NULL;
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_libfabric_that_is_too_old_is_refused_in_words),
        cmocka_unit_test(versions_can_be_asked_for),
        cmocka_unit_test(auto_says_why_it_leaves_a_device_alone),
        cmocka_unit_test(the_behaviour_of_1_22_is_asked_for),
        cmocka_unit_test(options_are_set_before_the_endpoint_is_enabled),
        cmocka_unit_test(an_option_that_a_library_has_not_is_left_out),
        cmocka_unit_test(a_device_that_cannot_write_is_refused),
        cmocka_unit_test(what_a_host_may_lack_ends_nothing),
        cmocka_unit_test(the_environment_is_made_before_libfabric_looks),
        cmocka_unit_test(one_endpoint_a_device_of_the_fabric_that_is_meant),
        cmocka_unit_test(what_is_told_of_the_endpoint_is_so),
        cmocka_unit_test(the_window_of_immediates_is_as_deep_as_the_queue),
        cmocka_unit_test(a_queue_without_a_descriptor_is_said_to_have_none),
        cmocka_unit_test(each_write_is_posted_as_efa_wants_it),
        cmocka_unit_test(a_peer_that_says_again_is_refused_alone),
        cmocka_unit_test(again_in_a_batch_leaves_a_prefix),
        cmocka_unit_test(a_peer_that_says_again_for_too_long_is_down),
        cmocka_unit_test(a_post_that_fails_for_good_is_the_peers_end),
        cmocka_unit_test(a_failed_write_is_its_own),
        cmocka_unit_test(immediates_are_told_and_bare_writes_are_not),
        cmocka_unit_test(each_call_that_fails_is_named_and_leaves_nothing_open),
        cmocka_unit_test(what_can_be_done_about_a_failure_is_said),
        cmocka_unit_test(memory_that_cannot_be_registered_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
