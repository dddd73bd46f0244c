/* Lists of cores, and that a thread runs where it was put: everything that is bound is read back from the kernel. */
#define _GNU_SOURCE
#include <halage/placement.h>

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define WORDS (HLG_CORES_MAX / 64)

static void lists_read_and_write(void **state)
{
    static const struct {
        const char *text;
        const char *written; /* NULL: refused */
        int count;
    } cases[] = {
        {"0", "0", 1},
        {"0-3", "0-3", 4},
        {"8,0-3", "0-3,8", 5},
        {"3,2,1", "1-3", 3},
        {"0-3,2-5,5", "0-5", 6},
        {"63,64", "63-64", 2},
        {"1023", "1023", 1},
        {"0-1023", "0-1023", 1024},
        {"007", "7", 1},
        {"", NULL, 0},
        {",", NULL, 0},
        {"0,", NULL, 0},
        {",0", NULL, 0},
        {"-1", NULL, 0},
        {"1-", NULL, 0},
        {"3-1", NULL, 0},
        {"1024", NULL, 0},
        {"0-1024", NULL, 0},
        {"99999999999999999999", NULL, 0},
        {"0 1", NULL, 0},
        {"0x1", NULL, 0},
        {"0-2-4", NULL, 0},
        {"all", NULL, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t cores[WORDS];
        uint64_t kept[WORDS];
        char text[HLG_CPULIST_BYTES];
        memset(cores, 0x5a, sizeof cores);
        memcpy(kept, cores, sizeof kept);
        const int count = hlg_cpulist_read(cases[i].text, cores);
        if (cases[i].written == NULL) {
            assert_int_equal(count, -HLG_EINVAL);
            assert_memory_equal(cores, kept, sizeof kept);
            continue;
        }
        assert_int_equal(count, cases[i].count);
        assert_int_equal(hlg_cpulist_write(cores, text, sizeof text), strlen(cases[i].written));
        assert_string_equal(text, cases[i].written);
    }
}

/* Every second core is the longest list; what does not fit is refused, not cut. */
static void a_list_that_does_not_fit_is_refused(void **state)
{
    uint64_t cores[WORDS];
    char text[8];
    (void)state;
    memset(cores, 0x55, sizeof cores);
    assert_int_equal(hlg_cpulist_write(cores, text, sizeof text), -HLG_EINVAL);
    memset(cores, 0, sizeof cores);
    cores[0] = 0x7;
    assert_int_equal(hlg_cpulist_write(cores, text, sizeof text), 3);
    assert_int_equal(hlg_cpulist_write(cores, text, 3), -HLG_EINVAL);
}

static int core_first(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET((size_t)core, &set)) {
            return core;
        }
    }
    return -1;
}

static void *read_placement(void *placement)
{
    assert_int_equal(hlg_placement_read(placement), 0);
    return NULL;
}

/* The thread, the threads that it starts, and back again. */
static void a_thread_runs_where_it_is_put(void **state)
{
    struct hlg_placement at = {.numa = -1};
    struct hlg_placement start;
    struct hlg_placement is;
    struct hlg_placement_before before;
    char error[512] = "untouched";
    pthread_t thread;
    (void)state;
    assert_int_equal(hlg_placement_read(&start), 0);
    (void)snprintf(at.cores, sizeof at.cores, "%d", core_first());
    assert_int_equal(hlg_placement_bind(&at, &before, error, sizeof error), 0);
    assert_string_equal(error, "untouched");
    assert_int_equal(hlg_placement_read(&is), 0);
    assert_string_equal(is.cores, at.cores);
    assert_int_equal(sched_getcpu(), core_first());
    assert_int_equal(pthread_create(&thread, NULL, read_placement, &is), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(is.cores, at.cores);
    hlg_placement_restore(&before);
    assert_int_equal(hlg_placement_read(&is), 0);
    assert_string_equal(is.cores, start.cores);
}

static void what_is_not_asked_for_stays(void **state)
{
    const struct hlg_placement nothing = {.numa = -1};
    struct hlg_placement start;
    struct hlg_placement is;
    struct hlg_placement_before before;
    char error[512];
    (void)state;
    assert_int_equal(hlg_placement_read(&start), 0);
    assert_int_equal(hlg_placement_bind(&nothing, &before, error, sizeof error), 0);
    hlg_placement_restore(&before);
    assert_int_equal(hlg_placement_bind(&nothing, NULL, error, sizeof error), 0);
    assert_int_equal(hlg_placement_read(&is), 0);
    assert_string_equal(is.cores, start.cores);
    assert_int_equal(is.numa, start.numa);
}

/* A kernel takes of a list what it may and is silent on the rest: that must not pass for success. */
static void cores_that_may_not_be_used_are_named(void **state)
{
    struct hlg_placement at = {.numa = -1};
    struct hlg_placement start;
    struct hlg_placement is;
    char error[512] = "";
    (void)state;
    assert_int_equal(hlg_placement_read(&start), 0);
    (void)snprintf(at.cores, sizeof at.cores, "%d,1023", core_first());
    assert_int_equal(hlg_placement_bind(&at, NULL, error, sizeof error), -HLG_EINVAL);
    assert_non_null(strstr(error, "this process may use only "));
    assert_non_null(strstr(error, at.cores));
    (void)snprintf(at.cores, sizeof at.cores, "1023");
    assert_int_equal(hlg_placement_bind(&at, NULL, error, sizeof error), -HLG_EINVAL);
    (void)snprintf(at.cores, sizeof at.cores, "0..3");
    assert_int_equal(hlg_placement_bind(&at, NULL, error, sizeof error), -HLG_EINVAL);
    assert_string_equal(error, "cores '0..3': write a list as 0-3,8 of cores below 1024");
    assert_int_equal(hlg_placement_read(&is), 0);
    assert_string_equal(is.cores, start.cores);
}

/* Memory touched while bound lies on the node; node 0 is on every machine. Where the kernel has no NUMA or the container
 * forbids the call, reading back says so, and nothing fails. */
static void memory_comes_from_the_node(void **state)
{
    const struct hlg_placement at = {.numa = 0};
    struct hlg_placement is;
    struct hlg_placement start;
    struct hlg_placement_before before;
    char error[512];
    (void)state;
    assert_int_equal(hlg_placement_read(&start), 0);
    assert_int_equal(hlg_placement_bind(&at, &before, error, sizeof error), 0);
    assert_int_equal(hlg_placement_read(&is), 0);
    if (is.numa != 0) {
        assert_int_equal(is.numa, -1);
        print_message("the kernel binds no memory here: only that was tested\n");
        return;
    }
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    page[0] = 1;
    assert_int_equal(hlg_placement_node(page), 0);
    assert_int_equal(munmap(page, 4096), 0);
    assert_int_equal(hlg_placement_node(page), -1);
    hlg_placement_restore(&before);
    assert_int_equal(hlg_placement_read(&is), 0);
    assert_int_equal(is.numa, start.numa);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_read_and_write),
        cmocka_unit_test(a_list_that_does_not_fit_is_refused),
        cmocka_unit_test(a_thread_runs_where_it_is_put),
        cmocka_unit_test(what_is_not_asked_for_stays),
        cmocka_unit_test(cores_that_may_not_be_used_are_named),
        cmocka_unit_test(memory_comes_from_the_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
