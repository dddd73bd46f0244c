#define _GNU_SOURCE
#include "simgrid_world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "halage/message.h"

static uint32_t pages[PIECES_MAX]; /* 0, 0, 0, ... */

void world_config(struct hlg_simgrid_config *config, uint32_t nodes)
{
    hlg_simgrid_config_default(config);
    config->nodes = nodes;
    config->nic_bandwidth = NIC_BANDWIDTH;
    config->latency_ns = 0;
    config->copy_bytes = false;
    config->peer_pieces_max = PIECES_MAX;
}

void world_open(struct world *w, const struct hlg_simgrid_config *config)
{
    char error[256];

    HLG_ASSERT(config->nodes <= NODES_MAX);
    HLG_ASSERT(hlg_simgrid_create(config, &w->sim, error, sizeof error) == 0);
    w->node_count = config->nodes;
    w->memory = malloc(1u << 20);
    HLG_ASSERT(w->memory != NULL);
    for (uint32_t node = 0; node < config->nodes; node++) {
        struct hlg_fabric *fabric = hlg_simgrid_fabric(w->sim, node);
        struct hlg_transport *t = NULL;

        HLG_ASSERT(fabric->open(fabric, 0, 0, &t) == 0);
        HLG_ASSERT(t->ops->mem_register(t, &HLG_MEM_HOST(w->memory, 1u << 20), &w->mem) == 0);
        w->nodes[node] = t;
    }
    for (uint32_t source = 0; source < config->nodes; source++) {
        for (uint32_t target = 0; target < config->nodes; target++) {
            uint8_t address[HLG_ADDRESS_BYTES_MAX];
            struct hlg_transport *to = w->nodes[target];
            const int bytes = to->ops->address(to, address, sizeof address);
            HLG_ASSERT(w->nodes[source]->ops->peer_open(w->nodes[source], address,
                                                        (uint32_t)bytes) == (int)target);
        }
    }
}

int64_t offer(struct world *w, uint32_t source, uint32_t target, uint32_t pieces, uint32_t bytes)
{
    struct hlg_transport *t = w->nodes[source];
    struct hlg_mem_export export;

    HLG_ASSERT(w->nodes[target]->ops->mem_export(w->nodes[target], w->mem, &export) == 0);
    const struct hlg_paged_write write = {
        .op = target,
        .peer = target,
        .mem = w->mem,
        .imm = hlg_imm_make(source, 0, 0),
        .local = w->memory,
        .remote = export.address,
        .remote_key = export.key,
        .source_pages = pages,
        .target_pages = pages,
        .bytes = bytes,
        .count = 1,
        .piece_limit = pieces,
    };
    return t->ops->write(t, &write);
}

void post(struct world *w, uint32_t source, uint32_t target, uint32_t pieces, uint32_t bytes)
{
    HLG_ASSERT(offer(w, source, target, pieces, bytes) == pieces);
    w->expected[target] += pieces;
    w->posted[source] += pieces;
}

void look(struct world *w, uint32_t node)
{
    struct hlg_transport *t = w->nodes[node];
    struct hlg_transport_event events[8];
    int count;

    while ((count = t->ops->poll(t, events, 8)) > 0) {
        for (int i = 0; i < count; i++) {
            if (events[i].kind == HLG_TRANSPORT_IMM) {
                w->expected[node] -= events[i].imm.pieces;
                w->result->arrived[node] = w->expected[node] == 0 ? hlg_simgrid_now(w->sim) : 0;
            } else if (events[i].kind == HLG_TRANSPORT_DONE_WRITE) {
                w->posted[node] -= events[i].done.done + events[i].done.failed;
                w->result->failed += events[i].done.failed;
                w->result->done[node] = w->posted[node] == 0 ? hlg_simgrid_now(w->sim) : 0;
            }
        }
    }
}

void run(struct world *w)
{
    do {
        for (uint32_t node = 0; node < w->node_count; node++) {
            look(w, node);
        }
    } while (hlg_simgrid_step(w->sim));
    w->result->check = hlg_simgrid_check(w->sim);
    w->result->hash = hlg_simgrid_trace_hash(w->sim);
    hlg_simgrid_destroy(w->sim);
    free(w->memory);
}

void in_child(void (*scenario)(struct result *result), struct result *result)
{
    int ends[2];
    int status = 0;

    memset(result, 0, sizeof *result);
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        scenario(result);
        _exit(write(ends[1], result, sizeof *result) == (ssize_t)sizeof *result ? 0 : 1);
    }
    (void)close(ends[1]);
    assert_int_equal(read(ends[0], result, sizeof *result), sizeof *result);
    (void)close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(result->check, 0);
}

void assert_near(hlg_time time, hlg_time wanted)
{
    assert_in_range(time, wanted - 1, wanted + 1);
}
