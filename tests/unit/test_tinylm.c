/*
 * tinylm computes the same bits however a request is cut up.
 *
 * Requests are run by real rank processes, forked, over shared memory, with every legal number of
 * ranks and mixes of chunk, page size and arrangement, several requests to a batch and pages in
 * scrambled order; tokens, logits, contexts and every planned KV element are compared with the
 * one-process reference. Further tests: ticks, aborts, refusals, varied outputs.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reference.h"
#include "sample.h"
#include "tinylm.h"

enum {
    REQUESTS = 4,
    OUTPUTS = 3,
    RANKS = 8,
    PROMPT_MAX = 200,
    PAGES_MAX = 256,    /* of one rank */
    HIDDEN_MAX = 64,    /* floats */
    CHILD_ABORTED = 7,  /* exit status: tlm_forward() said TLM_E_ABORTED */
    CHILD_FAILED = 8,   /* exit status: something else went wrong */
    HANG_SECONDS = 300, /* then the test program is killed: something hangs */
    TICK_VOCAB = 16384, /* so large that logits take a while */
    WHOLE = PROMPT_MAX, /* a chunk that takes any prompt */
};

static const uint32_t prompt_tokens[REQUESTS] = {70, 1, 33, 2};

/* What parent and ranks share, besides group and KV. */
struct board {
    _Atomic uint32_t word;
    uint32_t tokens[REQUESTS][OUTPUTS];
    uint64_t logits_hash[REQUESTS][OUTPUTS];
    float context[RANKS][REQUESTS][HIDDEN_MAX];
    float logits[TICK_VOCAB]; /* of the tick test */
};

/* A model, its prompts, and what each request must give. */
struct oracle {
    struct tlm_config config;
    void *model_memory;
    struct tlm_model *model;
    uint32_t prompts[REQUESTS][PROMPT_MAX];
    void *reference_memory[REQUESTS];
    struct tlm_reference *references[REQUESTS];
};

/* One way to run the requests. */
struct cut {
    const struct oracle *oracle;
    struct tlm_config config;
    uint32_t tp;
    uint32_t chunk;
    uint32_t pages; /* of one rank */
    uint32_t tables[REQUESTS][PAGES_MAX];
    struct board *board;
    struct tlm_group *group;
    size_t group_bytes;
    char *kv;
    size_t kv_bytes; /* of one rank */
};

static void *memory_new(size_t bytes)
{
    void *memory = aligned_alloc(TLM_ALIGN, (bytes + TLM_ALIGN - 1) / TLM_ALIGN * TLM_ALIGN);

    assert_non_null(memory);
    return memory;
}

static void *shared_new(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static void oracle_open(struct oracle *oracle, const struct tlm_config *config)
{
    const size_t model_bytes = tlm_model_bytes(config);
    const size_t reference_bytes = tlm_reference_bytes(config);

    oracle->config = *config;
    oracle->model_memory = memory_new(model_bytes);
    assert_int_equal(tlm_model_init(oracle->model_memory, model_bytes, config, &oracle->model), 0);
    for (uint32_t r = 0; r < REQUESTS; r++) {
        tlm_prompt(config->seed, r, PROMPT_MAX, config->vocab, oracle->prompts[r]);
        oracle->reference_memory[r] = memory_new(reference_bytes);
        assert_int_equal(tlm_reference_init(oracle->reference_memory[r], reference_bytes,
                                            oracle->model, &oracle->references[r]),
                         0);
        assert_int_equal(
            tlm_reference_run(oracle->references[r], oracle->prompts[r], prompt_tokens[r], OUTPUTS),
            0);
    }
}

static void oracle_close(struct oracle *oracle)
{
    for (uint32_t r = 0; r < REQUESTS; r++) {
        free(oracle->reference_memory[r]);
    }
    free(oracle->model_memory);
}

/* Deal the pages to the requests in turn, from the highest down, so that none is where a
 * reader that ignores the table would look. */
static void cut_open(struct cut *cut, const struct oracle *oracle, const struct tlm_config *config,
                     uint32_t tp, uint32_t chunk)
{
    uint32_t next = 0;

    memset(cut, 0, sizeof(*cut));
    cut->oracle = oracle;
    cut->config = *config;
    cut->tp = tp;
    cut->chunk = chunk;
    for (uint32_t i = 0; i < PAGES_MAX; i++) {
        for (uint32_t r = 0; r < REQUESTS; r++) {
            if (i * config->page_tokens < prompt_tokens[r] + OUTPUTS - 1) {
                cut->tables[r][i] = next++;
            }
        }
    }
    assert_in_range(next, 1, PAGES_MAX);
    cut->pages = next;
    for (uint32_t r = 0; r < REQUESTS; r++) {
        for (uint32_t i = 0; i < PAGES_MAX; i++) {
            cut->tables[r][i] = cut->pages - 1 - cut->tables[r][i];
        }
    }
    cut->board = shared_new(sizeof(*cut->board));
    cut->group_bytes = tlm_group_bytes(config, tp);
    assert_int_equal(
        tlm_group_init(shared_new(cut->group_bytes), cut->group_bytes, config, tp, &cut->group), 0);
    cut->kv_bytes = tlm_kv_bytes(config, tp, cut->pages);
    cut->kv = shared_new(cut->kv_bytes * tp);
    memset(cut->kv, 0xFF, cut->kv_bytes * tp); /* NaN: whoever reads an unwritten slot shows */
}

static void cut_close(struct cut *cut)
{
    assert_int_equal(munmap(cut->board, sizeof(*cut->board)), 0);
    assert_int_equal(munmap(cut->group, cut->group_bytes), 0);
    assert_int_equal(munmap(cut->kv, cut->kv_bytes * cut->tp), 0);
}

/* In a child: make the rank, or end. */
static struct tlm_rank *rank_open(const struct cut *cut, uint32_t index)
{
    const size_t bytes = tlm_rank_bytes(&cut->config, cut->tp);
    void *memory = aligned_alloc(TLM_ALIGN, (bytes + TLM_ALIGN - 1) / TLM_ALIGN * TLM_ALIGN);
    struct tlm_rank *rank = NULL;

    if (memory == NULL || tlm_rank_init(memory, bytes, cut->oracle->model, cut->group, index,
                                        cut->kv + index * cut->kv_bytes, cut->pages, &rank) != 0) {
        _exit(CHILD_FAILED);
    }
    return rank;
}

static void forward_or_exit(struct tlm_rank *rank, const struct tlm_batch *batch,
                            const struct tlm_output *outputs)
{
    const int status = tlm_forward(rank, batch, outputs);

    if (status != 0) {
        _exit(status == TLM_E_ABORTED ? CHILD_ABORTED : CHILD_FAILED);
    }
}

/* Prefill all requests side by side, `chunk` tokens of each per forward; returns forwards. */
static uint32_t prefill_run(const struct cut *cut, struct tlm_rank *rank, uint32_t index)
{
    uint32_t done = 0;
    uint32_t forward = 0;

    for (;; forward++) {
        struct tlm_sequence sequences[REQUESTS];
        struct tlm_output outputs[REQUESTS] = {{NULL, NULL}};
        uint32_t count = 0;

        for (uint32_t r = 0; r < REQUESTS; r++) {
            const uint32_t planned = prompt_tokens[r] - 1;
            const uint32_t left = planned > done ? planned - done : 0;

            if (left == 0) {
                continue;
            }
            sequences[count] = (struct tlm_sequence){
                .pages = cut->tables[r],
                .tokens = cut->oracle->prompts[r] + done,
                .page_count = PAGES_MAX,
                .position = done,
                .token_count = left < cut->chunk ? left : cut->chunk,
            };
            if (left <= cut->chunk) {
                outputs[count].context = cut->board->context[index][r];
            }
            count++;
        }
        if (count == 0) {
            return forward;
        }
        const struct tlm_batch batch = {sequences, &cut->board->word, count, forward};

        forward_or_exit(rank, &batch, outputs);
        done += cut->chunk;
    }
}

/* Decode all requests in one batch; rank 0 samples and writes the tokens on the board. */
static void decode_run(const struct cut *cut, struct tlm_rank *rank, uint32_t index,
                       uint32_t forward)
{
    const uint32_t vocab = cut->config.vocab;
    float *logits = malloc(REQUESTS * vocab * sizeof(float));

    if (logits == NULL) {
        _exit(CHILD_FAILED);
    }
    for (uint32_t step = 0; step < OUTPUTS; step++) {
        struct tlm_sequence sequences[REQUESTS];
        struct tlm_output outputs[REQUESTS] = {{NULL, NULL}};

        for (uint32_t r = 0; r < REQUESTS; r++) {
            sequences[r] = (struct tlm_sequence){
                .pages = cut->tables[r],
                .tokens = step == 0 ? &cut->oracle->prompts[r][prompt_tokens[r] - 1]
                                    : &cut->board->tokens[r][step - 1],
                .page_count = PAGES_MAX,
                .position = prompt_tokens[r] - 1 + step,
                .token_count = 1,
            };
            outputs[r].logits = index == 0 ? logits + (size_t)r * vocab : NULL;
        }
        const struct tlm_batch batch = {sequences, &cut->board->word, REQUESTS, forward + step};

        forward_or_exit(rank, &batch, outputs);
        for (uint32_t r = 0; index == 0 && r < REQUESTS; r++) {
            const float *row = logits + (size_t)r * vocab;

            cut->board->tokens[r][step] = tlm_sample_greedy(row, vocab);
            cut->board->logits_hash[r][step] = tlm_hash(row, vocab * sizeof(float));
        }
        if (tlm_group_wait(cut->group) != 0) { /* the tokens are on the board */
            _exit(CHILD_ABORTED);
        }
    }
    free(logits);
}

static void rank_run(const struct cut *cut, uint32_t index)
{
    struct tlm_rank *rank = rank_open(cut, index);

    decode_run(cut, rank, index, prefill_run(cut, rank, index));
    free(rank);
}

static void ranks_start(const struct cut *cut, void (*run)(const struct cut *, uint32_t),
                        pid_t *children)
{
    for (uint32_t index = 0; index < cut->tp; index++) {
        children[index] = fork();
        assert_int_not_equal(children[index], -1);
        if (children[index] == 0) {
            run(cut, index);
            _exit(0);
        }
    }
}

static int child_status(pid_t child)
{
    int status = 0;

    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* Elements of the first `layers` layers that differ from the reference, over all ranks. */
static uint64_t pages_differ(const struct cut *cut, uint32_t request, uint32_t layers)
{
    const struct tlm_reference *reference = cut->oracle->references[request];
    const size_t page_bytes = tlm_page_bytes(&cut->config, cut->tp);
    struct tlm_reference_page page = {
        .tp = cut->tp,
        .page_tokens = cut->config.page_tokens,
        .arrangement = cut->config.arrangement,
    };
    uint64_t differing = 0;

    for (page.rank = 0; page.rank < cut->tp; page.rank++) {
        for (page.layer = 0; page.layer < layers; page.layer++) {
            for (page.plane = 0; page.plane < tlm_planes(&cut->config); page.plane++) {
                const char *plane =
                    cut->kv + page.rank * cut->kv_bytes +
                    tlm_plane_offset(&cut->config, cut->tp, cut->pages, page.layer, page.plane);

                page.page = 0;
                while (tlm_reference_slots(reference, &page) > 0) {
                    differing += tlm_reference_page_compare(
                        reference, &page, plane + cut->tables[request][page.page] * page_bytes,
                        NULL);
                    page.page++;
                }
            }
        }
    }
    return differing;
}

static void cut_compare(const struct cut *cut)
{
    for (uint32_t r = 0; r < REQUESTS; r++) {
        const struct tlm_reference_result *right = tlm_reference_result(cut->oracle->references[r]);

        assert_memory_equal(cut->board->tokens[r], right->tokens, sizeof(cut->board->tokens[r]));
        assert_memory_equal(cut->board->logits_hash[r], right->logits_hash,
                            sizeof(cut->board->logits_hash[r]));
        assert_int_equal(pages_differ(cut, r, cut->config.layers), 0);
        if (right->context == NULL) {
            continue;
        }
        for (uint32_t index = 0; index < cut->tp; index++) {
            assert_memory_equal(cut->board->context[index][r], right->context,
                                cut->config.hidden * sizeof(float));
        }
    }
}

static void cut_check(const struct oracle *oracle, const struct tlm_config *config, uint32_t tp,
                      uint32_t chunk)
{
    static struct cut cut;
    pid_t children[RANKS] = {0};

    cut_open(&cut, oracle, config, tp, chunk);
    ranks_start(&cut, rank_run, children);
    for (uint32_t index = 0; index < tp; index++) {
        assert_int_equal(child_status(children[index]), 0);
    }
    cut_compare(&cut);
    cut_close(&cut);
}

/* All legal numbers of ranks; chunk x page, the arrangement alternating from one to the next. */
static void model_check(const struct tlm_config *base)
{
    static const uint32_t tps[] = {1, 2, 3, 4, 8};
    static const uint32_t chunks[] = {1, 7, 64, WHOLE};
    static const uint32_t pages[] = {1, 16, 64};
    struct tlm_config config = *base;
    static struct oracle oracle;

    config.layers = 2;
    config.context_tokens_max = 256;
    oracle_open(&oracle, &config);
    for (uint32_t t = 0; t < 5; t++) {
        if (tlm_config_check(&config, tps[t], NULL) != 0) {
            continue;
        }
        for (uint32_t i = 0; i < 12; i++) {
            config.page_tokens = pages[i % 3];
            config.arrangement = (i + t) % 2 == 0 ? TLM_HND : TLM_NHD;
            cut_check(&oracle, &config, tps[t], chunks[i / 3]);
        }
    }
    oracle_close(&oracle);
}

static void gqa_is_bit_identical_however_cut(void **state)
{
    (void)state;
    for (uint32_t kv_heads = 2; kv_heads <= 8; kv_heads += 2) {
        struct tlm_config config;

        tlm_config_default(TLM_GQA, kv_heads, 40 + kv_heads, &config);
        model_check(&config);
    }
}

static void mla_is_bit_identical_however_cut(void **state)
{
    struct tlm_config config;

    (void)state;
    tlm_config_default(TLM_MLA, 0, 50, &config);
    model_check(&config);
    config.query_heads = 24; /* so that 3 ranks are legal, too */
    model_check(&config);
}

/* Odd sizes go through every tail of the kernels: matrices of 1, 3, 5 panels. */
static void odd_sizes_are_bit_identical(void **state)
{
    static struct oracle oracle;
    struct tlm_config config;

    (void)state;
    tlm_config_default(TLM_GQA, 3, 60, &config);
    config.layers = 1;
    config.hidden = 40;
    config.head_dim = 8;
    config.ffn = 24;
    config.vocab = 104;
    config.page_tokens = 5;
    oracle_open(&oracle, &config);
    cut_check(&oracle, &config, 1, 3);
    cut_check(&oracle, &config, 3, 13);
    oracle_close(&oracle);
}

/* A rank of the tick test: request 0 in one forward, numbered 9. */
static void rank_tick(const struct cut *cut, uint32_t index)
{
    struct tlm_rank *rank = rank_open(cut, index);
    const struct tlm_sequence sequence = {cut->tables[0], cut->oracle->prompts[0], PAGES_MAX, 0,
                                          prompt_tokens[0] - 1};
    const struct tlm_batch batch = {&sequence, &cut->board->word, 1, 9};
    const struct tlm_output output = {
        .context = cut->board->context[index][0],
        .logits = index == cut->tp - 1 ? cut->board->logits : NULL,
    };

    forward_or_exit(rank, &batch, &output);
    free(rank);
}

/* All ranks' outputs are there; the last rank's logits, the slowest, to the last one. */
static void tick_outputs_check(const struct cut *cut)
{
    const struct tlm_reference_result *right = tlm_reference_result(cut->oracle->references[0]);

    assert_true(cut->board->logits[TICK_VOCAB - 1] != 0);
    for (uint32_t index = 0; index < cut->tp; index++) {
        assert_memory_equal(cut->board->context[index][0], right->context,
                            cut->config.hidden * sizeof(float));
    }
}

/* The parent watches the word while the ranks compute; whatever it sees must be true then. */
static void ticks_rise_and_never_precede_their_kv(void **state)
{
    static struct oracle oracle;
    static struct cut cut;
    struct tlm_config config;
    pid_t children[RANKS] = {0};

    (void)state;
    tlm_config_default(TLM_GQA, 4, 70, &config);
    config.layers = 8;
    config.ffn = 1024; /* time to look, between ticks */
    config.vocab = TICK_VOCAB;
    oracle_open(&oracle, &config);
    for (uint32_t turn = 0; turn < 10; turn++) {
        const uint32_t last = 9U << 8 | (config.layers + 1);
        uint32_t seen = 0;

        cut_open(&cut, &oracle, &config, 4, WHOLE);
        ranks_start(&cut, rank_tick, children);
        while (seen != last) {
            const uint32_t word = atomic_load_explicit(&cut.board->word, memory_order_acquire);
            const uint32_t count = word & 0xFF;

            if (word == seen) {
                (void)sched_yield();
                continue;
            }
            assert_in_range(word, seen == 0 ? 9U << 8 : seen + 1, last);
            if (word == last) {
                tick_outputs_check(&cut);
            }
            assert_int_equal(pages_differ(&cut, 0, count > config.layers ? config.layers : count),
                             0);
            seen = word;
        }
        for (uint32_t index = 0; index < cut.tp; index++) {
            assert_int_equal(child_status(children[index]), 0);
        }
        cut_close(&cut);
    }
    oracle_close(&oracle);
}

/* A rank of the abort test: computes the same forward for ever; rank 2 dies after the third. */
static void rank_mortal(const struct cut *cut, uint32_t index)
{
    struct tlm_rank *rank = rank_open(cut, index);
    const struct tlm_sequence sequence = {cut->tables[0], cut->oracle->prompts[0], PAGES_MAX, 0, 8};
    struct tlm_batch batch = {&sequence, &cut->board->word, 1, 0};

    for (;; batch.forward++) {
        if (index == 2 && batch.forward == 3) {
            (void)raise(SIGKILL);
        }
        forward_or_exit(rank, &batch, NULL);
    }
}

static void a_killed_rank_does_not_hang_the_others(void **state)
{
    static struct oracle oracle;
    static struct cut cut;
    struct tlm_config config;
    pid_t children[RANKS] = {0};

    (void)state;
    tlm_config_default(TLM_MLA, 0, 80, &config);
    oracle_open(&oracle, &config);
    cut_open(&cut, &oracle, &config, 4, WHOLE);
    ranks_start(&cut, rank_mortal, children);

    const int status = child_status(children[2]);

    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    while (atomic_load(&cut.board->word) != 3U << 8) {
        (void)sched_yield(); /* rank 0 begins the fourth forward in its own time */
    }
    assert_false(tlm_group_aborted(cut.group));
    tlm_group_abort(cut.group);
    tlm_group_abort(cut.group);
    for (uint32_t index = 0; index < cut.tp; index++) {
        if (index != 2) {
            const int end = child_status(children[index]);

            assert_true(WIFEXITED(end));
            assert_int_equal(WEXITSTATUS(end), CHILD_ABORTED);
        }
    }
    /* The fourth forward ticked no layer, for rank 2 had none. */
    assert_int_equal(atomic_load(&cut.board->word), 3U << 8);
    assert_int_equal(tlm_group_wait(cut.group), TLM_E_ABORTED);
    cut_close(&cut);
    oracle_close(&oracle);
}

/* An oracle is of use only if it sees one wrong float in one page. */
static void one_wrong_element_changes_the_logits(void **state)
{
    static struct oracle oracle;
    static struct cut cut;
    struct tlm_config config;
    float logits[512];

    (void)state;
    for (int mla = 0; mla < 2; mla++) {
        tlm_config_default(mla ? TLM_MLA : TLM_GQA, 2, 90, &config);
        oracle_open(&oracle, &config);
        cut_open(&cut, &oracle, &config, 1, WHOLE);

        const uint64_t right = tlm_reference_result(oracle.references[0])->logits_hash[0];
        struct tlm_rank *rank = rank_open(&cut, 0);
        const struct tlm_sequence sequence = {cut.tables[0],
                                              &oracle.prompts[0][prompt_tokens[0] - 1], PAGES_MAX,
                                              prompt_tokens[0] - 1, 1};
        const struct tlm_batch batch = {&sequence, NULL, 1, 0};
        const struct tlm_output output = {.logits = logits};

        assert_true(prefill_run(&cut, rank, 0) > 0);
        assert_int_equal(tlm_forward(rank, &batch, &output), 0);
        assert_int_equal(tlm_hash(logits, sizeof(logits)), right);
        for (uint32_t layer = 0; layer < config.layers; layer++) {
            float *element =
                (float *)(void *)(cut.kv + tlm_plane_offset(&config, 1, cut.pages, layer, 0) +
                                  cut.tables[0][1] * tlm_page_bytes(&config, 1));
            const float kept = *element;

            *element = kept + 0.5F;
            assert_int_equal(pages_differ(&cut, 0, config.layers), 1);
            assert_int_equal(tlm_forward(rank, &batch, &output), 0);
            assert_int_not_equal(tlm_hash(logits, sizeof(logits)), right);
            *element = kept;
        }
        free(rank);
        cut_close(&cut);
        oracle_close(&oracle);
    }
}

static void page_build_agrees_with_compare(void **state)
{
    static struct oracle oracle;
    struct tlm_config config;
    struct tlm_reference_page page = {
        .tp = 2, .rank = 1, .layer = 3, .plane = 1, .page = 4, .page_tokens = 16};
    uint32_t slot = 99;

    (void)state;
    tlm_config_default(TLM_GQA, 4, 100, &config);
    oracle_open(&oracle, &config);

    const size_t bytes = tlm_page_bytes(&config, 2);
    float *built = memory_new(bytes);

    for (int nhd = 0; nhd < 2; nhd++) {
        page.arrangement = nhd ? TLM_NHD : TLM_HND;
        /* 69 planned positions: 5 in page 4, none in page 5. */
        assert_int_equal(tlm_reference_page_build(oracle.references[0], &page, built), 5);
        assert_int_equal(tlm_reference_page_compare(oracle.references[0], &page, built, &slot), 0);
        assert_int_equal(slot, 99);
        /* head 1, slot 2, dim 3 of 2 heads, 16 slots, 16 dims */
        built[nhd ? (2 * 2 + 1) * 16 + 3 : (1 * 16 + 2) * 16 + 3] += 1;
        assert_int_equal(tlm_reference_page_compare(oracle.references[0], &page, built, &slot), 1);
        assert_int_equal(slot, 2);
        slot = 99;
    }
    page.page = 5;
    assert_int_equal(tlm_reference_slots(oracle.references[0], &page), 0);
    assert_int_equal(tlm_reference_slots(oracle.references[1], &page), 0);
    free(built);
    oracle_close(&oracle);
}

static void outputs_vary_for(const struct tlm_config *config)
{
    enum {
        PROMPTS = 200,
        STEPS = 16
    };
    static uint32_t outputs[PROMPTS][STEPS];
    static struct oracle oracle;
    struct tlm_reference *reference = NULL;
    uint32_t prompt[PROMPT_MAX] = {0};
    uint32_t repeated = 0;

    oracle_open(&oracle, config);
    reference = oracle.references[0];
    for (uint32_t i = 0; i < PROMPTS; i++) {
        const uint32_t length = 2 + i * 37 % (PROMPT_MAX - 1);
        uint32_t changes = 0;

        tlm_prompt(config->seed, i, length, config->vocab, prompt);
        assert_int_equal(tlm_reference_run(reference, prompt, length, STEPS), 0);
        memcpy(outputs[i], tlm_reference_result(reference)->tokens, sizeof(outputs[i]));
        for (uint32_t s = 1; s < STEPS; s++) {
            changes += outputs[i][s] != outputs[i][s - 1];
        }
        assert_true(changes > 0);
        for (uint32_t k = 0; k < i; k++) {
            repeated += memcmp(outputs[k], outputs[i], sizeof(outputs[i])) == 0;
        }
    }
    assert_in_range(repeated, 0, 4);
    oracle_close(&oracle);
}

static void outputs_vary(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct tlm_config config;

        tlm_config_default(TLM_GQA, 2, seed, &config);
        outputs_vary_for(&config);
        tlm_config_default(TLM_MLA, 0, seed, &config);
        outputs_vary_for(&config);
    }
}

static void impossible_configurations_are_refused(void **state)
{
    static const struct {
        uint32_t kv_heads;
        uint32_t tp;
        int status;
    } rows[] = {
        {2, 1, 0},
        {2, 2, 0},
        {2, 4, 0},
        {2, 8, 0},
        {2, 3, TLM_E_CONFIG},
        {2, 16, TLM_E_CONFIG},
        {4, 16, 0},
        {6, 3, 0},
        {6, 6, 0},
        {6, 4, TLM_E_CONFIG},
        {6, 8, TLM_E_CONFIG},
        {8, 8, 0},
        {8, 32, 0},
        {8, 64, TLM_E_CONFIG},
        {8, 0, TLM_E_CONFIG},
        {8, 65, TLM_E_CONFIG},
        {0, 1, TLM_E_CONFIG},
    };
    struct tlm_config config;
    struct tlm_config bad;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *why = NULL;

        tlm_config_default(TLM_GQA, rows[i].kv_heads, 1, &config);
        assert_int_equal(tlm_config_check(&config, rows[i].tp, &why), rows[i].status);
        assert_int_equal(why != NULL, rows[i].status != 0);
    }
    tlm_config_default(TLM_MLA, 0, 1, &config);
    assert_int_equal(tlm_config_check(&config, 8, NULL), 0);
    assert_int_equal(tlm_config_check(&config, 3, NULL), TLM_E_CONFIG);

    uint32_t *const fields[] = {&bad.layers,
                                &bad.hidden,
                                &bad.kv_heads,
                                &bad.query_heads,
                                &bad.head_dim,
                                &bad.latent_dim,
                                &bad.rope_dim,
                                &bad.ffn,
                                &bad.vocab,
                                &bad.page_tokens,
                                &bad.batch_tokens_max,
                                &bad.batch_sequences_max,
                                &bad.context_tokens_max};

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        bad = config;
        *fields[i] = 0;
        assert_int_equal(tlm_config_check(&bad, 1, NULL), TLM_E_CONFIG);
        *fields[i] = UINT32_MAX;
        assert_int_equal(tlm_config_check(&bad, 1, NULL), TLM_E_CONFIG);
    }
    bad = config;
    bad.hidden = 60;
    assert_int_equal(tlm_config_check(&bad, 1, NULL), TLM_E_CONFIG);
}

static void replicated_heads_follow_the_ranks(void **state)
{
    struct tlm_config config;

    (void)state;
    tlm_config_default(TLM_GQA, 2, 1, &config);
    for (uint32_t rank = 0; rank < 8; rank++) {
        assert_int_equal(tlm_kv_head_first(&config, 8, rank), rank / 4);
    }
    assert_int_equal(tlm_kv_head_count(&config, 8), 1);
    assert_int_equal(tlm_kv_head_count(&config, 1), 2);
    assert_int_equal(tlm_page_bytes(&config, 1), 2 * 16 * 16 * 4);
    assert_int_equal(tlm_plane_offset(&config, 1, 10, 1, 1), 3 * 10 * 2048);
    assert_int_equal(tlm_kv_bytes(&config, 1, 10), 8 * 10 * 2048);
    tlm_config_default(TLM_MLA, 0, 1, &config);
    assert_int_equal(tlm_page_bytes(&config, 8), 16 * 40 * 4);
}

/* A refused batch touches neither word nor pages; a limit itself is accepted. */
static void malformed_batches_are_refused(void **state)
{
    static struct oracle oracle;
    static struct cut cut;
    struct tlm_config config;

    (void)state;
    tlm_config_default(TLM_GQA, 2, 110, &config);
    config.batch_tokens_max = 16;
    config.batch_sequences_max = 1;
    config.context_tokens_max = 128;
    oracle_open(&oracle, &config);
    cut_open(&cut, &oracle, &config, 1, WHOLE);

    struct tlm_rank *rank = rank_open(&cut, 0);
    const uint32_t strange_token = config.vocab;
    const uint32_t strange_page = cut.pages;
    const struct tlm_sequence good = {cut.tables[0], oracle.prompts[0], 1, 0, 16};
    struct tlm_sequence bad[] = {good, good, good, good, good, good, good};

    bad[0].token_count = 17;
    bad[1].token_count = 0;
    bad[2].position = 1; /* one page is one slot too few */
    bad[3].position = 128 - 15;
    bad[4].position = UINT32_MAX;
    bad[5].pages = &strange_page;
    bad[6].tokens = &strange_token;
    bad[6].token_count = 1;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const struct tlm_batch batch = {&bad[i], &cut.board->word, 1, 5};

        assert_int_equal(tlm_forward(rank, &batch, NULL), TLM_E_BATCH);
    }
    const struct tlm_batch none = {&good, &cut.board->word, 0, 5};
    const struct tlm_batch many = {bad, &cut.board->word, 2, 5};
    const struct tlm_batch late = {&good, &cut.board->word, 1, TLM_FORWARD_MAX + 1};

    assert_int_equal(tlm_forward(rank, &none, NULL), TLM_E_BATCH);
    assert_int_equal(tlm_forward(rank, &many, NULL), TLM_E_BATCH);
    assert_int_equal(tlm_forward(rank, &late, NULL), TLM_E_BATCH);
    assert_int_equal(atomic_load(&cut.board->word), 0);

    const struct tlm_batch batch = {&good, &cut.board->word, 1, TLM_FORWARD_MAX};

    assert_int_equal(tlm_forward(rank, &batch, NULL), 0);
    assert_int_equal(atomic_load(&cut.board->word), 0xFFFFFF05U);
    free(rank);
    cut_close(&cut);
    oracle_close(&oracle);
}

/* What a mirror is asked, in order; it fails at call `fail_at`, from 1. */
struct mirror_log {
    const struct cut *cut;
    uint32_t calls;
    uint32_t fail_at;
};

/* Fetch and store take turns; each comes before the tick that it is for. */
static int mirror_call(struct mirror_log *log, uint32_t layer, uint32_t call)
{
    assert_int_equal(log->calls, call);
    assert_true((atomic_load(&log->cut->board->word) & 0xFF) <= layer);
    log->calls++;
    return log->calls == log->fail_at ? -1 : 0;
}

static int mirror_fetch(void *context, const struct tlm_batch *batch, uint32_t layer)
{
    assert_int_equal(batch->sequence_count, 1);
    return mirror_call(context, layer, 2 * layer);
}

static int mirror_store(void *context, const struct tlm_batch *batch, uint32_t layer)
{
    const struct mirror_log *log = context;

    assert_int_equal(batch->sequence_count, 1);
    return mirror_call(context, layer, 2 * layer + (layer < log->cut->config.layers));
}

/* Each turn of it fails once: no tick says that what was not stored is there, and nobody waits. */
static void a_mirror_is_asked_before_each_tick(void **state)
{
    static struct oracle oracle;
    static struct cut cut;
    struct tlm_config config;

    (void)state;
    tlm_config_default(TLM_GQA, 2, 111, &config);
    oracle_open(&oracle, &config);
    for (uint32_t fail_at = 0; fail_at <= 2 * config.layers + 1; fail_at++) {
        cut_open(&cut, &oracle, &config, 1, WHOLE);
        struct tlm_rank *rank = rank_open(&cut, 0);
        struct mirror_log log = {.cut = &cut, .fail_at = fail_at};
        const struct tlm_mirror mirror = {mirror_fetch, mirror_store, &log};
        const struct tlm_sequence sequence = {cut.tables[0], oracle.prompts[0], 1, 0, 16};
        const struct tlm_batch batch = {&sequence, &cut.board->word, 1, 5};

        tlm_rank_mirror(rank, &mirror);
        assert_int_equal(tlm_forward(rank, &batch, NULL), fail_at == 0 ? 0 : TLM_E_MIRROR);
        assert_int_equal(tlm_group_aborted(cut.group), fail_at != 0);
        assert_int_equal(log.calls, fail_at == 0 ? 2 * config.layers + 1 : fail_at);
        const uint32_t ticked = fail_at == 0 ? config.layers + 1 : (fail_at - 1) / 2;
        assert_int_equal(atomic_load(&cut.board->word), 5U << 8 | ticked);
        free(rank);
        cut_close(&cut);
    }
    oracle_close(&oracle);
}

static void wrong_memory_is_refused(void **state)
{
    struct tlm_config config;
    struct tlm_config other;
    struct tlm_model *model = NULL;
    struct tlm_group *group = NULL;
    struct tlm_rank *rank = NULL;

    (void)state;
    tlm_config_default(TLM_GQA, 2, 120, &config);

    const size_t bytes = tlm_model_bytes(&config);
    const size_t group_bytes = tlm_group_bytes(&config, 1);
    const size_t rank_bytes = tlm_rank_bytes(&config, 1);
    char *memory = memory_new(bytes);
    char *group_memory = memory_new(group_bytes);
    char *rank_memory = memory_new(rank_bytes);
    float kv[1];

    assert_int_equal(tlm_model_init(memory, bytes - 1, &config, &model), TLM_E_MEMORY);
    assert_int_equal(tlm_model_init(memory + 8, bytes, &config, &model), TLM_E_MEMORY);
    assert_null(model);
    assert_int_equal(tlm_model_init(memory, bytes, &config, &model), 0);
    assert_int_equal(tlm_group_init(group_memory, group_bytes - 1, &config, 1, &group),
                     TLM_E_MEMORY);
    assert_int_equal(tlm_group_init(group_memory, group_bytes, &config, 3, &group), TLM_E_CONFIG);
    other = config;
    other.seed++;
    assert_int_equal(tlm_group_init(group_memory, group_bytes, &other, 1, &group), 0);
    assert_int_equal(tlm_rank_init(rank_memory, rank_bytes, model, group, 0, kv, 0, &rank),
                     TLM_E_CONFIG); /* not the group's model */
    assert_int_equal(tlm_group_init(group_memory, group_bytes, &config, 1, &group), 0);
    assert_int_equal(tlm_rank_init(rank_memory, rank_bytes, model, group, 1, kv, 0, &rank),
                     TLM_E_CONFIG);
    assert_int_equal(tlm_rank_init(rank_memory, rank_bytes - 1, model, group, 0, kv, 0, &rank),
                     TLM_E_MEMORY);
    assert_null(rank);
    assert_int_equal(tlm_rank_init(rank_memory, rank_bytes, model, group, 0, kv, 0, &rank), 0);
    free(rank_memory);
    free(group_memory);
    free(memory);
}

static void small_functions_are_right(void **state)
{
    const float logits[] = {-1, 3, 3, 2};
    uint32_t tokens[64];
    uint32_t again[64];

    (void)state;
    assert_int_equal(tlm_sample_greedy(logits, 4), 1);
    assert_int_equal(tlm_sample_greedy(logits, 1), 0);
    assert_int_equal(tlm_hash("", 0), 0xCBF29CE484222325U);
    assert_int_equal(tlm_hash("a", 1), 0xAF63DC4C8601EC8CU);
    tlm_prompt(1, 2, 64, 100, tokens);
    tlm_prompt(1, 2, 64, 100, again);
    assert_memory_equal(tokens, again, sizeof(tokens));
    for (uint32_t i = 0; i < 64; i++) {
        assert_in_range(tokens[i], 0, 99);
    }
    tlm_prompt(1, 3, 64, 100, again);
    assert_memory_not_equal(tokens, again, sizeof(tokens));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_functions_are_right),
        cmocka_unit_test(impossible_configurations_are_refused),
        cmocka_unit_test(replicated_heads_follow_the_ranks),
        cmocka_unit_test(wrong_memory_is_refused),
        cmocka_unit_test(malformed_batches_are_refused),
        cmocka_unit_test(a_mirror_is_asked_before_each_tick),
        cmocka_unit_test(page_build_agrees_with_compare),
        cmocka_unit_test(one_wrong_element_changes_the_logits),
        cmocka_unit_test(odd_sizes_are_bit_identical),
        cmocka_unit_test(gqa_is_bit_identical_however_cut),
        cmocka_unit_test(mla_is_bit_identical_however_cut),
        cmocka_unit_test(ticks_rise_and_never_precede_their_kv),
        cmocka_unit_test(a_killed_rank_does_not_hang_the_others),
        cmocka_unit_test(outputs_vary),
    };

    (void)alarm(HANG_SECONDS);
    return cmocka_run_group_tests_name("tinylm", tests, NULL, NULL);
}
