/*
 * What the libfabric backend does on verbs;ofi_rxm (ConnectX, soft-RoCE): the rules of its row in
 * transports/ofi/provider.c, over a double (tests/support/fake_ofi.h). The provider itself runs in the soft-RoCE leg.
 * Beside it, by the same double, what the native TCP provider gets that verbs does not.
 */
#define _GNU_SOURCE
#include "ofi_case.h"

#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RXE_MESSAGE_BYTES (8u << 20)

/*
 * soft-RoCE, with an IPv4 and an IPv6 address of the one device. Source: fi_getinfo of libfabric 1.17 on rdma_rxe
 * (Linux 6.1): mr_mode LOCAL, VIRT_ADDR, ALLOCATED, PROV_KEY; cq_data_size and mr_key_size 4; 8 MiB messages; 2048
 * writes; 192 bytes injected; queues of at most 32767. fi_verbs(7): FI_WAIT_FD.
 */
static const struct fake_device rxe = {
    .infos = {{"verbs;ofi_rxm", "192.0.2.0/24", "rxe0"},
              {"verbs;ofi_rxm", "2001:db8::/64", "rxe0"}},
    .version = FI_VERSION(1, 17),
    .mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
    .mr_key_size = 4,
    .cq_data_size = 4,
    .tx_size = 2048,
    .max_msg_size = RXE_MESSAGE_BYTES,
    .inject_size = 192,
    .addr_format = FI_SOCKADDR_IN,
    .address_bytes = sizeof(struct sockaddr_in),
    .cq_entries_max = 32767,
    .cq_descriptor = true,
};

/* The native provider over TCP of 2.x: no registration modes, keys of 8 bytes that we choose. Measured on 1.17. */
static const struct fake_device tcp = {
    .infos = {{"tcp", "127.0.0.0/8", "lo"}},
    .version = FI_VERSION(2, 6),
    .mr_key_size = 8,
    .cq_data_size = 8,
    .tx_size = 256,
    .max_msg_size = SIZE_MAX,
    .inject_size = 128,
    .addr_format = FI_SOCKADDR_IN,
    .address_bytes = sizeof(struct sockaddr_in),
    .cq_entries_max = 1u << 20,
    .cq_descriptor = true,
};

static uint8_t host_byte;

static void it_is_known_for_what_it_is(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &rxe, NULL);
    assert_string_equal(c.caps.provider, "verbs;ofi_rxm");
    assert_false(c.caps.placed); /* fi_verbs(7): FI_TRANSMIT_COMPLETE at most */
    assert_true(c.caps.pollable && c.caps.reachable == false);
    assert_int_equal(c.caps.pieces_max, 256);
    assert_int_equal(c.caps.piece_bytes_max, RXE_MESSAGE_BYTES);
    assert_int_equal(c.exported.address, (uint64_t)(uintptr_t)c.memory);
    assert_true(c.exported.key > 0x5000);
    assert_int_equal(fake.option_count, 0); /* it knows none of efa's */
    c.fabric->query(c.fabric, &c.caps);
    assert_true(c.caps.reachable);
    case_close(&c);
}

/* A ConnectX port takes 1 GiB; longer than 512 MiB nothing is sent at once. */
static void pieces_are_as_long_as_device_and_row_allow(void **state)
{
    struct fake_device connectx = rxe;
    struct ofi_case c;

    (void)state;
    connectx.max_msg_size = 1u << 30;
    case_open(&c, &connectx, NULL);
    assert_int_equal(c.caps.piece_bytes_max, 512u << 20);
    case_close(&c);
}

/* Its immediates are the 32 bits of the verb; fewer would not do, and all registration modes are needed. */
static void what_cannot_carry_the_contract_is_not_taken(void **state)
{
    struct fake_device device = rxe;

    (void)state;
    assert_int_equal(case_try(&device, "verbs;ofi_rxm"), 0);
    device.cq_data_size = 2;
    assert_int_equal(case_try(&device, "verbs;ofi_rxm"), -HLG_EIO);
    device.cq_data_size = 0;
    assert_int_equal(case_try(&device, "verbs;ofi_rxm"), -HLG_EIO);
    device = rxe;
    device.mr_mode |= FI_MR_RMA_EVENT; /* of those that are not offered */
    assert_int_equal(case_try(&device, "verbs;ofi_rxm"), -HLG_EIO);
    assert_non_null(strstr(case_error, "provider verbs;ofi_rxm cannot be used here"));
}

static void a_device_with_two_addresses_is_one_rail(void **state)
{
    const struct hlg_ofi_config config = {.provider = "verbs;ofi_rxm", .node = "192.0.2.1"};
    struct ofi_case c;

    (void)state;
    case_open(&c, &rxe, &config);
    assert_string_equal(fake.node, "192.0.2.1"); /* rdma_cm binds by IP */
    case_close(&c);
}

/* Up to 2.6 it follows freed memory when an immediate is unread at close (measured over soft-RoCE): nothing can
 * come any more, nothing is left, and then it is closed. Elsewhere the endpoint goes first. */
static void nothing_is_unread_when_it_is_closed(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &rxe, NULL);
    assert_int_equal(fake.mrs, 1);
    assert_int_equal(case_write(&c, 0, 0, 1, 0), 1);
    fake_arrives(0x10);
    fake_error(0, FI_EIO, true);
    fake_arrives(0x20);
    case_close(&c);
    assert_int_equal(fake.ep_close_mrs, 0);
    assert_int_equal(fake.ep_close_unread, 0);

    case_open(&c, &tcp, NULL);
    fake_arrives(0x10);
    case_close(&c);
    assert_int_equal(fake.ep_close_mrs, 1);
    assert_int_equal(fake.ep_close_unread, 1);
}

/* Of any libfabric that we build with, and before tcp where auto chooses. */
static void auto_takes_it_before_tcp(void **state)
{
    (void)state;
    assert_int_equal(case_try(&rxe, "auto"), 0);
    assert_non_null(
        strstr(case_heard, "provider verbs;ofi_rxm, chosen by auto: an RDMA device is present"));
}

/* rxm's own queue has a place for each write of each expected peer: 256 peers are more than rxe's queues have, and
 * fewer than there are let it overrun. */
static void rxm_makes_room_for_the_peers_that_will_come(void **state)
{
    const struct hlg_ofi_config config = {.provider = "verbs;ofi_rxm", .peers_max = 100};
    struct ofi_case c;

    (void)state;
    assert_int_equal(unsetenv("FI_UNIVERSE_SIZE"), 0);
    assert_int_equal(case_try(&rxe, "verbs;ofi_rxm"), 0);
    assert_string_equal(fake.universe, "64");
    assert_int_equal(unsetenv("FI_UNIVERSE_SIZE"), 0);
    case_open(&c, &rxe, &config);
    assert_string_equal(fake.universe, "100");
    case_close(&c);
    assert_int_equal(setenv("FI_UNIVERSE_SIZE", "16", 1), 0);
    assert_int_equal(case_try(&rxe, "verbs;ofi_rxm"), 0);
    assert_string_equal(fake.universe, "16");
}

static void each_write_has_an_immediate_and_no_delivery_complete(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &rxe, NULL);
    assert_int_equal(case_write(&c, 0, 0, 3, 0x00120030), 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(fake.writes[i].flags, FI_REMOTE_CQ_DATA | FI_COMPLETION);
        assert_int_equal(fake.writes[i].data, 0x00120030);
        assert_non_null(fake.writes[i].descriptor); /* FI_MR_LOCAL */
        fake_done(i);
    }
    case_poll(&c);
    assert_int_equal(c.done, 3);
    case_close(&c);
}

/* fi_writemsg ignores the flags of the endpoint: each call must have it. */
static void tcp_gets_delivery_complete_with_each_write(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &tcp, NULL);
    assert_true(c.caps.placed);
    assert_int_equal(case_write(&c, 0, 0, 3, 0x30), 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(fake.writes[i].flags,
                         FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_DELIVERY_COMPLETE);
    }
    assert_int_equal(c.exported.address, 0); /* offsets, and a key of ours */
    assert_string_equal(fake.node, "127.0.0.1");
    case_close(&c);
}

/* A remote access error comes without the context of its write (ofiwg/libfabric issue 5738): which write it was is
 * not known, but its connection is over. Whoever has writes under way is lost, once, and the write is told at close. */
static void an_error_that_names_no_write_ends_who_has_one(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &rxe, NULL);
    assert_int_equal(case_write(&c, 0, 0, 3, 0), 3);
    fake_done(0);
    fake_error(1, FI_EIO, true);
    fake_error(2, FI_ECANCELED, false); /* flushed, by its name */
    fake_error(1, FI_EIO, true);
    case_poll(&c);
    assert_int_equal(c.done, 1);
    assert_int_equal(c.failed, 1);
    assert_int_equal(c.status, -HLG_EPEER);
    assert_int_equal(c.downs[0], 1);
    assert_int_equal(c.downs[1], 0); /* nothing was under way to it */
    assert_int_equal(case_write(&c, 0, 3, 4, 0), -HLG_EPEER);
    assert_int_equal(case_write(&c, 1, 0, 1, 0), 1);
    fake_done(3);
    case_close(&c);
    assert_int_equal(c.done, 2);
    assert_int_equal(c.failed, 2);
    assert_int_equal(c.status, -HLG_ECANCELED);
}

/* With nothing under way such an error is nobody's. */
static void an_error_of_nobody_ends_nothing(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &rxe, NULL);
    assert_int_equal(case_write(&c, 0, 0, 1, 0), 1);
    fake_done(0);
    fake_error(0, FI_EIO, true);
    case_poll(&c);
    assert_int_equal(c.done, 1);
    assert_int_equal(c.downs[0] + c.downs[1], 0);
    assert_non_null(strstr(case_heard, "an error that belongs to no write"));
    case_close(&c);
}

/* rxm connects at the first write and says again until then. */
static void the_first_write_waits_for_its_connection(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &rxe, NULL);
    fake.again_count = 2;
    assert_int_equal(case_write(&c, 0, 0, 4, 0), 0);
    assert_int_equal(case_write(&c, 0, 0, 4, 0), 0);
    assert_int_equal(case_write(&c, 0, 0, 4, 0), 4);
    assert_int_equal(c.downs[0], 0);
    case_close(&c);
}

/* Waiting on the spot is for shm (test_ofi_shm.c) and a little for TCP: here a read more is a call of the system for
 * nothing, and might find the peer lost. */
static void a_refused_write_does_not_look_at_the_queue(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &rxe, NULL);
    assert_int_equal(case_write(&c, 0, 0, 1, 0), 1);
    fake_done(0);
    fake.cq_reads = 0;
    fake.again_count = 1;
    assert_int_equal(case_write(&c, 0, 1, 2, 0), 0);
    assert_int_equal(fake.cq_reads, 0);
    case_poll(&c);
    assert_int_equal(fake.cq_reads, 2); /* of which the second poll found nothing */
    assert_int_equal(c.done, 1);
    case_close(&c);
}

static void a_refused_write_over_tcp_looks_twice(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &tcp, NULL);
    assert_int_equal(case_write(&c, 0, 0, 1, 0), 1);
    fake.cq_reads = 0;
    fake.again_count = 1;
    assert_int_equal(case_write(&c, 0, 1, 2, 0), 0);
    assert_int_equal(fake.cq_reads, 2);
    fake_done(0);
    fake.again_count = 1;
    assert_int_equal(case_write(&c, 0, 1, 2, 0), 1);
    assert_int_equal(fake.cq_reads, 3);
    case_poll(&c);
    assert_int_equal(c.done, 1); /* what the write found */
    fake_done(1);
    case_poll(&c);
    case_close(&c);
}

static void a_sleeper_asks_first_whether_it_may(void **state)
{
    struct ofi_case c;

    (void)state;
    case_open(&c, &rxe, NULL);
    fake.trywait_rc = -FI_EAGAIN; /* something is there already */
    assert_int_equal(c.t->ops->wait_fd(c.t), -HLG_ESTATE);
    fake.trywait_rc = 0;
    assert_true(c.t->ops->wait_fd(c.t) >= 0);
    c.t->ops->wake(c.t);
    assert_int_equal(c.t->ops->wait_fd(c.t), -HLG_ESTATE);
    case_close(&c);
}

/* 4096 immediates and 256 writes fit; a device with less gets a smaller window. */
static void a_small_queue_makes_a_small_window(void **state)
{
    struct fake_device device = rxe;
    struct ofi_case c;

    (void)state;
    device.cq_entries_max = 3000;
    case_open(&c, &device, NULL);
    assert_int_equal(c.caps.cq_depth, 2048);
    assert_true(c.caps.pollable);
    case_close(&c);
}

/* Windows are granted by the depth that the first endpoint had: one that cannot have it is not opened (I8). */
static void a_later_queue_is_no_smaller_than_the_first(void **state)
{
    struct hlg_transport *later = NULL;
    struct hlg_transport_caps caps;
    struct ofi_case c;

    (void)state;
    case_open(&c, &rxe, NULL);
    assert_int_equal(c.caps.cq_depth, 4096);
    fake.device.cq_entries_max = 3000;
    assert_int_equal(c.fabric->open(c.fabric, 0, 0, &later), -HLG_EIO);
    assert_non_null(strstr(case_heard, "fi_cq_open"));
    assert_non_null(strstr(case_heard, "lower cq_depth"));
    fake.device = rxe;
    assert_int_equal(c.fabric->open(c.fabric, 0, 0, &later), 0);
    later->ops->query(later, &caps);
    assert_int_equal(caps.cq_depth, 4096);
    assert_int_equal(later->ops->close(later), 0);
    later->ops->free(later);
    case_close(&c);
}

/* Memory of a GPU is registered as such, with its device, where the config asks for it and the provider has it. */
static void gpu_memory_is_registered_by_interface_and_device(void **state)
{
    const struct hlg_ofi_config config = {.provider = "verbs;ofi_rxm", .device_memory = true};
    struct hlg_mem_region gpu = {.bytes = 4096, .kind = HLG_MEMORY_CUDA, .device = 5};
    struct fake_device device = rxe;
    struct ofi_case c;
    hlg_mem mem = 0;

    (void)state;
    device.has_hmem = true;
    case_open(&c, &device, &config);
    assert_true(c.caps.device_memory);
    assert_int_equal(fake.registered_iface, FI_HMEM_SYSTEM);
    gpu.base = c.memory;
    gpu.dmabuf_fd = -1;
    assert_int_equal(c.t->ops->mem_register(c.t, &gpu, &mem), 0);
    assert_int_equal(fake.registered_iface, FI_HMEM_CUDA);
    assert_int_equal(fake.registered_device, 5);
    assert_int_equal(fake.registered_flags, 0);
    assert_int_equal(fake.registered_access, FI_WRITE | FI_REMOTE_WRITE);
    fake.fail = "fi_mr_reg";
    fake.fail_rc = -FI_EFAULT;
    assert_int_equal(c.t->ops->mem_register(c.t, &gpu, &mem), -HLG_EIO);
    assert_true(strstr(case_heard, "nvidia-peermem") != NULL);
    fake.fail = NULL;
    case_close(&c);
}

static void a_provider_without_it_says_what_to_do(void **state)
{
    const struct hlg_ofi_config config = {.provider = "verbs;ofi_rxm", .device_memory = true};
    const struct hlg_mem_region gpu = {
        .base = &host_byte, .bytes = 1, .kind = HLG_MEMORY_CUDA, .dmabuf_fd = -1};
    struct ofi_case c;
    hlg_mem mem = 0;

    (void)state;
    case_open(&c, &rxe, &config);
    assert_false(c.caps.device_memory);
    assert_int_equal(c.t->ops->mem_register(c.t, &gpu, &mem), -HLG_EUNSUPPORTED);
    assert_true(strstr(case_heard, "stage it through host memory") != NULL);
    case_close(&c);
}

/* ---- Sentinels ----------------------------------------------------------------------------- */

/* An endpoint of its own reads from itself: of the GPU's first bytes, which peers may not read, to the host. */
static void a_sentinel_reads_its_own_gpu_back(void **state)
{
    struct fake_device device = rxe;
    struct hlg_sentinel *s = NULL;
    struct ofi_case c;
    const struct hlg_ofi_config config = {.device_memory = true};
    const struct hlg_mem_region gpu = {.base = c.memory,
                                       .bytes = sizeof c.memory,
                                       .kind = HLG_MEMORY_CUDA,
                                       .device = 3,
                                       .dmabuf_fd = -1};

    (void)state;
    device.has_hmem = true;
    case_open(&c, &device, &config);
    assert_int_equal(fake.registered_accesses, FI_WRITE | FI_REMOTE_WRITE);
    fake.registered_accesses = 0;
    const uint32_t before = fake.open;
    assert_int_equal(c.fabric->sentinel_open(c.fabric, 0, 0, &gpu, &s), 0);
    assert_int_equal(fake.registered_accesses, FI_READ | FI_REMOTE_READ);
    assert_int_equal(fake.registered_device, 3);
    fake.again_count = 2; /* while it connects to itself */
    assert_int_equal(s->ops->read(s), 0);
    assert_int_equal(s->ops->read(s), 0);
    assert_int_equal(fake.read_count, 0);
    assert_int_equal(s->ops->read(s), 1);
    assert_int_equal(fake.read_count, 1);
    assert_ptr_equal((void *)(uintptr_t)fake.read.address, c.memory);
    assert_true(fake.read.key > 0x5000 && fake.read.key != c.exported.key);
    assert_int_equal(fake.read.bytes, 8);
    assert_non_null(fake.read.descriptor);
    assert_true((uint8_t *)fake.read.local < c.memory ||
                (uint8_t *)fake.read.local >= c.memory + sizeof c.memory);
    assert_int_equal(fake.write_count, 0);
    assert_int_equal(s->ops->poll(s), 0);
    fake_arrives(9); /* what is not its own is not its read */
    assert_int_equal(s->ops->poll(s), 0);
    fake_read_ends(0);
    assert_int_equal(s->ops->poll(s), 1);
    s->ops->free(s);
    assert_int_equal(fake.open, before);
    case_close(&c);
}

static void a_sentinel_that_fails_says_so(void **state)
{
    struct hlg_sentinel *s = NULL;
    struct ofi_case c;

    (void)state;
    case_open(&c, &rxe, NULL);
    const struct hlg_mem_region gpu = {
        .base = c.memory, .bytes = sizeof c.memory, .kind = HLG_MEMORY_CUDA, .dmabuf_fd = -1};
    const struct hlg_mem_region host = HLG_MEM_HOST(c.memory, sizeof c.memory);
    const uint32_t before = fake.open;
    assert_int_equal(c.fabric->sentinel_open(c.fabric, 0, 0, &gpu, &s), -HLG_EUNSUPPORTED);
    assert_int_equal(fake.open, before);
    fake.fail = "fi_mr_reg";
    fake.fail_rc = -FI_ENOMEM;
    assert_int_equal(c.fabric->sentinel_open(c.fabric, 0, 0, &host, &s), -HLG_ENOMEM);
    assert_int_equal(fake.open, before);
    fake.fail = NULL;
    assert_int_equal(c.fabric->sentinel_open(c.fabric, 0, 0, &host, &s), 0);
    fake.write_rc = -FI_EOPNOTSUPP;
    assert_int_equal(s->ops->read(s), -HLG_EIO);
    assert_non_null(strstr(case_heard, "a read of our own memory is refused"));
    fake.write_rc = 0;
    assert_int_equal(s->ops->read(s), 1);
    fake_read_ends(FI_EIO);
    assert_int_equal(s->ops->poll(s), -HLG_EIO);
    assert_non_null(strstr(case_heard, "a read of our own memory failed"));
    s->ops->free(s);
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            rxm_makes_room_for_the_peers_that_will_come), /* first: it looks at the environment */
        cmocka_unit_test(it_is_known_for_what_it_is),
        cmocka_unit_test(pieces_are_as_long_as_device_and_row_allow),
        cmocka_unit_test(what_cannot_carry_the_contract_is_not_taken),
        cmocka_unit_test(a_device_with_two_addresses_is_one_rail),
        cmocka_unit_test(nothing_is_unread_when_it_is_closed),
        cmocka_unit_test(auto_takes_it_before_tcp),
        cmocka_unit_test(each_write_has_an_immediate_and_no_delivery_complete),
        cmocka_unit_test(tcp_gets_delivery_complete_with_each_write),
        cmocka_unit_test(an_error_that_names_no_write_ends_who_has_one),
        cmocka_unit_test(an_error_of_nobody_ends_nothing),
        cmocka_unit_test(the_first_write_waits_for_its_connection),
        cmocka_unit_test(a_refused_write_does_not_look_at_the_queue),
        cmocka_unit_test(a_refused_write_over_tcp_looks_twice),
        cmocka_unit_test(a_sleeper_asks_first_whether_it_may),
        cmocka_unit_test(a_small_queue_makes_a_small_window),
        cmocka_unit_test(a_later_queue_is_no_smaller_than_the_first),
        cmocka_unit_test(gpu_memory_is_registered_by_interface_and_device),
        cmocka_unit_test(a_provider_without_it_says_what_to_do),
        cmocka_unit_test(a_sentinel_reads_its_own_gpu_back),
        cmocka_unit_test(a_sentinel_that_fails_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
