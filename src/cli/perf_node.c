/* What the two messengers of `halage perf layer` have alike. */
#include "perf.h"

#include "cli.h"

#include <poll.h>

#define SLICE_MS 100

int perf_node_open(struct perf_node *node, enum hlg_role role, const struct perf_case *shape,
                   const struct perf_place *place, bool insecure,
                   struct hlg_messenger_config *config, char *error)
{
    const bool target = role == HLG_ROLE_DECODE;

    *node = (struct perf_node){.messenger = NULL};
    int rc = perf_arena_open(shape, target, place->device, &node->arena, error);
    rc = rc == 0 ? perf_fabric_open(shape, place, target, &node->fabric, error) : rc;
    if (rc != 0) {
        return rc;
    }
    hlg_messenger_config_default(config);
    config->role = role;
    config->fabric = node->fabric.top;
    config->allow_unauthenticated = insecure;
    config->watchdog_ns = PERF_STUCK_S * HLG_NS_PER_S;
    config->watchdog_exit = CLI_FAILED;
    config->limits.message_bytes_max = PERF_FRAME_BYTES;
    config->limits.prompt_bytes_max = 64;
    perf_arena_layout(&node->arena, &config->layout);
    return 0;
}

int perf_node_start(struct perf_node *node, const struct hlg_messenger_config *config,
                    const HLG_ATOMIC_U32 *word, char *error)
{
    const struct hlg_mem_region region = perf_arena_region(&node->arena, 0);

    int rc = hlg_messenger_create(config, &node->messenger, error, PERF_ERROR_BYTES);
    if (rc != 0) {
        return rc;
    }
    rc = hlg_messenger_region_add(node->messenger, 0, &region);
    rc = rc >= 0 ? hlg_messenger_places_linear(node->messenger) : rc;
    rc = rc >= 0 && word != NULL ? hlg_messenger_counter_watch(node->messenger, 0, word) : rc;
    rc = rc >= 0 ? hlg_messenger_start(node->messenger) : rc;
    if (rc < 0) {
        (void)snprintf(error, PERF_ERROR_BYTES, "%.190s", hlg_messenger_error(node->messenger));
    }
    return rc < 0 ? rc : 0;
}

int perf_node_report(struct perf_node *node, hlg_time span, struct hlg_report *report)
{
    const hlg_time limit = perf_now() + span;

    while (hlg_messenger_poll(node->messenger, report, sizeof *report, 1) != 1) {
        if (perf_now() > limit || perf_interrupted()) {
            return 0;
        }
        struct pollfd fd = {.fd = hlg_messenger_fd(node->messenger), .events = POLLIN};
        (void)poll(&fd, 1, SLICE_MS); /* an error or a signal only makes it look again */
    }
    return 1;
}

void perf_node_close(struct perf_node *node)
{
    (void)hlg_messenger_destroy(node->messenger); /* takes NULL; nothing is recorded */
    perf_fabric_close(&node->fabric);
    perf_arena_close(&node->arena);
    node->messenger = NULL;
}
