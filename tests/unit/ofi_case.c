#define _GNU_SOURCE
#include "ofi_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

char case_error[512];
char case_heard[2048];

static void hear(void *context, const char *sentence)
{
    const size_t used = strlen(case_heard);

    (void)context;
    (void)snprintf(case_heard + used, sizeof case_heard - used, "%s\n", sentence);
}

static void forget(void)
{
    case_error[0] = '\0';
    case_heard[0] = '\0';
}

int case_try(const struct fake_device *device, const char *provider)
{
    const struct hlg_ofi_config config = {.provider = provider, .log = hear};
    struct hlg_fabric *fabric = NULL;

    forget();
    fake_reset(device);
    const int rc = hlg_ofi_open(&config, &fabric, case_error, sizeof case_error);
    if (rc == 0) {
        hlg_ofi_close(fabric);
    }
    assert_int_equal(fake.open, 0);
    assert_true(rc == 0 || strlen(case_error) > 10);
    return rc;
}

void case_open(struct ofi_case *c, const struct fake_device *device,
               const struct hlg_ofi_config *given)
{
    struct hlg_ofi_config config = {0};

    memset(c, 0, sizeof *c);
    forget();
    fake_reset(device);
    if (given != NULL) {
        config = *given;
    }
    config.provider = config.provider != NULL ? config.provider : device->infos[0].provider;
    config.log = hear;
    assert_int_equal(hlg_ofi_open(&config, &c->fabric, case_error, sizeof case_error), 0);
    assert_int_equal(fake.open, 0); /* the trial is over */
    fake.option_count = 0;
    fake.call_count = 0;
    assert_int_equal(c->fabric->open(c->fabric, 0, 0, &c->t), 0);
    c->t->ops->query(c->t, &c->caps);
    assert_int_equal(
        c->t->ops->mem_register(c->t, &HLG_MEM_HOST(c->memory, sizeof c->memory), &c->mem), 0);
    assert_int_equal(c->t->ops->mem_export(c->t, c->mem, &c->exported), 0);
    for (uint32_t i = 0; i < 2; i++) {
        uint8_t address[HLG_ADDRESS_BYTES_MAX];
        const int bytes = c->t->ops->address(c->t, address, sizeof address);
        assert_int_equal(bytes, (int)device->address_bytes);
        const int peer = c->t->ops->peer_open(c->t, address, (uint32_t)bytes);
        assert_true(peer >= 0);
        c->peers[i] = (uint32_t)peer;
    }
    for (uint32_t i = 0; i < CASE_PAGES; i++) {
        c->identity[i] = i;
    }
}

void case_close(struct ofi_case *c)
{
    assert_int_equal(c->t->ops->close(c->t), 0);
    case_poll(c);
    c->t->ops->free(c->t);
    hlg_ofi_close(c->fabric);
    assert_int_equal(fake.open, 0);
}

int64_t case_write(struct ofi_case *c, uint32_t peer, uint32_t begin, uint32_t limit, uint32_t imm)
{
    const struct hlg_paged_write write = {
        .op = 7,
        .peer = c->peers[peer],
        .mem = c->mem,
        .imm = imm,
        .local = c->memory,
        .local_stride = CASE_PAGE_BYTES,
        .remote = 0x10000000,
        .remote_key = 0x99,
        .remote_stride = 128,
        .source_pages = c->identity,
        .target_pages = c->identity,
        .bytes = CASE_PAGE_BYTES,
        .count = 1,
        .piece_begin = begin,
        .piece_limit = limit,
    };

    return c->t->ops->write(c->t, &write);
}

void case_poll(struct ofi_case *c)
{
    struct hlg_transport_event events[8];
    int count = 0;

    do {
        count = c->t->ops->poll(c->t, events, 8);
        assert_true(count >= 0);
        for (int i = 0; i < count; i++) {
            const struct hlg_transport_event *event = &events[i];
            if (event->kind == HLG_TRANSPORT_DONE_WRITE) {
                assert_int_equal(event->done.op, 7);
                c->done += event->done.done;
                c->failed += event->done.failed;
                c->status = event->done.status != 0 ? event->done.status : c->status;
            } else if (event->kind == HLG_TRANSPORT_IMM) {
                c->immediates += event->imm.immediates;
                c->pieces += event->imm.pieces;
            } else {
                assert_int_equal(event->kind, HLG_TRANSPORT_PEER_DOWN);
                c->downs[event->peer == c->peers[1] ? 1 : 0]++;
            }
        }
    } while (count > 0);
}

void case_wait(const struct ofi_case *c, hlg_time span)
{
    const hlg_time begin = c->t->ops->now(c->t);

    while (c->t->ops->now(c->t) - begin < span) {
    }
}
