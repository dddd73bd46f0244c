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
    OPTIONS_JSON_ROW(KEY_JSON),
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
        return options_no_argument(state->name, argument);
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
    doctor_find_devices(d);
    static void (*const checks[])(struct doctor *) = {
        doctor_check_gpus,  doctor_check_nics,         doctor_check_ports,     doctor_check_gids,
        doctor_check_nodes, doctor_check_libfabric,    doctor_check_gpudirect, doctor_check_memlock,
        doctor_check_numa,  doctor_check_capabilities, doctor_check_governor,  doctor_check_iommu,
        doctor_check_acs,
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        checks[i](d);
    }
    for (uint32_t i = 0; i < d->line_count; i++) {
        doctor_make_plain(d->lines[i].found);
        doctor_make_plain(d->lines[i].fix);
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
    FILE *out = json_out_text(request->json_file);
    print_text(out, d);
    const int status = json_out_end(program, out, request->json_file, make_json(d));
    return status == CLI_DONE && count(d, DOCTOR_FAIL) > 0 ? CLI_FAILED : status;
}

/* Copy the name of a tree without its last slashes: "/" becomes "", this machine. Returns whether it is one; else a line
 * was said. */
static bool take_root(const char *program, const char *name, char *root, size_t capacity)
{
    static const char *const folders[] = {"proc", "sys"};
    struct stat status;
    size_t bytes = strlen(name);
    if (stat(name, &status) != 0 || !S_ISDIR(status.st_mode) || bytes >= capacity) {
        (void)options_error(program, "--root: %s: is not a folder", name);
        return false;
    }
    while (bytes > 0 && name[bytes - 1] == '/') {
        bytes--;
    }
    memcpy(root, name, bytes);
    root[bytes] = '\0';
    const struct doctor tree = {.root = root};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if (!doctor_exists(&tree, "/%s/.", folders[i])) {
            (void)options_error(program,
                                "--root: %s: holds no folder %s: copy a machine's /proc, /sys and "
                                "/dev below it",
                                name, folders[i]);
            return false;
        }
    }
    return true;
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
    char error[8192];
    struct request request = {0};
    if (options_parse(&options, argc, argv, 0, &request) != 0 ||
        !options_output_possible(argv[0], "--json", request.json_file) ||
        (request.root != NULL && !take_root(argv[0], request.root, root, sizeof root))) {
        return CLI_BAD_INPUT;
    }
    struct doctor *doctor = calloc(1, sizeof *doctor);
    if (doctor == NULL) {
        (void)options_error(argv[0], "out of memory");
        return CLI_FAILED;
    }
    doctor->root = root;
    int result = CLI_BAD_INPUT;
    if (doctor_ask_libfabric(doctor, error, sizeof error)) {
        examine(doctor);
        result = report(argv[0], doctor, &request);
    } else {
        (void)options_error(argv[0], "--root: %s", error);
    }
    free(doctor);
    return result;
}
