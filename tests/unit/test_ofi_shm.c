/*
 * What the libfabric backend does on shm alone, over a double (tests/support/fake_ofi.h): its peers take one small write
 * at a time, so that a refused write waits for a completion on the spot, and so does a poll that found something. The
 * provider itself runs in conformance-shm.
 */
#define _GNU_SOURCE
#include "ofi_case.h"

#include <rdma/fi_errno.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define PATIENCE 64u /* reads, of its row in transports/ofi/provider.c */

/* Source: fi_getinfo of libfabric 1.17. It has no descriptor to sleep on; here it has, to show that nobody sleeps on
 * what a write has found. */
static const struct fake_device shm = {
    .infos = {{"shm", "shm", "shm"}},
    .version = FI_VERSION(1, 17),
    .mr_mode = FI_MR_VIRT_ADDR,
    .mr_key_size = 8,
    .cq_data_size = 8,
    .tx_size = 1024,
    .max_msg_size = SIZE_MAX,
    .inject_size = 4096,
    .addr_format = FI_FORMAT_UNSPEC,
    .address_bytes = 32,
    .cq_entries_max = 1u << 20,
    .cq_descriptor = true,
};

static int set_up(void **state)
{
    static struct ofi_case c;

    case_open(&c, &shm, NULL);
    assert_int_equal(case_write(&c, 0, 0, 1, 0), 1);
    fake.again_count = 1;
    fake.cq_reads = 0;
    *state = &c;
    return 0;
}

/* What a write finds while it waits on the spot is told by the next poll, and until then nobody sleeps. */
static void what_a_write_finds_is_kept_for_the_next_poll(void **state)
{
    struct ofi_case *c = *state;

    fake_arrives(0x10);
    fake_done(0);
    assert_int_equal(case_write(c, 0, 1, 2, 0), 1);
    assert_int_equal(fake.queue_count, 0);
    assert_int_equal(c->t->ops->wait_fd(c->t), -HLG_ESTATE);
    case_poll(c);
    assert_int_equal(c->done, 1);
    assert_int_equal(c->immediates, 1);
    assert_true(c->t->ops->wait_fd(c->t) >= 0);
    case_close(c);
    assert_int_equal(c->failed, 1);
}

/* Also when the endpoint is closed in between. */
static void what_a_write_finds_is_told_after_close(void **state)
{
    struct ofi_case *c = *state;

    fake_done(0);
    assert_int_equal(case_write(c, 0, 1, 2, 0), 1);
    case_close(c);
    assert_int_equal(c->done, 1);
    assert_int_equal(c->failed, 1);
    assert_int_equal(c->status, -HLG_ECANCELED);
}

static void a_write_that_fails_makes_room_too(void **state)
{
    struct ofi_case *c = *state;

    fake_error(0, FI_EIO, false);
    assert_int_equal(case_write(c, 0, 1, 2, 0), 1);
    case_poll(c);
    assert_int_equal(c->failed, 1);
    assert_int_equal(c->status, -HLG_EIO);
    fake_done(1);
    case_close(c);
    assert_int_equal(c->done, 1);
}

/* Nothing comes: the peer is refused, and others are served. With nothing under way there is nothing to wait for. */
static void the_wait_is_short(void **state)
{
    struct ofi_case *c = *state;

    assert_int_equal(case_write(c, 0, 1, 2, 0), 0);
    assert_int_equal(fake.cq_reads, PATIENCE);
    fake.cq_reads = 0;
    fake.again_count = 1;
    assert_int_equal(case_write(c, 1, 0, 1, 0), 0);
    assert_int_equal(fake.cq_reads, 0);
    case_close(c);
}

/* Immediates that nobody polls fill the room for them: then nothing more is looked for. */
static void what_is_found_has_room(void **state)
{
    struct ofi_case *c = *state;
    uint32_t arrived = 0;

    for (uint32_t round = 0; round < 8; round++) {
        for (uint32_t i = 0; i < 16; i++) {
            fake_arrives(hlg_imm_make(arrived++, 0, 0)); /* each of another request */
        }
        fake.again_count = 1;
        assert_int_equal(case_write(c, 0, 1, 2, 0), 0);
    }
    case_poll(c);
    assert_int_equal(c->immediates, arrived);
    case_close(c);
}

static void a_poll_that_found_something_looks_again(void **state)
{
    struct hlg_transport_event events[8];
    struct ofi_case *c = *state;

    fake.again_count = 0;
    assert_int_equal(c->t->ops->poll(c->t, events, 8), 0);
    assert_int_equal(fake.cq_reads, 1);
    fake_arrives(0x10);
    assert_int_equal(c->t->ops->poll(c->t, events, 8), 1);
    assert_int_equal(fake.cq_reads, 1 + 1 + PATIENCE + 1);
    case_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_a_write_finds_is_kept_for_the_next_poll, set_up),
        cmocka_unit_test_setup(what_a_write_finds_is_told_after_close, set_up),
        cmocka_unit_test_setup(a_write_that_fails_makes_room_too, set_up),
        cmocka_unit_test_setup(the_wait_is_short, set_up),
        cmocka_unit_test_setup(what_is_found_has_room, set_up),
        cmocka_unit_test_setup(a_poll_that_found_something_looks_again, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
