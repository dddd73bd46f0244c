/* Which NICs are nearest to a GPU, and who of several GPUs takes which. */
#include "internal.h"

#include <string.h>

/* Order of NICs for one GPU: below 0 when `a` comes first. NICs are numbered by bus id. */
static int compare(const struct hlg_topology *t, const struct hlg_topology_near *a,
                   const struct hlg_topology_near *b)
{
    const struct hlg_topology_nic *nic_a = &t->nics[a->nic];
    const struct hlg_topology_nic *nic_b = &t->nics[b->nic];
    if (nic_a->down != nic_b->down) {
        return nic_a->down ? 1 : -1;
    }
    if (a->link != b->link) {
        return a->link < b->link ? -1 : 1;
    }
    if (a->depth != b->depth) {
        return a->depth > b->depth ? -1 : 1;
    }
    return a->nic < b->nic ? -1 : 1;
}

static bool equally_near(const struct hlg_topology *t, const struct hlg_topology_near *a,
                         const struct hlg_topology_near *b)
{
    return t->nics[a->nic].down == t->nics[b->nic].down && a->link == b->link &&
           a->depth == b->depth;
}

/* A virtual function brings nothing where its physical one can be used as well. */
static bool is_spare(const struct hlg_topology *t, uint32_t nic, const bool *unusable)
{
    const struct hlg_topology_nic *own = &t->nics[nic];
    for (uint32_t i = 0; i < t->nic_count && own->virtual_function; i++) {
        const struct hlg_topology_nic *other = &t->nics[i];
        if (!other->virtual_function && other->on_bus && !unusable[i] && !other->down &&
            other->bus.domain == own->bus.domain && other->bus.bus == own->bus.bus) {
            return true;
        }
    }
    return false;
}

static void sort_nics(const struct hlg_topology *t, struct hlg_topology_gpu *gpu,
                      const bool *unusable)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < gpu->nic_count; i++) {
        const struct hlg_topology_near near = gpu->nics[i];
        if (unusable[near.nic] || is_spare(t, near.nic, unusable)) {
            continue;
        }
        uint32_t at = count++;
        for (; at > 0 && compare(t, &near, &gpu->nics[at - 1]) < 0; at--) {
            gpu->nics[at] = gpu->nics[at - 1];
        }
        gpu->nics[at] = near;
    }
    gpu->nic_count = count;
    gpu->near_count = 0;
    while (gpu->near_count < count && equally_near(t, &gpu->nics[0], &gpu->nics[gpu->near_count])) {
        gpu->near_count++;
    }
}

/* Whether two GPUs see the same NICs nearest, equally near: they share them. */
static bool same_nearest(const struct hlg_topology_gpu *a, const struct hlg_topology_gpu *b)
{
    if (a->near_count != b->near_count || a->nics[0].link != b->nics[0].link ||
        a->nics[0].depth != b->nics[0].depth) {
        return false;
    }
    for (uint32_t i = 0; i < a->near_count; i++) {
        if (a->nics[i].nic != b->nics[i].nic) {
            return false;
        }
    }
    return true;
}

/* Move a NIC to the end of the GPU's share, the others keep their order. */
static void take(struct hlg_topology *t, struct hlg_topology_gpu *gpu, uint32_t nic)
{
    uint32_t at = 0;
    while (gpu->nics[at].nic != nic) {
        at++;
    }
    const struct hlg_topology_near near = gpu->nics[at];
    HLG_ASSERT(at >= gpu->share_count);
    HLG_ASSERT(at < gpu->near_count);
    memmove(&gpu->nics[gpu->share_count + 1], &gpu->nics[gpu->share_count],
            (at - gpu->share_count) * sizeof near);
    gpu->nics[gpu->share_count++] = near;
    t->nics[nic].gpu_count++;
}

/* Share the nearest NICs of `first` among all GPUs to which they are that, but for those that a nearer GPU has, as
 * long as others remain: as even as it goes, neighbours to neighbours. */
static void share_group(struct hlg_topology *t, uint32_t first, bool done[HLG_TOPOLOGY_GPUS_MAX])
{
    uint32_t gpus[HLG_TOPOLOGY_GPUS_MAX];
    uint32_t nics[HLG_TOPOLOGY_NICS_MAX];
    uint32_t gpu_count = 0;
    uint32_t nic_count = 0;
    const struct hlg_topology_gpu *head = &t->gpus[first];
    for (uint32_t i = first; i < t->gpu_count; i++) {
        if (!done[i] && same_nearest(head, &t->gpus[i])) {
            gpus[gpu_count++] = i;
        }
    }
    for (uint32_t i = 0; i < head->near_count; i++) {
        if (t->nics[head->nics[i].nic].gpu_count == 0) {
            nics[nic_count++] = head->nics[i].nic;
        }
    }
    if (nic_count == 0) { /* all are taken: they serve these GPUs as well */
        for (uint32_t i = 0; i < head->near_count; i++) {
            nics[nic_count++] = head->nics[i].nic;
        }
    }
    /* Flooring: what remains goes to the first GPUs, or the first NICs. */
    for (uint32_t i = 0; i < nic_count && nic_count >= gpu_count; i++) {
        take(t, &t->gpus[gpus[i * gpu_count / nic_count]], nics[i]);
    }
    for (uint32_t i = 0; i < gpu_count && nic_count < gpu_count; i++) {
        take(t, &t->gpus[gpus[i]], nics[i * nic_count / gpu_count]);
    }
    for (uint32_t i = 0; i < gpu_count; i++) {
        done[gpus[i]] = true;
    }
}

/* Whether the nearest NICs of GPU `a` are nearer than those of `b`. */
static bool is_nearer(const struct hlg_topology *t, uint32_t a, uint32_t b)
{
    const struct hlg_topology_near *near_a = &t->gpus[a].nics[0];
    const struct hlg_topology_near *near_b = &t->gpus[b].nics[0];
    return !equally_near(t, near_a, near_b) && compare(t, near_a, near_b) < 0;
}

void topology_rank(struct hlg_topology *t, const bool unusable[HLG_TOPOLOGY_NICS_MAX])
{
    bool done[HLG_TOPOLOGY_GPUS_MAX] = {false};
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        sort_nics(t, &t->gpus[i], unusable);
        done[i] = t->gpus[i].nic_count == 0;
    }
    for (uint32_t next = 0; next < t->gpu_count;) {
        next = t->gpu_count; /* the one whose nearest NICs are nearest has the first choice */
        for (uint32_t i = 0; i < t->gpu_count; i++) {
            if (!done[i] && (next == t->gpu_count || is_nearer(t, i, next))) {
                next = i;
            }
        }
        if (next < t->gpu_count) {
            share_group(t, next, done);
        }
    }
}
