#define _GNU_SOURCE /* close_range(), SOCK_CLOEXEC, MAP_ANONYMOUS */
#include "ranks.h"

#include <halage/places.h>

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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
    void *shared; /* steps and groups */
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

/* ---- The rank's process ---- */

struct rank_process {
    const struct ranks *ranks;
    uint32_t lane;
    struct step *step;
    struct tlm_rank *rank;
    uint8_t *contexts; /* place of the context group */
    float *logits;     /* [sequences_max][vocab], rank 0 of a node that samples */
    struct tlm_output *outputs;
    int done;
    bool first; /* rank 0 of its pool */
};

static void sample(struct rank_process *process)
{
    const struct ranks_config *config = &process->ranks->config;
    const uint32_t vocab = config->model->vocab;
    for (uint32_t i = 0; i < process->step->sequence_count; i++) {
        const float *logits = process->outputs[i].logits;
        process->step->sampled[i] = config->sample(logits, vocab);
        process->step->logits_hash[i] = tlm_hash(logits, vocab * sizeof *logits);
    }
}

static void run_step(struct rank_process *process)
{
    struct step *step = process->step;
    const struct ranks_config *config = &process->ranks->config;
    const struct tlm_batch batch = {
        .sequences = step->sequences,
        .word = config->prefill ? &step->word : NULL,
        .sequence_count = step->sequence_count,
        .forward = step->forward,
    };
    const size_t context_bytes = (size_t)config->model->hidden * sizeof(float);
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const bool wanted = config->prefill && step->contexts[i] != HLG_NONE;
        process->outputs[i] = (struct tlm_output){
            .context =
                wanted ? (float *)(void *)(process->contexts + step->contexts[i] * context_bytes)
                       : NULL,
            .logits =
                process->logits == NULL ? NULL : process->logits + (size_t)i * config->model->vocab,
        };
    }
    const int status = tlm_forward(process->rank, &batch, process->outputs);
    if (status == 0 && process->logits != NULL) {
        sample(process);
    }
    if (status != 0) {
        atomic_store(&step->status, status);
    }
    if (atomic_fetch_add(&step->ranks_done, 1) + 1 == config->layout->tp) {
        (void)eventfd_write(process->done, 1);
    }
}

static _Noreturn void run_rank(struct rank_process *process)
{
    struct step *step = process->step;
    uint32_t seen = 0;
    for (;;) {
        const uint32_t posted = atomic_load(&step->posted);
        if (posted == seen) {
            (void)syscall(SYS_futex, &step->posted, FUTEX_WAIT, seen, NULL, NULL, 0);
            continue;
        }
        seen = posted;
        run_step(process);
    }
}

/* Keep stdio and two more descriptors. */
static void close_others(int a, int b)
{
    const unsigned low = (unsigned)(a < b ? a : b);
    const unsigned high = (unsigned)(a < b ? b : a);
    if (low > 3) {
        (void)close_range(3, low - 1, 0);
    }
    if (high > low + 1) {
        (void)close_range(low + 1, high - 1, 0);
    }
    (void)close_range(high + 1, ~0u, 0);
}

static bool make_outputs(struct rank_process *process)
{
    const struct tlm_config *model = process->ranks->config.model;
    process->outputs = calloc(model->batch_sequences_max, sizeof *process->outputs);
    if (process->ranks->config.sample != NULL && process->first) {
        process->logits =
            calloc((size_t)model->batch_sequences_max * model->vocab, sizeof *process->logits);
        return process->outputs != NULL && process->logits != NULL;
    }
    return process->outputs != NULL;
}

/* Make the KV memory, tell the leader, make the rank. Returns whether all went well. */
static bool prepare_rank(struct rank_process *process, int socket)
{
    const struct ranks *ranks = process->ranks;
    const struct hlg_layout *layout = ranks->config.layout;
    const uint32_t pool = process->lane / layout->tp;
    const uint32_t index = process->lane % layout->tp;
    const size_t scratch_bytes = tlm_rank_bytes(ranks->config.model, layout->tp);
    void *scratch = map_memory(scratch_bytes, MAP_PRIVATE);
    const struct hlg_memory_site site = {.kind = HLG_MEMORY_HOST};
    struct hlg_memory *memory = NULL;
    char error[256] = "";
    uint64_t bytes = 0;
    const int count = hlg_places_linear(layout, process->lane, NULL, 0, &bytes);
    if (count <= 0 || scratch == NULL ||
        hlg_memory_create(&site, bytes, &memory, error, sizeof error) != 0) {
        return false;
    }
    /* The context group is the last one and its only place the last. */
    process->contexts = (uint8_t *)hlg_memory_base(memory) + bytes -
                        (uint64_t)layout->groups[1].page_count * hlg_layout_page_bytes(layout, 1);
    struct hlg_fd_header header;
    const int fd = hlg_memory_export(memory, &header, error, sizeof error);
    header.lane = process->lane;
    if (fd < 0 || hlg_fd_send(socket, &header, fd) != 0) {
        return false;
    }
    (void)close(fd);
    return tlm_rank_init(scratch, scratch_bytes, ranks->model, ranks->pool[pool].group, index,
                         hlg_memory_base(memory), layout->groups[0].page_count,
                         &process->rank) == 0 &&
           make_outputs(process);
}

static _Noreturn void rank_main(const struct ranks *ranks, uint32_t lane, int socket, pid_t leader)
{
    const uint32_t pool = lane / ranks->config.layout->tp;
    struct rank_process process = {
        .ranks = ranks,
        .lane = lane,
        .step = ranks->pool[pool].step,
        .done = ranks->pool[pool].done,
        .first = lane % ranks->config.layout->tp == 0,
    };
    /* Dies with the leader, also when that died before this line. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != leader) {
        _exit(1);
    }
    (void)signal(SIGINT, SIG_IGN);
    close_others(socket, process.done);
    if (!prepare_rank(&process, socket)) {
        _exit(1);
    }
    run_rank(&process);
}

/* ---- The leader ---- */

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

static int make_shared(struct ranks *ranks)
{
    const struct tlm_config *model = ranks->config.model;
    const uint32_t tp = ranks->config.layout->tp;
    struct step sizes;
    const size_t step_bytes = lay_step(ranks, NULL, &sizes);
    const size_t group_bytes = (tlm_group_bytes(model, tp) + TLM_ALIGN - 1) / TLM_ALIGN * TLM_ALIGN;
    ranks->shared_bytes = ranks->pools * (step_bytes + group_bytes);
    ranks->shared = map_memory(ranks->shared_bytes, MAP_SHARED);
    ranks->model_bytes = tlm_model_bytes(model);
    ranks->model_memory = map_memory(ranks->model_bytes, MAP_PRIVATE);
    if (ranks->shared == NULL || ranks->model_memory == NULL ||
        tlm_model_init(ranks->model_memory, ranks->model_bytes, model, &ranks->model) != 0) {
        return -HLG_ENOMEM;
    }
    for (uint32_t p = 0; p < ranks->pools; p++) {
        uint8_t *base = (uint8_t *)ranks->shared + p * (step_bytes + group_bytes);
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
    const pid_t leader = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
        return -HLG_EIO;
    }
    (void)fflush(NULL); /* or the child would print it again */
    const pid_t pid = fork();
    if (pid == 0) {
        rank_main(ranks, lane, sockets[1], leader);
    }
    (void)close(sockets[1]);
    ranks->lane[lane].socket = sockets[0];
    ranks->lane[lane].pid = pid;
    return pid < 0 ? -HLG_EIO : 0;
}

static int take_memory(struct ranks *ranks, uint32_t lane)
{
    struct hlg_fd_header header;
    int fd = -1;
    if (hlg_fd_receive(ranks->lane[lane].socket, &header, &fd) != 1) {
        return -HLG_EIO;
    }
    int status = -HLG_EPROTO;
    if (header.kind == HLG_MEMORY_HOST && header.lane == lane) {
        status = hlg_memory_import(fd, &header, &ranks->lane[lane].memory, NULL, 0);
    }
    (void)close(fd);
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
        status = take_memory(ranks, lane);
        if (status != 0) {
            (void)snprintf(text, capacity, "rank %u cannot make its memory", lane);
        }
    }
    if (status != 0) {
        ranks_stop(ranks);
        return status;
    }
    *out = ranks;
    return 0;
}

void ranks_stop(struct ranks *ranks)
{
    if (ranks == NULL) {
        return;
    }
    for (uint32_t lane = 0; lane < ranks->lanes; lane++) {
        struct lane *l = &ranks->lane[lane];
        if (l->pid > 0 && !l->dead) {
            (void)kill(l->pid, SIGKILL); /* it has nothing to tidy up */
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
    atomic_fetch_add(&step->posted, 1);
    (void)syscall(SYS_futex, &step->posted, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
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
