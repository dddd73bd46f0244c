/* The way to the wire: libfabric, and the decorator that stages memory of GPUs where that was asked for. */
#include "perf.h"

#include <halage/transport/ofi.h>

#include <string.h>

#define SLOT_BYTES_MIN (1u << 20)
#define RING_BYTES     (64ull << 20) /* pinned at the source, but for pages that are larger */
#define SLOTS_MIN      4u            /* one peer gets a quarter */

const char *perf_way_text(const struct perf_way *way)
{
    if (way->memory == HLG_MEMORY_HOST) {
        return "host memory";
    }
    return way->staged != 0 ? "memory of GPUs staged through pinned host memory" : "memory of GPUs";
}

static void log_line(void *context, const char *sentence)
{
    (void)context;
    (void)fprintf(stderr, "halage perf: %s\n", sentence);
}

static int stage(const struct perf_case *shape, bool target, struct perf_fabric *fabric,
                 char *error)
{
    const uint32_t slot_bytes = hlg_max_u32(SLOT_BYTES_MIN, shape->page_bytes);
    const struct hlg_staged_config config = {
        .below = fabric->ofi,
        .target = target,
        .slot_bytes = slot_bytes,
        .slots =
            hlg_max_u32(SLOTS_MIN, (uint32_t)(RING_BYTES / slot_bytes)), /* floor: whole slots */
    };

    const int rc = hlg_staged_create(&config, &fabric->staged, error, PERF_ERROR_BYTES);
    if (rc == 0) {
        fabric->top = hlg_staged_fabric(fabric->staged);
    }
    return rc;
}

int perf_fabric_open(const struct perf_case *shape, const struct perf_place *place, bool target,
                     struct perf_fabric *fabric, char *error)
{
    const bool cuda = shape->way.memory == HLG_MEMORY_CUDA;
    const struct hlg_ofi_config config = {
        .provider = shape->way.provider,
        .node = place->node,
        .rails = shape->rails,
        .pieces_max = shape->window == 0 ? 0 : hlg_max_u32(256, shape->window),
        .peer_pieces_max = shape->window,
        .device_memory = cuda && shape->way.staged == 0,
        .log = strcmp(shape->way.provider, "auto") == 0 ? log_line : NULL, /* which, and why */
    };
    struct hlg_transport_caps caps;

    *fabric = (struct perf_fabric){0};
    int rc = hlg_ofi_open(&config, &fabric->ofi, error, PERF_ERROR_BYTES);
    if (rc != 0) {
        fabric->ofi = NULL;
        return rc;
    }
    fabric->top = fabric->ofi;
    fabric->ofi->query(fabric->ofi, &caps);
    if (shape->way.staged != 0) {
        rc = stage(shape, target, fabric, error);
    } else if (cuda && !caps.device_memory) {
        (void)snprintf(error, PERF_ERROR_BYTES,
                       "provider %.16s cannot reach memory of GPUs here: add --staged, which moves "
                       "pages through pinned host memory",
                       caps.provider);
        rc = -HLG_EUNSUPPORTED;
    }
    if (rc != 0) {
        perf_fabric_close(fabric);
    }
    return rc;
}

void perf_fabric_close(struct perf_fabric *fabric)
{
    hlg_staged_destroy(fabric->staged);
    if (fabric->ofi != NULL) {
        hlg_ofi_close(fabric->ofi);
    }
    *fabric = (struct perf_fabric){0};
}
