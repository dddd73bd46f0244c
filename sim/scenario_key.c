/* The table of keys. Groups stand together, in the order in which files are read and written: what a
 * name brings with it comes before what may change it. */
#include "scenario_key.h"

#include <stddef.h>
#include <string.h>

static const char *const serving_words[] = {"disaggregated", "colocated", NULL};
static const char *const attention_words[] = {"gqa", "mla", NULL};
static const char *const dtype_words[] = {"bf16", "fp8", "fp4", "mxfp4", NULL};
static const char *const arrangement_words[] = {"HND", "NHD", NULL};
static const char *const policy_words[] = {"reserve", "grow", NULL};
static const char *const routing_words[] = {"round-robin", "random", "least-loaded", "prefix",
                                            NULL};
/* Decode nodes keep no prompts: no prefix is there to go by. */
static const char *const decode_routing_words[] = {"round-robin", "random", "least-loaded", NULL};
static const char *const source_words[] = {"drawn", "trace", "servegen", NULL};
static const char *const arrivals_words[] = {"poisson", "gamma", "fixed", "bursts", "closed", NULL};
static const char *const lengths_words[] = {"fixed", "uniform", "lognormal", "empirical", NULL};

_Static_assert(sizeof(enum sim_serving) == sizeof(uint32_t), "words are set through uint32_t");

#define AT(field)     offsetof(struct sim_scenario, field)
#define ROOM(field)   sizeof(((struct sim_scenario *)NULL)->field)
#define DAYS_MAX      ((double)SIM_DAYS_MAX * 86400e9)
#define COMMENT(text) .comment = (text)

#define COUNT(name, field, least, most, ...)                                                       \
    {                                                                                              \
        .path = (name), .kind = SIM_KEY_COUNT, .offset = AT(field), .min = (least), .max = (most), \
        __VA_ARGS__                                                                                \
    }
#define WIDE(name, field, least, most, ...)                                                       \
    {                                                                                             \
        .path = (name), .kind = SIM_KEY_WIDE, .offset = AT(field), .min = (least), .max = (most), \
        __VA_ARGS__                                                                               \
    }
#define BOOL(name, field, ...)                                                 \
    {                                                                          \
        .path = (name), .kind = SIM_KEY_BOOL, .offset = AT(field), __VA_ARGS__ \
    }
#define REAL(name, field, in, least, most, ...)                                                  \
    {                                                                                            \
        .path = (name), .kind = SIM_KEY_REAL, .unit = (in), .offset = AT(field), .min = (least), \
        .max = (most), __VA_ARGS__                                                               \
    }
#define TIME(name, field, ...)                                                                   \
    {                                                                                            \
        .path = (name), .kind = SIM_KEY_TIME, .unit = SIM_UNIT_NANOSECONDS, .offset = AT(field), \
        .max = DAYS_MAX, __VA_ARGS__                                                             \
    }
#define WORD(name, field, list, ...)                                                            \
    {                                                                                           \
        .path = (name), .kind = SIM_KEY_WORD, .offset = AT(field), .words = (list), __VA_ARGS__ \
    }
#define TEXT(name, field, ...)                                                              \
    {                                                                                       \
        .path = (name), .kind = SIM_KEY_TEXT, .offset = AT(field), .capacity = ROOM(field), \
        __VA_ARGS__                                                                         \
    }
#define LIST(name, field, length, ...)                                                     \
    {                                                                                      \
        .path = (name), .kind = SIM_KEY_LIST, .unit = SIM_UNIT_SHARE, .offset = AT(field), \
        .capacity = AT(length), .max = 1, __VA_ARGS__                                      \
    }
#define SPECIAL(name, what, field, ...)                                                           \
    {                                                                                             \
        .path = (name), .kind = (what), .offset = AT(field), .capacity = ROOM(field), __VA_ARGS__ \
    }

/* Names of members cannot stand in parentheses. NOLINTBEGIN(bugprone-macro-parentheses) */
#define SHAPE(name, field, most, what) \
    COUNT("model." name, model.field, 0, most, .flags = SIM_KEY_DERIVED, COMMENT(what))

/* What an engine costs and holds, in prefill, decode and colocated alike. */
#define ENGINE(group, field)                                                                       \
    COUNT(group ".nodes", field.nodes, 1, SIM_NODES_MAX, COMMENT("nodes of this kind")),           \
        SPECIAL(group ".gpu", SIM_KEY_GPU, field.engine.gpu,                                       \
                COMMENT("kind of GPU: halage-sim list gpus")),                                     \
        COUNT(group ".tp", field.engine.tp, 1, SIM_GPUS_MAX,                                       \
              COMMENT("ranks that share attention heads; a node has tp * dp GPUs")),               \
        COUNT(group ".dp", field.engine.dp, 1, SIM_GPUS_MAX,                                       \
              COMMENT("ranks with requests and KV of their own")),                                 \
        COUNT(group ".ep", field.engine.ep, 1, SIM_GPUS_MAX,                                       \
              COMMENT("ranks that experts are spread over: 1 or tp * dp")),                        \
        TEXT(group ".engine", field.engine.name,                                                   \
             COMMENT("whose constants steps take: halage-sim list engines; none")),                \
        TEXT(group ".engine_version", field.engine.version,                                        \
             COMMENT("\"\": the one that the calibration knows")),                                 \
        WORD(group ".weights", field.engine.weights, dtype_words, COMMENT("number format")),       \
        WORD(group ".kv", field.engine.kv, dtype_words, COMMENT("number format of the KV cache")), \
        BOOL(group ".roofline", field.engine.roofline,                                             \
             COMMENT("use nothing measured: a negative control")),                                 \
        TEXT(group ".table", field.engine.table,                                                   \
             COMMENT("file of your own step times; \"\": none")),                                  \
        REAL(group ".step_overhead", field.engine.step_overhead_ns, SIM_UNIT_NANOSECONDS, 0, 60e9, \
             .word = "calibrated", .word_value = -1,                                               \
             COMMENT("time of a step outside the operators")),                                     \
        REAL(group ".layer_overhead", field.engine.layer_overhead_ns, SIM_UNIT_NANOSECONDS, 0,     \
             1e9, .word = "calibrated", .word_value = -1, COMMENT("likewise of a layer")),         \
        REAL(group ".memory_fraction", field.engine.memory_fraction, SIM_UNIT_SHARE, 0.01, 1,      \
             COMMENT("of the GPU's memory, for weights and KV together")),                         \
        WIDE(group ".kv_tokens", field.engine.kv_tokens, 1, 1e12, .word = "auto", .word_value = 0, \
             COMMENT("room for KV of a DP rank; auto: what memory_fraction leaves")),              \
        COUNT(group ".page_tokens", field.engine.page_tokens, 1, 4096,                             \
              COMMENT("tokens of a KV page")),                                                     \
        WORD(group ".arrangement", field.engine.arrangement, arrangement_words,                    \
             COMMENT("of a page: HND (heads first) or NHD")),                                      \
        COUNT(group ".requests_max", field.engine.requests_max, 1, 65535,                          \
              COMMENT("requests open at a node; others wait")),                                    \
        TIME(group ".ingest", field.engine.ingest_ns, COMMENT("to tokenise and route a request")), \
        TIME(group ".dispatch", field.engine.dispatch_ns,                                          \
             COMMENT("until the engine has taken up a message"))

#define BUDGET(group, field)                                                     \
    COUNT(group ".budget_tokens", field.budget_tokens, 1, HLG_TOKENS_MAX,        \
          COMMENT("tokens that a DP rank computes in one step at most")),        \
        BOOL(group ".chunked", field.chunked,                                    \
             COMMENT("cut prompts at the budget; else each is computed whole")), \
        BOOL(group ".prefix_cache", field.prefix_cache,                          \
             COMMENT("keep the pages of prompts, for prompts that begin alike"))

#define SPECIAL_LIST(name, field)                                                                  \
    {                                                                                              \
        .path = (name), .kind = SIM_KEY_DRAFT, .flags = SIM_KEY_ALIAS, .offset = AT(field.accept), \
        .capacity = AT(field.draft), .max = SIM_DRAFT_MAX,                                         \
        COMMENT("MTP: draft tokens of a step, fewer than accept has; 0: no MTP")                   \
    }

#define BATCH(group, field)                                                                        \
    COUNT(group ".sequences_max", field.sequences_max, 1, 65535,                                   \
          COMMENT("sequences in a DP rank's batch; others wait")),                                 \
        WORD(group ".kv_policy", field.policy, policy_words,                                       \
             COMMENT("reserve pages for the whole answer, or grow and preempt the youngest")),     \
        LIST(group ".accept", field.accept, field.draft,                                           \
             COMMENT(                                                                              \
                 "MTP: shares of steps that accept at least 1, 2, ... draft tokens; []: no MTP")), \
        SPECIAL_LIST(group ".draft", field)

#define LENGTHS(group, field, index)                                                    \
    SPECIAL(group ".tokens", SIM_KEY_TOKENS, field, .min = 1, .max = HLG_TOKENS_MAX,    \
            .flags = SIM_KEY_ALIAS, COMMENT("short for kind: fixed with min so many")), \
        WORD(group ".kind", field.kind, lengths_words,                                  \
             COMMENT("fixed (min), uniform, lognormal (mean, cv) or empirical (cdf)")), \
        COUNT(group ".min", field.tokens_min, 1, HLG_TOKENS_MAX,                        \
              COMMENT("shorter ones are made so long")),                                \
        COUNT(group ".max", field.tokens_max, 1, HLG_TOKENS_MAX,                        \
              COMMENT("longer ones are made so short")),                                \
        REAL(group ".mean", field.mean, SIM_UNIT_NONE, 0, HLG_TOKENS_MAX,               \
             COMMENT("tokens, of a lognormal")),                                        \
        REAL(group ".cv", field.cv, SIM_UNIT_NONE, 0, 100,                              \
             COMMENT("its standard deviation over its mean")),                          \
        SPECIAL(group ".cdf", SIM_KEY_CDF, traffic.cdf_path[index],                     \
                COMMENT("file, JSON: pairs [tokens, share of all that are at most so long]"))

/* NOLINTEND(bugprone-macro-parentheses) */

const struct sim_key sim_keys[] = {
    {.path = "schema", .kind = SIM_KEY_SCHEMA, .flags = SIM_KEY_LABEL, COMMENT("of this file: 1")},
    {.path = "extends",
     .kind = SIM_KEY_EXTENDS,
     .flags = SIM_KEY_ALIAS,
     COMMENT("a scenario beside this one, from which all that this file leaves out is taken")},
    TEXT("name", name, .flags = SIM_KEY_LABEL, COMMENT("for reports")),
    TEXT("question", question, .flags = SIM_KEY_LABEL, COMMENT("that it answers")),
    WIDE("seed", seed, 0, 9007199254740992.0, COMMENT("of all draws: equal seed, equal run")),
    SPECIAL("node", SIM_KEY_NODE, node,
            COMMENT("preset, sets all GPUs and NICs: halage-sim list nodes; none")),
    WORD(
        "serving", serving, serving_words,
        COMMENT(
            "disaggregated (prefill and decode) or colocated, whose engine is decode's if unsaid")),

    SPECIAL("model.name", SIM_KEY_MODEL, model.name,
            COMMENT("halage-sim list models; or any, with all keys below given")),
    SPECIAL("model.config", SIM_KEY_CONFIG, config,
            COMMENT("Hugging Face config.json to read the model from; \"\": the catalogue's")),
    WORD("model.attention", model.attention, attention_words, .flags = SIM_KEY_DERIVED,
         COMMENT("gqa or mla")),
    WORD("model.weights", model.weights, dtype_words, .flags = SIM_KEY_DERIVED,
         COMMENT("as published")),
    SHAPE("layers", layers, HLG_LAYERS_MAX, "of the whole model"),
    SHAPE("hidden", hidden, 1 << 20, "width of the hidden state"),
    SHAPE("heads", heads, 4096, "query heads"),
    SHAPE("kv_heads", kv_heads, 4096, "gqa: heads of K and V; mla: 1"),
    SHAPE("head_dim", head_dim, 4096, "gqa"),
    SHAPE("q_lora_rank", q_lora_rank, 1 << 20, "mla; 0: queries are not compressed"),
    SHAPE("kv_lora_rank", kv_lora_rank, 1 << 20, "mla"),
    SHAPE("qk_nope_head_dim", qk_nope_head_dim, 4096, "mla"),
    SHAPE("qk_rope_head_dim", qk_rope_head_dim, 4096, "mla"),
    SHAPE("v_head_dim", v_head_dim, 4096, "mla"),
    SHAPE("dense_layers", dense_layers, HLG_LAYERS_MAX, "the first ones, without experts"),
    SHAPE("dense_inter", dense_inter, 1 << 20, "width of their feed-forward part"),
    SHAPE("experts", experts, 4096, "routed ones of a layer; 0: none"),
    SHAPE("topk", topk, 256, "experts of a token"),
    SHAPE("shared_experts", shared_experts, 256, "that every token goes through"),
    SHAPE("moe_inter", moe_inter, 1 << 20, "width of an expert"),
    SHAPE("vocab", vocab, 1 << 24, "tokens of the vocabulary"),
    BOOL("model.tied", model.is_embedding_shared, .flags = SIM_KEY_DERIVED,
         COMMENT("output head and input embedding are one matrix")),
    SHAPE("mtp_layers", mtp_layers, 16, "for multi-token prediction"),
    SHAPE("max_context", max_context, HLG_TOKENS_MAX, "tokens of prompt and answer"),
    SHAPE("window_layers", window_layers, HLG_LAYERS_MAX, "that attend to a window only"),
    SHAPE("window_tokens", window_tokens, HLG_TOKENS_MAX, "the window"),

    ENGINE("prefill", prefill),
    BUDGET("prefill", prefill),
    COUNT("prefill.forwards", prefill.forwards, 1, 2,
          COMMENT("in flight: 2 when the next is composed while one runs")),
    BOOL("prefill.layerwise", prefill.layerwise,
         COMMENT("send a layer when it is computed; else all at the end of the pass")),

    ENGINE("decode", decode),
    BATCH("decode", decode),
    BOOL("decode.last_token", decode.last_token,
         COMMENT("the first step computes the prompt's last token; else prefill sampled it")),

    ENGINE("colocated", colocated), /* left out: as decode's, see follow_decode() */
    BUDGET("colocated", colocated),
    BATCH("colocated", colocated),

    SPECIAL("network.nic", SIM_KEY_NIC, network.nic.name,
            COMMENT("kind of NIC: halage-sim list nics")),
    REAL("network.bandwidth", network.nic.bandwidth, SIM_UNIT_BANDWIDTH, 1e3, 1e15,
         .flags = SIM_KEY_DERIVED, COMMENT("of a NIC each way, as bulk writes reach it")),
    REAL("network.line_rate", network.nic.line_rate, SIM_UNIT_BANDWIDTH, 1e3, 1e15,
         .flags = SIM_KEY_DERIVED, COMMENT("nominal")),
    WIDE("network.operation", network.nic.op_ps, 0, 1e12, .unit = SIM_UNIT_PICOSECONDS,
         .flags = SIM_KEY_DERIVED, COMMENT("time of a NIC for one piece")),
    TIME("network.latency", network.nic.latency_ns, .flags = SIM_KEY_DERIVED,
         COMMENT("one way, of a write, with its posting")),
    COUNT("network.pieces_max", network.nic.pieces_max, 1, 1 << 20, .flags = SIM_KEY_DERIVED,
          COMMENT("pieces under way at a NIC")),
    COUNT("network.background", network.nic.background_ppm, 0, 999999, .unit = SIM_UNIT_SHARE,
          .flags = SIM_KEY_DERIVED,
          COMMENT("share of the bandwidth that other traffic takes; 0: not modelled")),
    REAL("network.busy_factor", network.nic.busy_factor, SIM_UNIT_NONE, 1, 1000,
         .flags = SIM_KEY_DERIVED,
         COMMENT("time of a piece on a busy GPU over an idle one's; 1: not modelled")),
    COUNT("network.nics_per_gpu", network.nics_per_gpu, 1, HLG_RAILS_MAX,
          COMMENT("NICs of a rank")),
    SPECIAL("network.fold", SIM_KEY_FOLD, network.fold,
            COMMENT("simulate a node as one rank and rail: auto (where exact), always, never")),
    COUNT("network.pod_nodes", network.pod_nodes, 0, SIM_NODES_MAX,
          COMMENT("nodes below one uplink; 0: the fabric blocks nowhere")),
    REAL("network.oversubscription", network.oversubscription, SIM_UNIT_NONE, 1, 1000,
         COMMENT("NIC bandwidth of a pod over its uplink's")),
    TIME("network.message", network.message_ns, COMMENT("one way, of a control message")),
    COUNT("network.fence_domains", network.fence_domains, 1, 1024,
          COMMENT("of a node; peers beyond share one")),
    COUNT("network.context", network.context_bytes, 0, 1073741824, .unit = SIM_UNIT_BYTES,
          COMMENT("hidden states or logits handed over last; 0B: none")),
    BOOL("network.page_flows", network.page_flows,
         COMMENT("one flow a page instead of a batch, for comparison; slow")),

    WORD("routing.prefill", prefill_routing, routing_words,
         COMMENT("round-robin, random, least-loaded, prefix; of colocated nodes too")),
    WORD("routing.decode", decode_routing, decode_routing_words,
         COMMENT("likewise, but for prefix: decode nodes keep no prompts")),
    REAL("routing.load_weight", routing_load_weight, SIM_UNIT_NONE, 0, 1e9,
         COMMENT("prefix: cached tokens less so many times the open ones")),

    WORD("traffic.source", traffic.kind, source_words,
         COMMENT("drawn (arrivals, prompt, output), trace or servegen")),
    COUNT("traffic.requests", traffic.drawn.count, 1, SIM_REQUESTS_MAX,
          COMMENT("how many are drawn")),
    WORD("traffic.arrivals.kind", traffic.drawn.arrivals.kind, arrivals_words,
         COMMENT("poisson, gamma (cv), fixed, bursts (burst_requests), closed (users, pause)")),
    REAL("traffic.arrivals.rate", traffic.drawn.arrivals.rate_rps, SIM_UNIT_RATE, 1e-6, 1e9,
         COMMENT("of requests, over the whole cluster")),
    REAL("traffic.arrivals.cv", traffic.drawn.arrivals.cv, SIM_UNIT_NONE, 0.001, 100,
         COMMENT("gamma: standard deviation of the gaps over their mean")),
    COUNT("traffic.arrivals.burst_requests", traffic.drawn.arrivals.burst_requests, 1,
          SIM_REQUESTS_MAX, COMMENT("bursts: requests that come at once")),
    COUNT("traffic.arrivals.users", traffic.drawn.arrivals.users, 1, SIM_REQUESTS_MAX,
          COMMENT("closed: each has one request open at a time")),
    TIME("traffic.arrivals.pause", traffic.drawn.arrivals.pause_ns,
         COMMENT("closed: between an answer and the user's next request")),
    LENGTHS("traffic.prompt", traffic.drawn.prompt, 0),
    LENGTHS("traffic.output", traffic.drawn.output, 1),
    TEXT("traffic.trace.format", traffic.format, COMMENT("azure, burstgpt, mooncake or bailian")),
    TEXT("traffic.trace.file", traffic.path, COMMENT("the trace; of servegen, the rates")),
    COUNT("traffic.trace.requests", traffic.count_max, 1, SIM_REQUESTS_MAX, .word = "all",
          .word_value = 0, COMMENT("the first ones")),
    REAL("traffic.trace.speed", traffic.speed, SIM_UNIT_NONE, 1e-6, 1e6,
         COMMENT("its time runs so much faster")),
    TEXT("traffic.servegen.lengths", traffic.lengths_path, COMMENT("file of length quantiles")),
    TIME("traffic.servegen.begin", traffic.begin_ns, COMMENT("of the day; whole seconds")),
    TIME("traffic.servegen.end", traffic.limit_ns, COMMENT("windows begin before it")),
    TIME("traffic.servegen.period", traffic.period_ns, COMMENT("that a row of rates holds for")),

    TIME("measure.warmup", measure.warmup_ns,
         COMMENT("requests that arrive earlier are served and not measured")),
    TIME("measure.window", measure.window_ns, .word = "all",
         COMMENT("requests that arrive so long after it are measured")),
    COUNT("measure.warmup_requests", measure.warmup_requests, 0, SIM_REQUESTS_MAX,
          COMMENT("the first ones are not measured either")),
    BOOL("measure.drain_warmup", measure.drain_warmup,
         COMMENT("the others come when the warm-up requests are done")),
    TIME("measure.stop", measure.stop_ns, .word = "never",
         COMMENT("the run ends then, done or not")),
    REAL("measure.slo_ttft", measure.slo_ttft_ns, SIM_UNIT_NANOSECONDS, 1, DAYS_MAX, .word = "none",
         .word_value = 0, COMMENT("time to the first token that is good enough")),
    REAL("measure.slo_tpot", measure.slo_tpot_ns, SIM_UNIT_NANOSECONDS, 1, DAYS_MAX, .word = "none",
         .word_value = 0, COMMENT("likewise, of each further token")),
};

const uint32_t sim_key_count = sizeof sim_keys / sizeof sim_keys[0];

static const char *const groups[] = {
    "",
    "model",
    "prefill",
    "decode",
    "colocated",
    "network",
    "routing",
    "traffic",
    "traffic.arrivals",
    "traffic.prompt",
    "traffic.output",
    "traffic.trace",
    "traffic.servegen",
    "measure",
};

const char *sim_key_group(uint32_t index)
{
    return index < sizeof groups / sizeof groups[0] ? groups[index] : NULL;
}

bool sim_key_in_group(const char *path, const char *group, const char **name)
{
    const size_t bytes = strlen(group);
    const char *last = path;
    if (bytes > 0) {
        if (strncmp(path, group, bytes) != 0 || path[bytes] != '.') {
            return false;
        }
        last = path + bytes + 1;
    }
    if (*last == '\0' || strchr(last, '.') != NULL) {
        return false;
    }
    *name = last;
    return true;
}

const struct sim_key *sim_key_find(const char *path)
{
    for (uint32_t i = 0; i < sim_key_count; i++) {
        if (strcmp(sim_keys[i].path, path) == 0) {
            return &sim_keys[i];
        }
    }
    return NULL;
}
