#define _GNU_SOURCE /* SOCK_CLOEXEC, MAP_ANONYMOUS */
#include "rank.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a rank with memory of a GPU is given to free it. */
#define END_MS 5000

/* One of the layout's lanes. */
struct lane {
    pid_t pid;  /* 0: none */
    int socket; /* -1: none; its end is the rank's end */
    int status; /* of waitpid, once it is dead */
    bool dead;
    struct hlg_memory *memory;
};

struct pool {
    struct step *step;
    struct tlm_group *group;
    int done; /* eventfd */
    bool running;
};

struct ranks {
    struct ranks_config config;
    uint32_t lanes;
    uint32_t pools;
    uint32_t sequence_pages_max;
    void *shared; /* sentences of the lanes, steps and groups */
    size_t shared_bytes;
    void *model_memory;
    size_t model_bytes;
    struct tlm_model *model;
    struct pool pool[HLG_RANKS_MAX];
    struct lane lane[HLG_RANKS_MAX];
};

static void *map_memory(size_t bytes, int how)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | how, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static uint32_t sequence_pages(const struct tlm_config *model)
{
    return hlg_div_ceil(model->context_tokens_max, model->page_tokens);
}

/* Hand out the arrays of a step; with base NULL only count. Returns bytes. */
static size_t lay_step(const struct ranks *ranks, uint8_t *base, struct step *step)
{
    const struct tlm_config *model = ranks->config.model;
    const size_t sequences = model->batch_sequences_max;
    const struct {
        void **array;
        size_t bytes;
    } arrays[] = {
        {(void **)(void *)&step->sequences, sequences * sizeof *step->sequences},
        {(void **)(void *)&step->logits_hash, sequences * sizeof *step->logits_hash},
        {(void **)(void *)&step->contexts, sequences * sizeof *step->contexts},
        {(void **)(void *)&step->sampled, sequences * sizeof *step->sampled},
        {(void **)(void *)&step->tokens, model->batch_tokens_max * sizeof *step->tokens},
        {(void **)(void *)&step->pages,
         sequences * ranks->sequence_pages_max * sizeof *step->pages},
    };
    size_t used = (sizeof *step + TLM_ALIGN - 1) / TLM_ALIGN * TLM_ALIGN;
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        if (base != NULL) {
            *arrays[i].array = base + used;
        }
        used += (arrays[i].bytes + TLM_ALIGN - 1) / TLM_ALIGN * TLM_ALIGN;
    }
    return used;
}

/* Where a rank says why it failed. */
static char *lane_why(const struct ranks *ranks, uint32_t lane)
{
    return (char *)ranks->shared + (size_t)lane * RANK_WHY_BYTES;
}

static int make_shared(struct ranks *ranks)
{
    const struct tlm_config *model = ranks->config.model;
    const uint32_t tp = ranks->config.layout->tp;
    struct step sizes;
    const size_t step_bytes = lay_step(ranks, NULL, &sizes);
    const size_t group_bytes = (tlm_group_bytes(model, tp) + TLM_ALIGN - 1) / TLM_ALIGN * TLM_ALIGN;
    const size_t why_bytes = (size_t)ranks->lanes * RANK_WHY_BYTES;
    ranks->shared_bytes = why_bytes + ranks->pools * (step_bytes + group_bytes);
    ranks->shared = map_memory(ranks->shared_bytes, MAP_SHARED);
    ranks->model_bytes = tlm_model_bytes(model);
    ranks->model_memory = map_memory(ranks->model_bytes, MAP_PRIVATE);
    if (ranks->shared == NULL || ranks->model_memory == NULL ||
        tlm_model_init(ranks->model_memory, ranks->model_bytes, model, &ranks->model) != 0) {
        return -HLG_ENOMEM;
    }
    for (uint32_t p = 0; p < ranks->pools; p++) {
        uint8_t *base = (uint8_t *)ranks->shared + why_bytes + p * (step_bytes + group_bytes);
        struct pool *pool = &ranks->pool[p];
        pool->step = (struct step *)(void *)base;
        (void)lay_step(ranks, base, pool->step);
        pool->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (pool->done < 0 ||
            tlm_group_init(base + step_bytes, group_bytes, model, tp, &pool->group) != 0) {
            return -HLG_EIO;
        }
    }
    return 0;
}

static int fork_rank(struct ranks *ranks, uint32_t lane)
{
    int sockets[2];
    const struct pool *pool = &ranks->pool[lane / ranks->config.layout->tp];
    const pid_t leader = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
        return -HLG_EIO;
    }
    (void)fflush(NULL); /* or the child would print it again */
    const pid_t pid = fork();
    if (pid == 0) {
        const struct rank_order order = {
            .config = &ranks->config,
            .model = ranks->model,
            .group = pool->group,
            .step = pool->step,
            .why = lane_why(ranks, lane),
            .leader = leader,
            .lane = lane,
            .socket = sockets[1],
            .done = pool->done,
        };
        rank_main(&order);
    }
    (void)close(sockets[1]);
    ranks->lane[lane].socket = sockets[0];
    ranks->lane[lane].pid = pid;
    return pid < 0 ? -HLG_EIO : 0;
}

static int take_memory(struct ranks *ranks, uint32_t lane, char *text, size_t capacity)
{
    struct hlg_fd_header header;
    int fd = -1;
    char error[RANK_WHY_BYTES] = "";
    const uint32_t kind = ranks->config.cuda ? HLG_MEMORY_CUDA : HLG_MEMORY_HOST;
    if (hlg_fd_receive(ranks->lane[lane].socket, &header, &fd) != 1) {
        const char *why = lane_why(ranks, lane);
        (void)snprintf(text, capacity, "rank %u cannot make its memory%s%.*s", lane,
                       *why == '\0' ? "" : ": ", (int)RANK_WHY_BYTES - 1, why);
        return -HLG_EIO;
    }
    int status = -HLG_EPROTO;
    if (header.kind == kind && header.lane == lane) {
        status = hlg_memory_import(fd, &header, &ranks->lane[lane].memory, error, sizeof error);
    }
    (void)close(fd);
    if (status != 0) {
        (void)snprintf(text, capacity, "memory of rank %u cannot be taken: %s", lane,
                       error[0] == '\0' ? hlg_error_text(status) : error);
    }
    return status;
}

int ranks_start(const struct ranks_config *config, struct ranks **out, char *text, size_t capacity)
{
    struct ranks *ranks = calloc(1, sizeof *ranks);
    if (ranks == NULL) {
        (void)snprintf(text, capacity, "no memory");
        return -HLG_ENOMEM;
    }
    ranks->config = *config;
    ranks->lanes = hlg_layout_lanes(config->layout);
    ranks->pools = config->layout->pools;
    ranks->sequence_pages_max = sequence_pages(config->model);
    for (uint32_t lane = 0; lane < HLG_RANKS_MAX; lane++) {
        ranks->lane[lane].socket = -1;
        ranks->pool[lane].done = -1;
    }
    int status = make_shared(ranks);
    if (status != 0) {
        (void)snprintf(text, capacity, "the model does not fit into memory");
    }
    for (uint32_t lane = 0; lane < ranks->lanes && status == 0; lane++) {
        status = fork_rank(ranks, lane);
        if (status != 0) {
            (void)snprintf(text, capacity, "rank %u cannot be started: %s", lane, strerror(errno));
        }
    }
    for (uint32_t lane = 0; lane < ranks->lanes && status == 0; lane++) {
        status = take_memory(ranks, lane, text, capacity);
    }
    if (status != 0) {
        ranks_stop(ranks);
        return status;
    }
    *out = ranks;
    return 0;
}

static void wake(struct step *step)
{
    atomic_fetch_add(&step->posted, 1);
    (void)syscall(SYS_futex, &step->posted, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Let all ranks free what they have of a GPU and end, in time that is bounded. */
static void end_ranks(struct ranks *ranks)
{
    for (uint32_t pool = 0; pool < ranks->pools && ranks->pool[pool].group != NULL; pool++) {
        atomic_store(&ranks->pool[pool].step->end, true);
        tlm_group_abort(ranks->pool[pool].group); /* one may be within a pass */
        wake(ranks->pool[pool].step);
    }
    for (uint32_t ms = 0, lane = 0; ms < END_MS && lane < ranks->lanes;) {
        struct lane *l = &ranks->lane[lane];
        l->dead = l->dead || l->pid <= 0 || waitpid(l->pid, &l->status, WNOHANG) == l->pid;
        if (l->dead) {
            lane++;
        } else {
            (void)poll(NULL, 0, 1);
            ms++;
        }
    }
}

void ranks_stop(struct ranks *ranks)
{
    if (ranks == NULL) {
        return;
    }
    if (ranks->config.cuda) {
        end_ranks(ranks);
    }
    for (uint32_t lane = 0; lane < ranks->lanes; lane++) {
        struct lane *l = &ranks->lane[lane];
        if (l->pid > 0 && !l->dead) {
            (void)kill(l->pid, SIGKILL); /* it has nothing to tidy up, or does not */
            (void)waitpid(l->pid, &l->status, 0);
        }
        if (l->socket >= 0) {
            (void)close(l->socket);
        }
        if (l->memory != NULL) {
            hlg_memory_release(l->memory);
        }
    }
    for (uint32_t pool = 0; pool < ranks->pools; pool++) {
        if (ranks->pool[pool].done >= 0) {
            (void)close(ranks->pool[pool].done);
        }
    }
    if (ranks->shared != NULL) {
        (void)munmap(ranks->shared, ranks->shared_bytes);
    }
    if (ranks->model_memory != NULL) {
        (void)munmap(ranks->model_memory, ranks->model_bytes);
    }
    free(ranks);
}

uint32_t ranks_lanes(const struct ranks *ranks)
{
    return ranks->lanes;
}

struct hlg_memory *ranks_memory(const struct ranks *ranks, uint32_t lane)
{
    HLG_ASSERT(lane < ranks->lanes);
    return ranks->lane[lane].memory;
}

struct step *ranks_step_begin(struct ranks *ranks, uint32_t pool, uint32_t forward)
{
    HLG_ASSERT(pool < ranks->pools && !ranks->pool[pool].running);
    struct step *step = ranks->pool[pool].step;
    step->forward = forward;
    step->sequence_count = 0;
    step->token_count = 0;
    step->page_count = 0;
    return step;
}

bool ranks_step_add(struct ranks *ranks, uint32_t pool, const struct tlm_sequence *sequence,
                    uint32_t context)
{
    const struct tlm_config *model = ranks->config.model;
    struct step *step = ranks->pool[pool].step;
    const uint32_t index = step->sequence_count;
    HLG_ASSERT(!ranks->pool[pool].running);
    HLG_ASSERT(sequence->page_count <= ranks->sequence_pages_max);
    if (index == model->batch_sequences_max ||
        sequence->token_count > model->batch_tokens_max - step->token_count) {
        return false;
    }
    uint32_t *tokens = step->tokens + step->token_count;
    uint32_t *pages = step->pages + step->page_count;
    memcpy(tokens, sequence->tokens, sequence->token_count * sizeof *tokens);
    memcpy(pages, sequence->pages, sequence->page_count * sizeof *pages);
    step->sequences[index] = *sequence;
    step->sequences[index].tokens = tokens;
    step->sequences[index].pages = pages;
    step->contexts[index] = context;
    step->token_count += sequence->token_count;
    step->page_count += sequence->page_count;
    step->sequence_count++;
    return true;
}

void ranks_step_post(struct ranks *ranks, uint32_t pool)
{
    struct step *step = ranks->pool[pool].step;
    HLG_ASSERT(!ranks->pool[pool].running && step->sequence_count > 0);
    ranks->pool[pool].running = true;
    atomic_store(&step->status, 0);
    atomic_store(&step->ranks_done, 0);
    wake(step);
}

bool ranks_step_running(const struct ranks *ranks, uint32_t pool)
{
    return ranks->pool[pool].running;
}

_Atomic uint32_t *ranks_word(struct ranks *ranks, uint32_t pool)
{
    return &ranks->pool[pool].step->word;
}

const struct step *ranks_step_take(struct ranks *ranks, uint32_t pool)
{
    eventfd_t count = 0;
    struct pool *p = &ranks->pool[pool];
    if (!p->running || eventfd_read(p->done, &count) != 0) {
        return NULL;
    }
    HLG_ASSERT(atomic_load(&p->step->ranks_done) == ranks->config.layout->tp);
    p->running = false;
    return p->step;
}

void ranks_step_why(const struct ranks *ranks, uint32_t pool, char *text, size_t capacity)
{
    const uint32_t tp = ranks->config.layout->tp;
    (void)snprintf(text, capacity, "status %d", (int)atomic_load(&ranks->pool[pool].step->status));
    for (uint32_t lane = pool * tp; lane < (pool + 1) * tp; lane++) {
        if (*lane_why(ranks, lane) != '\0') {
            (void)snprintf(text, capacity, "rank %u: %.*s", lane, (int)RANK_WHY_BYTES - 1,
                           lane_why(ranks, lane));
            return;
        }
    }
}

uint32_t ranks_poll_fds(const struct ranks *ranks, struct pollfd *fds, uint32_t capacity)
{
    HLG_ASSERT(capacity >= ranks->pools + ranks->lanes);
    for (uint32_t pool = 0; pool < ranks->pools; pool++) {
        fds[pool] = (struct pollfd){.fd = ranks->pool[pool].done, .events = POLLIN};
    }
    for (uint32_t lane = 0; lane < ranks->lanes; lane++) {
        fds[ranks->pools + lane] =
            (struct pollfd){.fd = ranks->lane[lane].socket, .events = POLLIN};
    }
    return ranks->pools + ranks->lanes;
}

bool ranks_dead(struct ranks *ranks, char *text, size_t capacity)
{
    for (uint32_t lane = 0; lane < ranks->lanes; lane++) {
        struct lane *l = &ranks->lane[lane];
        if (l->pid <= 0 || waitpid(l->pid, &l->status, WNOHANG) != l->pid) {
            continue;
        }
        l->dead = true;
        /* The others would wait for it for ever. */
        tlm_group_abort(ranks->pool[lane / ranks->config.layout->tp].group);
        if (WIFSIGNALED(l->status)) {
            (void)snprintf(text, capacity, "rank %u (process %d) was killed by signal %d", lane,
                           (int)l->pid, WTERMSIG(l->status));
        } else {
            (void)snprintf(text, capacity, "rank %u (process %d) ended with status %d", lane,
                           (int)l->pid, WEXITSTATUS(l->status));
        }
        return true;
    }
    return false;
}
