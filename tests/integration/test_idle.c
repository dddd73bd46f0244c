/*
 * What a messenger costs when it has nothing to do: two of them, connected, after some requests, must
 * together take at most 2 % of one core over some seconds, and wake only for heartbeats.
 */
#include "../support/duo.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>

#include <cmocka.h>

#define IDLE_MS      3000
#define CPU_US_MAX   (IDLE_MS * 1000 / 50) /* 2 % */
#define LOOPS_MAX    60u                   /* of one side */
#define SETTLE_TURNS 200u

static int64_t cpu_us(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * INT64_C(1000000) +
           usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static uint64_t loops(const struct duo_side *side)
{
    struct hlg_messenger_stats stats = {.size = sizeof stats};

    assert_int_equal(hlg_messenger_stats(side->messenger, &stats), 0);
    assert_int_equal(stats.requests_open, 0);
    assert_int_equal(stats.peers_up, 1);
    return stats.core_loops;
}

static void idle_messengers_cost_nothing(void **state)
{
    struct duo *duo = duo_open();
    hlg_ticket ticket = 0;

    (void)state;
    assert_int_equal(duo_submit(duo, "warm", 100, 0, 0, &ticket), 0);
    duo_wait(duo, &duo->decode, HLG_NOTICE_READY, 1);
    duo_wait(duo, &duo->prefill, HLG_NOTICE_SENT, 1);
    assert_int_equal(hlg_messenger_release(duo->decode.messenger, ticket), 0);
    for (uint32_t i = 0; i < SETTLE_TURNS; i++) {
        duo_turn(duo);
        duo_nap(duo);
    }
    uint64_t decode = loops(&duo->decode);
    uint64_t prefill = loops(&duo->prefill);
    int64_t before = cpu_us();
    (void)poll(NULL, 0, IDLE_MS);
    int64_t used = cpu_us() - before;
    decode = loops(&duo->decode) - decode;
    prefill = loops(&duo->prefill) - prefill;
    (void)fprintf(stderr, "# idle cpu_us %lld of %d ms, rounds decode %llu prefill %llu\n",
                  (long long)used, IDLE_MS, (unsigned long long)decode,
                  (unsigned long long)prefill);
    assert_true(used <= CPU_US_MAX);
    assert_true(decode <= LOOPS_MAX && prefill <= LOOPS_MAX);
    duo_close(duo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_messengers_cost_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
