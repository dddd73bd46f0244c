/*
 * docs/deployment.md says what a unit of each limit costs. Each row of its table is compared with the sizes
 * that the machines ask for, within a twentieth, and so are its totals and the size of a decode node's page.
 */
#include <halage/decode.h>
#include <halage/prefill.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAGES 65536u

static struct hlg_layout make_layout(uint32_t pages)
{
    return (struct hlg_layout){.tp = 8,
                               .stages = 1,
                               .pools = 1,
                               .layers = 61,
                               .stage_limit = {61},
                               .rank_limit = 8,
                               .all_reduce = 1,
                               .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
                               .group_count = 1,
                               .groups = {{.kind = HLG_GROUP_PAGED,
                                           .planes = 2,
                                           .heads = 8,
                                           .head_bytes = 256,
                                           .page_tokens = 16,
                                           .page_count = pages,
                                           .layers = {(UINT64_C(1) << 61) - 1}}}};
}

static double prefill_bytes(const struct hlg_limits *limits)
{
    const struct hlg_prefill_config config = {
        .limits = *limits, .layout = make_layout(PAGES), .rails = 2, .node = 1, .incarnation = 1};
    const size_t bytes = hlg_prefill_size(&config);
    assert_true(bytes > 0);
    return (double)bytes;
}

static double decode_bytes(const struct hlg_limits *limits, uint32_t pages)
{
    const struct hlg_decode_config config = {
        .limits = *limits, .layout = make_layout(pages), .rails = 2, .node = 1, .incarnation = 1};
    const size_t bytes = hlg_decode_size(&config);
    assert_true(bytes > 0);
    return (double)bytes;
}

static uint32_t *limit_of(struct hlg_limits *limits, const char *name)
{
    const struct {
        const char *name;
        uint32_t *limit;
    } table[] = {
        {"peers_max", &limits->peers_max},       {"slices_max", &limits->slices_max},
        {"requests_max", &limits->requests_max}, {"blocks_max", &limits->blocks_max},
        {"chunks_max", &limits->chunks_max},     {"ops_max", &limits->ops_max},
        {"forwards_max", &limits->forwards_max},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(table[i].name, name) == 0) {
            return table[i].limit;
        }
    }
    return NULL;
}

static void expect_near(const char *what, double told, double found)
{
    const double off = told > found ? told - found : found - told;
    if (off > 0.05 * found) {
        fail_msg("docs/deployment.md: %s: says %.0f, is %.0f", what, told, found);
    }
}

static FILE *open_page(void)
{
    char path[4096];
    const char *sources = getenv("HALAGE_SOURCE_DIR");
    assert_non_null(sources);
    (void)snprintf(path, sizeof path, "%s/docs/deployment.md", sources);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    return file;
}

static void a_unit_of_each_limit_costs_what_is_said(void **state)
{
    char line[512];
    char name[32];
    unsigned rows = 0;
    unsigned preset;
    double prefill;
    double decode;
    FILE *file = open_page();

    (void)state;
    while (fgets(line, sizeof line, file) != NULL) {
        struct hlg_limits limits;
        hlg_limits_default(&limits);
        if (sscanf(line, "| `%31[a-z_]` | %u | %lf | %lf |", name, &preset, &prefill, &decode) !=
            4) {
            continue;
        }
        struct hlg_limits more = limits;
        uint32_t *limit = limit_of(&more, name);
        assert_non_null(limit);
        assert_int_equal(preset, *limit);
        const uint32_t extra = *limit;
        *limit += extra;
        expect_near(name, prefill, (prefill_bytes(&more) - prefill_bytes(&limits)) / extra);
        expect_near(name, decode,
                    (decode_bytes(&more, PAGES) - decode_bytes(&limits, PAGES)) / extra);
        rows++;
    }
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rows, 7);
}

static void totals_are_what_is_said(void **state)
{
    char line[512];
    unsigned found = 0;
    double page;
    double prefill;
    double decode;
    struct hlg_limits limits;
    FILE *file = open_page();

    (void)state;
    hlg_limits_default(&limits);
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "- **Owner map**: %lf bytes", &page) == 1) {
            expect_near("owner map", page,
                        (decode_bytes(&limits, 2 * PAGES) - decode_bytes(&limits, PAGES)) / PAGES);
            found++;
        }
        const char *told = strstr(line, "some ten peers: ");
        if (told != NULL && sscanf(told, "some ten peers: %lf MB for a prefill machine, %lf MB",
                                   &prefill, &decode) == 2) {
            expect_near("prefill machine", prefill * 1e6, prefill_bytes(&limits));
            expect_near("decode machine", decode * 1e6, decode_bytes(&limits, PAGES));
            found++;
        }
    }
    assert_int_equal(fclose(file), 0);
    assert_int_equal(found, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_of_each_limit_costs_what_is_said),
        cmocka_unit_test(totals_are_what_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
