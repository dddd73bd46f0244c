/* `halage topo`: which NICs and cores are near which GPU, and why. */
#include "cli.h"
#include "json_out.h"
#include "options.h"

#include "../node/machine.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define ERROR_BYTES 2048u
#define TEXT_BYTES  4096u

struct request {
    const char *xml;
    const char *gpu;       /* NULL: all */
    const char *nics;      /* NULL: all */
    const char *json_file; /* NULL: none, "-": stdout */
    bool all;              /* whatever the environment says */
};

enum key {
    KEY_XML = 0x100,
    KEY_GPU,
    KEY_NICS,
    KEY_ALL,
    KEY_JSON,
};

static const struct argp_option option_table[] = {
    {"xml", KEY_XML, "FILE", 0, "Another machine, as lstopo wrote it down", 0},
    {"gpu", KEY_GPU, "GPU", 0, "Only this one: its index, bus id or UUID", 0},
    {"nics", KEY_NICS, "LIST", 0,
     "Use only these NICs: names or bus ids with commas between (default: all)", 0},
    {"all", KEY_ALL, NULL, 0,
     "Show all GPUs, whatever CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES say", 0},
    OPTIONS_JSON_ROW(KEY_JSON),
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct request *request = state->input;
    switch (key) {
    case KEY_XML:
        request->xml = argument;
        return 0;
    case KEY_GPU:
        request->gpu = argument;
        return 0;
    case KEY_NICS:
        request->nics = argument;
        return 0;
    case KEY_ALL:
        request->all = true;
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

/* Names of the NICs `begin` to `limit` of a GPU, with blanks between. */
static void list_nics(const struct hlg_topology *t, const struct hlg_topology_gpu *gpu,
                      uint32_t begin, uint32_t limit, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = begin; i < limit && used < bytes; i++) {
        const int more = snprintf(text + used, bytes - used, "%s%s", i == begin ? "" : " ",
                                  t->nics[gpu->nics[i].nic].name);
        used += more > 0 ? (size_t)more : 0;
    }
}

/* Why these NICs, in words. */
static void tell_why(const struct hlg_topology *t, const struct hlg_topology_gpu *gpu, char *text,
                     size_t bytes)
{
    char others[TEXT_BYTES];
    if (gpu->nic_count == 0) {
        (void)snprintf(text, bytes, "%s",
                       t->nic_count == 0 ? "no NIC: this machine has no RDMA NIC"
                                         : "no NIC: none of the machine's can be used");
        return;
    }
    const char *link = hlg_link_name(gpu->nics[0].link);
    const uint32_t sharers = t->nics[gpu->nics[0].nic].gpu_count;
    list_nics(t, gpu, gpu->share_count, gpu->near_count, others, sizeof others);
    if (sharers > 1) {
        (void)snprintf(text, bytes, "%s; %u GPUs share %s%s%s", link, sharers,
                       gpu->share_count == 1 ? "it" : "them",
                       others[0] != '\0' ? "; as near: " : "", others);
    } else if (others[0] != '\0') {
        (void)snprintf(text, bytes, "%s; as near, but for other GPUs: %s", link, others);
    } else {
        (void)snprintf(text, bytes, "%s", link);
    }
}

static void print_numa(FILE *out, int32_t numa)
{
    if (numa < 0) {
        (void)fprintf(out, "  %4s", "-");
    } else {
        (void)fprintf(out, "  %4" PRId32, numa);
    }
}

static void print_gpu(FILE *out, const struct hlg_topology *t, const struct hlg_topology_gpu *gpu,
                      int width)
{
    char bus[HLG_TOPOLOGY_BUS_BYTES];
    char nics[TEXT_BYTES];
    char why[2 * TEXT_BYTES];
    hlg_bus_id_write(&gpu->bus, bus);
    list_nics(t, gpu, 0, gpu->share_count, nics, sizeof nics);
    tell_why(t, gpu, why, sizeof why);
    (void)fprintf(out, "%3" PRIu32 "  %-12s", gpu->index, bus);
    print_numa(out, gpu->numa);
    (void)fprintf(out, "  %-*s  %s\n", width, nics[0] != '\0' ? nics : "none", gpu->cores);
    (void)fprintf(out, "     %s; own cores: %s\n", why, gpu->slice);
}

/* Why a NIC is in nobody's share. */
static const char *tell_spare(const struct hlg_topology *t, const struct hlg_topology_nic *nic)
{
    if (!nic->usable) {
        return ": left out";
    }
    if (nic->down) {
        return ": its ports are down";
    }
    if (t->machine_gpu_count == 0) {
        return "";
    }
    return nic->virtual_function ? ": no GPU's, its physical function is, or others are nearer"
                                 : ": no GPU's, others are nearer";
}

static void print_spare(FILE *out, const struct hlg_topology *t)
{
    for (uint32_t i = 0; i < t->nic_count; i++) {
        const struct hlg_topology_nic *nic = &t->nics[i];
        char numa[24] = "";
        if (nic->gpu_count > 0) {
            continue;
        }
        if (nic->numa >= 0) {
            (void)snprintf(numa, sizeof numa, ", NUMA node %" PRId32, nic->numa);
        }
        (void)fprintf(out, "NIC %s%s%s\n", nic->name, numa, tell_spare(t, nic));
    }
}

static void print_text(FILE *out, const struct hlg_topology *t, uint32_t begin, uint32_t limit)
{
    int width = 4;
    char nics[TEXT_BYTES];
    if (t->machine[0] != '\0') {
        (void)fprintf(out, "machine: %s\n", t->machine);
    }
    for (uint32_t i = begin; i < limit; i++) {
        list_nics(t, &t->gpus[i], 0, t->gpus[i].share_count, nics, sizeof nics);
        width = (int)strlen(nics) > width ? (int)strlen(nics) : width;
    }
    if (begin < limit) {
        (void)fprintf(out, "GPU  %-12s  NUMA  %-*s  cores\n", "bus id", width, "NICs");
    }
    for (uint32_t i = begin; i < limit; i++) {
        print_gpu(out, t, &t->gpus[i], width);
    }
    print_spare(out, t);
    for (uint32_t i = 0; i < t->note_count; i++) {
        (void)fprintf(out, "note: %s\n", t->notes[i]);
    }
}

static json_t *json_numa(int32_t numa)
{
    return numa < 0 ? json_null() : json_integer(numa);
}

static json_t *json_names(const struct hlg_topology *t, const struct hlg_topology_gpu *gpu,
                          uint32_t limit)
{
    json_t *names = json_array();
    for (uint32_t i = 0; i < limit; i++) {
        (void)json_array_append_new(names, json_string(t->nics[gpu->nics[i].nic].name));
    }
    return names;
}

/* The NICs beyond the nearest, nearest first, each with its link. */
static json_t *json_farther(const struct hlg_topology *t, const struct hlg_topology_gpu *gpu)
{
    json_t *farther = json_array();
    for (uint32_t i = gpu->near_count; i < gpu->nic_count; i++) {
        const struct hlg_topology_near *near = &gpu->nics[i];
        (void)json_array_append_new(farther,
                                    json_pack("{s:s, s:s}", "name", t->nics[near->nic].name, "link",
                                              hlg_link_name(near->link)));
    }
    return farther;
}

static json_t *json_gpu(const struct hlg_topology *t, const struct hlg_topology_gpu *gpu)
{
    char bus[HLG_TOPOLOGY_BUS_BYTES];
    char why[2 * TEXT_BYTES];
    hlg_bus_id_write(&gpu->bus, bus);
    tell_why(t, gpu, why, sizeof why);
    return json_pack("{s:i, s:s, s:o, s:o, s:s, s:o, s:s, s:i, s:o, s:o, s:s, s:s}", "index",
                     (int)gpu->index, "busid", bus, "numa", json_numa(gpu->numa), "nics",
                     json_names(t, gpu, gpu->near_count), "cores", gpu->cores, "link",
                     gpu->nic_count > 0 ? json_string(hlg_link_name(gpu->nics[0].link))
                                        : json_null(),
                     "why", why, "machine_index", (int)gpu->machine_index, "own_nics",
                     json_names(t, gpu, gpu->share_count), "farther_nics", json_farther(t, gpu),
                     "own_cores", gpu->slice, "uuid", gpu->uuid);
}

static json_t *json_nic(const struct hlg_topology_nic *nic)
{
    char bus[HLG_TOPOLOGY_BUS_BYTES];
    char id[16];
    hlg_bus_id_write(&nic->bus, bus);
    (void)snprintf(id, sizeof id, "%04x:%04x", nic->vendor, nic->device);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:b, s:i}", "name", nic->name,
                     "busid", nic->on_bus ? json_string(bus) : json_null(), "pci_id",
                     nic->on_bus ? json_string(id) : json_null(), "numa", json_numa(nic->numa),
                     "domain", nic->domain[0] != '\0' ? json_string(nic->domain) : json_null(),
                     "driver", nic->driver, "down", nic->down, "virtual", nic->virtual_function,
                     "usable", nic->usable, "gpus", (int)nic->gpu_count);
}

/* A failed allocation within makes json_pack() fail in turn, by the NULL that it is handed. */
static json_t *make_json(const struct hlg_topology *t, uint32_t begin, uint32_t limit)
{
    json_t *gpus = json_array();
    json_t *nics = json_array();
    json_t *notes = json_array();
    for (uint32_t i = begin; i < limit; i++) {
        (void)json_array_append_new(gpus, json_gpu(t, &t->gpus[i]));
    }
    for (uint32_t i = 0; i < t->nic_count; i++) {
        (void)json_array_append_new(nics, json_nic(&t->nics[i]));
    }
    for (uint32_t i = 0; i < t->note_count; i++) {
        (void)json_array_append_new(notes, json_string(t->notes[i]));
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "machine", t->machine, "gpus", gpus, "nics", nics,
                     "notes", notes);
}

static int show(const char *program, const struct hlg_topology *t, const struct request *request)
{
    char error[ERROR_BYTES];
    uint32_t begin = 0;
    uint32_t limit = t->gpu_count;
    if (request->gpu != NULL) {
        const int gpu = hlg_topology_gpu_find(t, request->gpu, error, sizeof error);
        if (gpu < 0) {
            (void)options_error(program, "--gpu: %s", error);
            return CLI_BAD_INPUT;
        }
        begin = (uint32_t)gpu;
        limit = begin + 1;
    }
    FILE *out = json_out_text(request->json_file);
    print_text(out, t, begin, limit);
    return json_out_end(program, out, request->json_file, make_json(t, begin, limit));
}

int cli_topo(int argc, char **argv)
{
    const struct argp options = {
        .options = option_table,
        .parser = parse,
        .doc = "Print for each GPU the NICs and cores nearest to it, and why.\vGPUs are numbered "
               "as CUDA numbers them for programs that are started here.",
    };
    char error[ERROR_BYTES];
    struct request request = {0};
    struct hlg_topology *topology = NULL;
    if (options_parse(&options, argc, argv, 0, &request) != 0) {
        return CLI_BAD_INPUT;
    }
    if (options_same_file(argv[0], "--json", request.json_file, request.xml) ||
        !options_output_possible(argv[0], "--json", request.json_file)) {
        return CLI_BAD_INPUT;
    }
    const struct machine_request look = {
        .xml = request.xml, .nics = request.nics, .provider = "auto", .all = request.all};
    const int status = machine_look(&look, &topology, error, sizeof error);
    if (status != 0) {
        (void)options_error(argv[0], "%s", error);
        return status == -HLG_EINVAL ? CLI_BAD_INPUT : CLI_FAILED;
    }
    const int result = show(argv[0], topology, &request);
    hlg_topology_free(topology);
    return result;
}
