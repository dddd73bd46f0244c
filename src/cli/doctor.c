/* `halage doctor`: whether this machine is set up for RDMA to and from GPUs, a line a check, with the fix. */
#include "doctor.h"

#include "cli.h"
#include "json_out.h"
#include "options.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct request {
    const char *root;
    const char *json_file; /* NULL: none, "-": stdout */
};

enum key {
    KEY_ROOT = 0x100,
    KEY_JSON,
};

static const struct argp_option option_table[] = {
    {"root", KEY_ROOT, "DIR", 0,
     "Look at the files of another machine, copied below DIR (proc, sys, dev; libfabric.txt)", 0},
    {"json", KEY_JSON, "FILE", OPTION_ARG_OPTIONAL,
     "Write it as JSON; - or nothing is stdout, the lines then go to stderr", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct request *request = state->input;
    switch (key) {
    case KEY_ROOT:
        request->root = argument;
        return 0;
    case KEY_JSON:
        request->json_file = options_optional(argument, state);
        return 0;
    case ARGP_KEY_ARG:
        return options_error(state->name,
                             "unknown argument '%s'; there are only options, see --help", argument);
    default: /* the many other keys of argp */
        return ARGP_ERR_UNKNOWN;
    }
}

static const char *state_name(enum doctor_state state)
{
    switch (state) {
    case DOCTOR_OK:
        return "ok";
    case DOCTOR_WARN:
        return "warn";
    case DOCTOR_FAIL:
        return "fail";
    }
    hlg_unreachable();
}

static void examine(struct doctor *d)
{
    static void (*const checks[])(struct doctor *) = {
        doctor_check_gpus,  doctor_check_nics,         doctor_check_ports,     doctor_check_gids,
        doctor_check_nodes, doctor_check_libfabric,    doctor_check_gpudirect, doctor_check_memlock,
        doctor_check_numa,  doctor_check_capabilities, doctor_check_governor,  doctor_check_iommu,
    };
    doctor_find_devices(d);
    doctor_ask_libfabric(d);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        checks[i](d);
    }
}

static uint32_t count(const struct doctor *d, enum doctor_state state)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < d->line_count; i++) {
        found += d->lines[i].state == state;
    }
    return found;
}

static void print_text(FILE *out, const struct doctor *d)
{
    for (uint32_t i = 0; i < d->line_count; i++) {
        const struct doctor_line *line = &d->lines[i];
        (void)fprintf(out, "%-4s  %-12s  %s\n", state_name(line->state), line->name, line->found);
        if (line->fix[0] != '\0') {
            (void)fprintf(out, "%20sfix: %s\n", "", line->fix);
        }
    }
    (void)fprintf(out, "%u ok, %u warn, %u fail\n", count(d, DOCTOR_OK), count(d, DOCTOR_WARN),
                  count(d, DOCTOR_FAIL));
}

/* A failed allocation within makes json_pack() fail in turn, by the NULL that it is handed. */
static json_t *make_json(const struct doctor *d)
{
    json_t *checks = json_array();
    for (uint32_t i = 0; i < d->line_count; i++) {
        const struct doctor_line *line = &d->lines[i];
        (void)json_array_append_new(
            checks, json_pack("{s:s, s:s, s:s, s:o}", "name", line->name, "state",
                              state_name(line->state), "found", line->found, "fix",
                              line->fix[0] != '\0' ? json_string(line->fix) : json_null()));
    }
    return json_pack("{s:o, s:i, s:i, s:i}", "checks", checks, "ok", (int)count(d, DOCTOR_OK),
                     "warn", (int)count(d, DOCTOR_WARN), "fail", (int)count(d, DOCTOR_FAIL));
}

static int report(const char *program, const struct doctor *d, const struct request *request)
{
    const bool on_stdout = request->json_file != NULL && strcmp(request->json_file, "-") == 0;
    FILE *out = on_stdout ? stderr : stdout;
    print_text(out, d);
    if (fflush(out) != 0 || ferror(out)) {
        (void)options_error(program, "the lines cannot be printed");
        return CLI_FAILED;
    }
    int status = CLI_DONE;
    if (request->json_file != NULL) {
        status = json_out_write(program, request->json_file, make_json(d));
    }
    return status == CLI_DONE && count(d, DOCTOR_FAIL) > 0 ? CLI_FAILED : status;
}

int cli_doctor(int argc, char **argv)
{
    const struct argp options = {
        .options = option_table,
        .parser = parse,
        .doc =
            "Say whether this machine is set up to move KV pages by RDMA between GPUs, one line a "
            "check, ok, warn or fail, and what to do.\vExits with 1 if a line says fail.",
    };
    static char root[4096];
    struct request request = {0};
    struct stat status;
    if (options_parse(&options, argc, argv, 0, &request) != 0 ||
        !options_output_possible(argv[0], "--json", request.json_file)) {
        return CLI_BAD_INPUT;
    }
    if (request.root != NULL) {
        size_t bytes = strlen(request.root);
        if (stat(request.root, &status) != 0 || !S_ISDIR(status.st_mode) || bytes >= sizeof root) {
            (void)options_error(argv[0], "--root: %s: is not a folder", request.root);
            return CLI_BAD_INPUT;
        }
        while (bytes > 0 && request.root[bytes - 1] == '/') {
            bytes--;
        }
        memcpy(root, request.root, bytes); /* "/" becomes "": this machine */
    }
    struct doctor *doctor = calloc(1, sizeof *doctor);
    if (doctor == NULL) {
        (void)options_error(argv[0], "out of memory");
        return CLI_FAILED;
    }
    doctor->root = root;
    examine(doctor);
    const int result = report(argv[0], doctor, &request);
    free(doctor);
    return result;
}
