/* `halage plan`: what goes where between two layouts, without a device. */
#include "cli.h"
#include "json_out.h"
#include "layout_yaml.h"
#include "options.h"

#include <halage/plan.h>
#include <halage/refusal.h>

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory for slices is doubled up to this. */
#define SLICES_MAX (1u << 20)

struct request {
    const char *source_file;
    const char *target_file;
    const char *json_file; /* NULL: none, "-": stdout */
    uint32_t tokens;       /* 0: not given */
    uint32_t offset;
};

enum key {
    KEY_SOURCE = 0x100,
    KEY_TARGET,
    KEY_TOKENS,
    KEY_REPLICA,
    KEY_JSON,
};

static const struct argp_option option_table[] = {
    {"source", KEY_SOURCE, "FILE", 0, "Layout of the node that prefills", 0},
    {"target", KEY_TARGET, "FILE", 0, "Layout of the node that decodes", 0},
    {"tokens", KEY_TOKENS, "N", 0,
     "Tokens of the prompt; the last is not sent, the decoder computes it", 0},
    {"replica", KEY_REPLICA, "OFFSET", 0, "Replica offset of the request (default 0)", 0},
    {"json", KEY_JSON, "FILE", 0, "Write the plan as JSON; - is stdout, text then to stderr", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct request *request = state->input;
    switch (key) {
    case KEY_SOURCE:
        request->source_file = argument;
        return 0;
    case KEY_TARGET:
        request->target_file = argument;
        return 0;
    case KEY_TOKENS:
        if (!options_u32(argument, &request->tokens) || request->tokens == 0 ||
            request->tokens > HLG_TOKENS_MAX) {
            return options_error(state->name, "--tokens: '%s': write a whole number, 1 to %u",
                                 argument, HLG_TOKENS_MAX);
        }
        return 0;
    case KEY_REPLICA:
        if (!options_u32(argument, &request->offset)) {
            return options_error(state->name, "--replica: '%s': write a whole number from 0 on",
                                 argument);
        }
        return 0;
    case KEY_JSON:
        request->json_file = argument;
        return 0;
    case ARGP_KEY_ARG:
        return options_no_argument(state->name, argument);
    case ARGP_KEY_END:
        if (request->source_file == NULL || request->target_file == NULL || request->tokens == 0) {
            return options_error(state->name, "--source, --target and --tokens must all be given");
        }
        return 0;
    default: /* the many other keys of argp */
        return ARGP_ERR_UNKNOWN;
    }
}

/* Read both files. Returns an enum cli_exit. */
static int read_layouts(const char *program, const struct request *request,
                        struct hlg_layout *source, struct hlg_layout *target)
{
    char error[YAML_FILE_ERROR_BYTES];
    int result = layout_yaml_read(request->source_file, source, error, sizeof error);
    if (result == 0) {
        result = layout_yaml_read(request->target_file, target, error, sizeof error);
    }
    if (result == 0) {
        return CLI_DONE;
    }
    (void)options_error(program, "%s", error);
    return result == -HLG_EPLAN ? CLI_INFEASIBLE : CLI_BAD_INPUT;
}

/* Build the plan in memory of its own, plan->slices, which the caller frees. */
static int build_plan(const char *program, struct hlg_plan *plan, const struct hlg_layout *source,
                      const struct hlg_layout *target)
{
    struct hlg_refusal why = {.code = HLG_REFUSAL_SLICES};
    for (uint32_t slices_max = 4096; slices_max <= SLICES_MAX && why.code == HLG_REFUSAL_SLICES;
         slices_max *= 2) {
        struct hlg_slice *slices = calloc(slices_max, sizeof *slices);
        if (slices == NULL) {
            (void)options_error(program, "no memory for %" PRIu32 " slices", slices_max);
            return CLI_FAILED;
        }
        if (hlg_plan_build(plan, slices, slices_max, source, target, &why) == 0) {
            return CLI_DONE;
        }
        free(slices);
    }
    char sentence[HLG_REFUSAL_TEXT_BYTES];
    (void)hlg_refusal_text(&why, sentence, sizeof sentence);
    (void)options_error(program, "%s", sentence);
    return CLI_INFEASIBLE;
}

/* Pages of each group: of the tokens that are sent, and the context if any are. */
static void count_pages(const struct hlg_plan *plan, uint32_t tokens,
                        uint32_t pages[HLG_GROUPS_MAX])
{
    for (uint32_t group = 0; group < plan->source.group_count; group++) {
        pages[group] = tokens == 1 ? 0 : hlg_layout_pages(&plan->source, group, tokens - 1);
    }
}

static const char *kind_name(const struct hlg_plan *plan, uint32_t group)
{
    return plan->source.groups[group].kind == HLG_GROUP_PAGED ? "paged" : "context";
}

static void print_side(FILE *out, const char *name, const struct hlg_layout *layout)
{
    (void)fprintf(out, "%s: tp %u, stages %u, pools %u, hosts ranks %u to %u\n", name, layout->tp,
                  layout->stages, layout->pools, layout->rank_begin, layout->rank_limit - 1);
}

/* First and last layer that a slice moves; a slice moves at least one. */
static void find_layers(const struct hlg_plan *plan, const struct hlg_slice *slice, uint32_t *first,
                        uint32_t *last, uint32_t *count)
{
    *count = 0;
    for (uint32_t layer = 0; layer <= plan->source.layers; layer++) {
        if (hlg_plan_moves_layer(plan, slice, layer)) {
            *first = *count == 0 ? layer : *first;
            *last = layer;
            (*count)++;
        }
    }
}

static void print_slices(FILE *out, const struct hlg_plan *plan, uint32_t offset)
{
    (void)fputs("slices, each for every one of its layers:\n", out);
    for (uint32_t i = 0; i < plan->slice_count; i++) {
        const struct hlg_slice *slice = &plan->slices[i];
        uint32_t first = 0;
        uint32_t last = 0;
        uint32_t count = 0;
        if (!hlg_plan_uses(plan, slice, offset)) {
            continue;
        }
        find_layers(plan, slice, &first, &last, &count);
        (void)fprintf(out, "  rank %u -> %u, group %u, ", slice->source_rank, slice->target_rank,
                      slice->group);
        if (plan->source.groups[slice->group].kind == HLG_GROUP_CONTEXT) {
            (void)fputs("context: ", out);
        } else {
            (void)fprintf(out, "plane %u, %u layers of %u to %u: ", slice->plane, count, first,
                          last);
        }
        (void)fprintf(out, "%u x %u bytes, offset %u -> %u", slice->count, slice->bytes,
                      slice->source_offset, slice->target_offset);
        if (slice->count > 1) {
            (void)fprintf(out, ", stride %u -> %u", slice->source_stride, slice->target_stride);
        }
        (void)fputc('\n', out);
    }
}

static void print_text(FILE *out, const struct hlg_plan *plan, const struct request *request,
                       const uint32_t *pages)
{
    struct hlg_limits limits;
    print_side(out, "source", &plan->source);
    print_side(out, "target", &plan->target);
    (void)fprintf(out, "tokens: %u, of which %u are sent\n", request->tokens, request->tokens - 1);
    (void)fprintf(out, "replica offset: %u of %u\n", request->offset, plan->offset_count);
    for (uint32_t group = 0; group < plan->source.group_count; group++) {
        (void)fprintf(out, "group %u: %s, %u pages of %u bytes (source), %u of %u (target)\n",
                      group, kind_name(plan, group), pages[group],
                      hlg_layout_page_bytes(&plan->source, group), pages[group],
                      hlg_layout_page_bytes(&plan->target, group));
    }
    (void)fputs("expected pieces:\n", out);
    for (uint32_t rank = 0; rank < hlg_layout_ranks(&plan->target); rank++) {
        (void)fprintf(out, "  target rank %u: %" PRIu64 ", context %" PRIu64 "\n", rank,
                      hlg_plan_pieces(plan, request->offset, rank, pages, HLG_GROUP_PAGED),
                      hlg_plan_pieces(plan, request->offset, rank, pages, HLG_GROUP_CONTEXT));
    }
    print_slices(out, plan, request->offset);
    hlg_limits_default(&limits);
    if (plan->slice_count > limits.slices_max) {
        (void)fprintf(out, "nodes need slices_max %u for this, the default is %u\n",
                      plan->slice_count, limits.slices_max);
    }
}

static json_t *make_groups(const struct hlg_plan *plan, const uint32_t *pages)
{
    json_t *groups = json_array();
    for (uint32_t group = 0; group < plan->source.group_count; group++) {
        const json_int_t count = pages[group];
        (void)json_array_append_new(
            groups, json_pack("{s:i, s:s, s:{s:I, s:I}, s:{s:I, s:I}}", "group", (int)group, "kind",
                              kind_name(plan, group), "source", "pages", count, "page_bytes",
                              (json_int_t)hlg_layout_page_bytes(&plan->source, group), "target",
                              "pages", count, "page_bytes",
                              (json_int_t)hlg_layout_page_bytes(&plan->target, group)));
    }
    return groups;
}

/* Only absurd layouts count so far; the text shows the number whole. */
static json_int_t json_count(uint64_t count)
{
    return count > INT64_MAX ? INT64_MAX : (json_int_t)count;
}

static json_t *make_expected(const struct hlg_plan *plan, uint32_t offset, const uint32_t *pages)
{
    json_t *expected = json_array();
    for (uint32_t rank = 0; rank < hlg_layout_ranks(&plan->target); rank++) {
        const uint64_t paged = hlg_plan_pieces(plan, offset, rank, pages, HLG_GROUP_PAGED);
        const uint64_t context = hlg_plan_pieces(plan, offset, rank, pages, HLG_GROUP_CONTEXT);
        (void)json_array_append_new(expected, json_pack("{s:i, s:I, s:I}", "target_rank", (int)rank,
                                                        "pieces", json_count(paged),
                                                        "context_pieces", json_count(context)));
    }
    return expected;
}

static json_t *make_slices(const struct hlg_plan *plan, uint32_t offset)
{
    json_t *slices = json_array();
    for (uint32_t i = 0; i < plan->slice_count; i++) {
        const struct hlg_slice *slice = &plan->slices[i];
        for (uint32_t layer = 0; layer <= plan->source.layers && hlg_plan_uses(plan, slice, offset);
             layer++) {
            if (hlg_plan_moves_layer(plan, slice, layer)) {
                (void)json_array_append_new(
                    slices, json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I}",
                                      "source_rank", (int)slice->source_rank, "target_rank",
                                      (int)slice->target_rank, "group", (int)slice->group, "layer",
                                      (int)layer, "plane", (int)slice->plane, "source_offset",
                                      (json_int_t)slice->source_offset, "target_offset",
                                      (json_int_t)slice->target_offset, "bytes",
                                      (json_int_t)slice->bytes, "count", (json_int_t)slice->count,
                                      "source_stride", (json_int_t)slice->source_stride,
                                      "target_stride", (json_int_t)slice->target_stride));
            }
        }
    }
    return slices;
}

/* A failed allocation within makes json_pack() fail in turn, by the NULL that it is handed. */
static json_t *make_json(const struct hlg_plan *plan, const struct request *request,
                         const uint32_t *pages)
{
    return json_pack(
        "{s:I, s:I, s:i, s:i, s:o, s:o, s:o}", "tokens", (json_int_t)request->tokens, "tokens_sent",
        (json_int_t)request->tokens - 1, "replica_offset", (int)request->offset, "replica_offsets",
        (int)plan->offset_count, "groups", make_groups(plan, pages), "expected",
        make_expected(plan, request->offset, pages), "slices", make_slices(plan, request->offset));
}

/* The plan holds whatever the pools' sizes; whether they hold the request is worth a word. */
static void note_room(FILE *out, const struct hlg_layout *layout, const char *side,
                      const uint32_t *pages)
{
    for (uint32_t group = 0; group < layout->group_count; group++) {
        if (pages[group] > layout->groups[group].page_count) {
            (void)fprintf(out,
                          "note: group %" PRIu32 " of the %s has page_count %" PRIu32
                          ", too few for this request's %" PRIu32 " pages\n",
                          group, side, layout->groups[group].page_count, pages[group]);
        }
    }
}

static int show(const char *program, const struct hlg_plan *plan, const struct request *request)
{
    uint32_t pages[HLG_GROUPS_MAX] = {0};
    if (request->offset >= plan->offset_count) {
        (void)options_error(program, "--replica: %" PRIu32 ": this pair has offsets 0 to %" PRIu32,
                            request->offset, plan->offset_count - 1);
        return CLI_BAD_INPUT;
    }
    count_pages(plan, request->tokens, pages);
    FILE *out = json_out_text(request->json_file);
    print_text(out, plan, request, pages);
    note_room(out, &plan->source, "source", pages);
    note_room(out, &plan->target, "target", pages);
    return json_out_end(program, out, request->json_file,
                        request->json_file != NULL ? make_json(plan, request, pages) : NULL);
}

int cli_plan(int argc, char **argv)
{
    const struct argp options = {
        .options = option_table,
        .parser = parse,
        .doc = "Print which bytes go where between a prefill and a decode node, and the pieces "
               "that each target rank counts.\vLayout files are described in docs/layouts.md.",
    };
    struct request request = {0};
    struct hlg_layout source;
    struct hlg_layout target;
    struct hlg_plan plan;
    if (options_parse(&options, argc, argv, 0, &request) != 0) {
        return CLI_BAD_INPUT;
    }
    if (options_same_file(argv[0], "--json", request.json_file, request.source_file) ||
        options_same_file(argv[0], "--json", request.json_file, request.target_file)) {
        return CLI_BAD_INPUT;
    }
    int status = read_layouts(argv[0], &request, &source, &target);
    if (status == CLI_DONE) {
        status = build_plan(argv[0], &plan, &source, &target);
    }
    if (status == CLI_DONE) {
        status = show(argv[0], &plan, &request);
        free(plan.slices);
    }
    return status;
}
