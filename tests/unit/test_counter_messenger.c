/*
 * A GPU's layer counter all the way to the decoder's memory, over the double of libcuda: the engine's
 * stream runs one graph again and again, each of its ticks waits for the test's gate, and the messenger's
 * poller watches the word. With gate `l` open, layer `l` must arrive and nothing of a later one (I4), in
 * the forward that the stamp before the launch named; with all open at once, everything must.
 */
#include <halage/places.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include <cmocka.h>

#include "../support/cuda_engine.h"
#include "../support/duo.h"

#define TOKENS     21u /* 20 are prefilled: 5 pages */
#define PAGES      5u
#define FORWARDS   4u
#define QUIET      10u /* looks for what must not come */
#define PLACES_MAX 64u

static struct cuda_engine engine;

static void launch(uint32_t forward)
{
    cuda_engine_launch(&engine, forward);
}

/* Bytes of a layer's pages that are the source's, and how many there are. Targets begin as zeros, of which
 * the source's pattern has few. */
static uint64_t arrived(const struct duo *duo, uint32_t layer, uint32_t target, uint32_t source,
                        uint64_t *all)
{
    struct hlg_place places[PLACES_MAX];
    struct hlg_layout layout;
    uint64_t same = 0;

    duo_layout(&layout);
    const int count = hlg_places_linear(&layout, 0, places, PLACES_MAX, NULL);
    *all = 0;
    for (int p = 0; p < count; p++) {
        const uint64_t bytes = PAGES * places[p].stride;
        const uint8_t *to = duo->decode.memory + places[p].offset + target * places[p].stride;
        const uint8_t *from = duo->prefill.memory + places[p].offset + source * places[p].stride;
        for (uint64_t i = 0; places[p].group == 0 && places[p].layer == layer && i < bytes; i++) {
            same += to[i] != 0 && to[i] == from[i];
            *all += from[i] != 0;
        }
    }
    return same;
}

static void expect_layers(struct duo *duo, uint32_t done, uint32_t target, uint32_t source)
{
    uint64_t all = 0;

    for (uint32_t i = 0;
         i < DUO_TURNS_MAX && done > 0 && arrived(duo, done - 1, target, source, &all) < all; i++) {
        if (duo_turn(duo) == 0) {
            duo_nap(duo);
        }
    }
    for (uint32_t i = 0; i < QUIET; i++) {
        (void)duo_turn(duo);
        duo_nap(duo);
        for (uint32_t layer = 0; layer < DUO_LAYERS; layer++) {
            const uint64_t same = arrived(duo, layer, target, source, &all);
            if (same != (layer < done ? all : 0)) {
                fail_msg("with %u layers done %llu of %llu bytes of layer %u are there", done,
                         (unsigned long long)same, (unsigned long long)all, layer);
            }
        }
    }
}

/* One request in one forward. */
static void transfer(struct duo *duo, uint32_t turn, bool at_once)
{
    const uint32_t target = 100 + turn * PAGES;
    const uint32_t source = turn * PAGES;
    hlg_ticket ticket = 0;

    assert_int_equal(duo_submit(duo, "counted", TOKENS, target, turn, &ticket), 0);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_REQUESTED, turn + 1);
    assert_int_equal(duo->forward, turn + 1);
    if (at_once) {
        atomic_store(engine.gate, DUO_LAYERS + 1);
    }
    for (uint32_t done = 0; !at_once && done <= DUO_LAYERS; done++) {
        atomic_store(engine.gate, done);
        expect_layers(duo, done, target, source);
        assert_int_equal(duo_count(&duo->decode, HLG_NOTICE_READY), turn);
    }
    atomic_store(engine.gate, DUO_LAYERS + 1); /* the context */
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, turn + 1);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_SENT, turn + 1);
    duo_expect(duo, target, source, PAGES);
    assert_int_equal(hlg_messenger_release(duo->decode.messenger, ticket), 0);
}

static void run(uint32_t way)
{
    cuda_engine_open(&engine, way, 0, DUO_LAYERS + 1);
    if (way == HLG_COUNTER_KERNEL) {
        cuda_engine_capture(&engine);
    }
    struct duo *duo = duo_open_watching(hlg_counter_word(engine.counter), launch);
    for (uint32_t turn = 0; turn < FORWARDS; turn++) {
        transfer(duo, turn, turn == FORWARDS - 1);
    }
    duo_close(duo);
    cuda_engine_close(&engine);
}

static void replays_of_one_graph_send_layer_by_layer(void **state)
{
    (void)state;
    run(HLG_COUNTER_KERNEL);
}

static void writes_of_the_stream_send_layer_by_layer(void **state)
{
    (void)state;
    run(HLG_COUNTER_WRITE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_of_one_graph_send_layer_by_layer),
        cmocka_unit_test(writes_of_the_stream_send_layer_by_layer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
