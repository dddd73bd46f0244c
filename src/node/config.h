/*
 * What a node, or a whole demonstration, runs: the model, its cache, how each side shards it, the
 * provider. All programs share these options, so that a line copied from one fits the others.
 */
#ifndef HALAGE_NODE_CONFIG_H
#define HALAGE_NODE_CONFIG_H

#include "plant.h"

#include <argp.h>
#include <halage/log.h>
#include <halage/message.h>
#include <halage/plan.h>
#include <halage/transport/sealed.h>
#include <tinylm.h>

/* Keys of the shared options; a program's own keys start at NODE_KEY_OWN. */
enum node_key {
    NODE_KEY_MODEL = 0x200,
    NODE_KEY_KV_HEADS,
    NODE_KEY_LAYERS,
    NODE_KEY_HIDDEN,
    NODE_KEY_PAGE_TOKENS,
    NODE_KEY_LAYOUT,
    NODE_KEY_SOURCE_TP,
    NODE_KEY_TARGET_TP,
    NODE_KEY_TARGET_DP,
    NODE_KEY_CHUNK_TOKENS,
    NODE_KEY_PROVIDER,
    NODE_KEY_SEED,
    NODE_KEY_ADVERTISE,
    NODE_KEY_RECORD,
    NODE_KEY_KEY_FILE,
    NODE_KEY_INSECURE,
    NODE_KEY_LEASE_MS,
    NODE_KEY_WATCHDOG_MS,
    NODE_KEY_PAGES,
    NODE_KEY_DATA_PORT,
    NODE_KEY_NODE_ID,
    NODE_KEY_GUARD,
    NODE_KEY_REDIAL,
    NODE_KEY_SOURCES,
    NODE_KEY_SOURCE,
    NODE_KEY_METRICS,
    NODE_KEY_CORES,
    NODE_KEY_NICS,
    NODE_KEY_MEMORY,
    NODE_KEY_DEVICE,
    NODE_KEY_STAGED,
    NODE_KEY_FLUSH,
    NODE_KEY_PLANT,
    NODE_KEY_OWN = 0x300,
};

/* Rows of a table of struct argp_option. They are in one table because options.h wants that. */
#define NODE_OPTION_ROWS                                                                           \
    {"model", NODE_KEY_MODEL, "gqa|mla", 0, "Attention of the model (default gqa)", 0},            \
        {"kv-heads", NODE_KEY_KV_HEADS, "N", 0, "KV heads of a gqa model (default 4)", 0},         \
        {"layers", NODE_KEY_LAYERS, "N", 0, "Layers (default 4)", 0},                              \
        {"hidden",                                                                                 \
         NODE_KEY_HIDDEN,                                                                          \
         "N",                                                                                      \
         0,                                                                                        \
         "Width of the model; more makes each layer cost more (default 64)",                       \
         0},                                                                                       \
        {"page-tokens", NODE_KEY_PAGE_TOKENS, "N", 0, "Tokens of a KV page (default 16)", 0},      \
        {"layout", NODE_KEY_LAYOUT, "hnd|nhd", 0, "Order within a page (default hnd)", 0},         \
        {"source-tp",                                                                              \
         NODE_KEY_SOURCE_TP,                                                                       \
         "N",                                                                                      \
         0,                                                                                        \
         "Tensor-parallel ranks of a prefill node (default 2)",                                    \
         0},                                                                                       \
        {"target-tp",                                                                              \
         NODE_KEY_TARGET_TP,                                                                       \
         "N",                                                                                      \
         0,                                                                                        \
         "Tensor-parallel ranks of a decode pool (default 1)",                                     \
         0},                                                                                       \
        {"target-dp",                                                                              \
         NODE_KEY_TARGET_DP,                                                                       \
         "N",                                                                                      \
         0,                                                                                        \
         "Data-parallel pools of a decode node (default 1)",                                       \
         0},                                                                                       \
        {"chunk-tokens",                                                                           \
         NODE_KEY_CHUNK_TOKENS,                                                                    \
         "N",                                                                                      \
         0,                                                                                        \
         "Tokens of one prefill forward, over all its requests; 0 or 'unlimited': as many as "     \
         "fit (default 64)",                                                                       \
         0},                                                                                       \
        {"provider",                                                                               \
         NODE_KEY_PROVIDER,                                                                        \
         "NAME",                                                                                   \
         0,                                                                                        \
         "libfabric's provider: auto, tcp, or libfabric's own name (default auto)",                \
         0},                                                                                       \
        {"seed", NODE_KEY_SEED, "N", 0, "Of the weights, the prompts and the lengths (default 1)", \
         0},                                                                                       \
        {"advertise",                                                                              \
         NODE_KEY_ADVERTISE,                                                                       \
         "IP",                                                                                     \
         0,                                                                                        \
         "Address of this host that KV pages move from and to (default: the one that leads to "    \
         "the other node)",                                                                        \
         0},                                                                                       \
        {"record",                                                                                 \
         NODE_KEY_RECORD,                                                                          \
         "DIR",                                                                                    \
         0,                                                                                        \
         "Directory in which each node leaves its trace, for 'halage trace'; traces hold prompts", \
         0},                                                                                       \
        {"key-file",                                                                               \
         NODE_KEY_KEY_FILE,                                                                        \
         "FILE",                                                                                   \
         0,                                                                                        \
         "The key that all nodes share, as 'halage key' prints it; beyond loopback there must be " \
         "one",                                                                                    \
         0},                                                                                       \
        {"insecure",                                                                               \
         NODE_KEY_INSECURE,                                                                        \
         NULL,                                                                                     \
         0,                                                                                        \
         "Without a key, talk to other hosts all the same: whoever reaches a node can use it",     \
         0},                                                                                       \
        {"lease-ms",                                                                               \
         NODE_KEY_LEASE_MS,                                                                        \
         "N",                                                                                      \
         0,                                                                                        \
         "Milliseconds without a word after which the other node is given up (default 30000)",     \
         0},                                                                                       \
        {"watchdog-ms",                                                                            \
         NODE_KEY_WATCHDOG_MS,                                                                     \
         "N",                                                                                      \
         0,                                                                                        \
         "Milliseconds after which a node ends that is stuck inside the provider; 0: never "       \
         "(default 30000)",                                                                        \
         0},                                                                                       \
        {"pages",                                                                                  \
         NODE_KEY_PAGES,                                                                           \
         "N",                                                                                      \
         0,                                                                                        \
         "KV pages of a pool; requests wait for pages (default: enough for 10 of the longest)",    \
         0},                                                                                       \
        {"data-port",                                                                              \
         NODE_KEY_DATA_PORT,                                                                       \
         "N",                                                                                      \
         0,                                                                                        \
         "First TCP port that KV pages move through; each endpoint takes the next one that is "    \
         "free (default: any)",                                                                    \
         0},                                                                                       \
        {"metrics",                                                                                \
         NODE_KEY_METRICS,                                                                         \
         "PORT",                                                                                   \
         0,                                                                                        \
         "Serve /metrics and /healthz on 127.0.0.1:PORT; 0: any, which is printed",                \
         0},                                                                                       \
        {"cores",                                                                                  \
         NODE_KEY_CORES,                                                                           \
         "LIST",                                                                                   \
         0,                                                                                        \
         "Cores that a node's messenger keeps to, as 0-3,8; 'auto': those near its NIC or GPU, "   \
         "see 'halage topo' (default: any)",                                                       \
         0},                                                                                       \
        {"nics",                                                                                   \
         NODE_KEY_NICS,                                                                            \
         "LIST",                                                                                   \
         0,                                                                                        \
         "NICs to use, names with commas between; 'auto': each lane those of its GPU, see "        \
         "'halage topo' (default: all of the provider)",                                           \
         0},                                                                                       \
        {"memory",                                                                                 \
         NODE_KEY_MEMORY,                                                                          \
         "host|cuda",                                                                              \
         0,                                                                                        \
         "Where KV pages live: cuda is memory of NVIDIA GPUs (default host)",                      \
         0},                                                                                       \
        {"device",                                                                                 \
         NODE_KEY_DEVICE,                                                                          \
         "N",                                                                                      \
         0,                                                                                        \
         "With --memory cuda: the GPU of all ranks, as CUDA_VISIBLE_DEVICES numbers them "         \
         "(default: rank I has the I-th, counted round)",                                          \
         0},                                                                                       \
        {"staged",                                                                                 \
         NODE_KEY_STAGED,                                                                          \
         NULL,                                                                                     \
         0,                                                                                        \
         "With --memory cuda: move pages through pinned host memory, for providers that cannot "   \
         "reach memory of GPUs",                                                                   \
         0},                                                                                       \
        {"flush",                                                                                  \
         NODE_KEY_FLUSH,                                                                           \
         "auto|none|cuda|read",                                                                    \
         0,                                                                                        \
         "With --memory cuda and without --staged: what a decode node does before it reads what "  \
         "NICs wrote to a GPU (default auto)",                                                     \
         0},                                                                                       \
        {"node-id", NODE_KEY_NODE_ID, "N", OPTION_HIDDEN, NULL, 0},                                \
        {"guard", NODE_KEY_GUARD, NULL, OPTION_HIDDEN, NULL, 0},                                   \
    {                                                                                              \
        "plant", NODE_KEY_PLANT, "FAULT", OPTION_HIDDEN, NULL, 0                                   \
    }

/* Row of the programs that dial. */
#define NODE_REDIAL_ROW                                                                            \
    {                                                                                              \
        "redial", NODE_KEY_REDIAL, NULL, 0,                                                        \
            "When the prefill node is gone, dial it again until it is back, and ask it again for " \
            "the requests that it had",                                                            \
            0                                                                                      \
    }

/* Row of the programs that start or dial prefill nodes. */
#define NODE_SOURCES_ROW                                                                           \
    {                                                                                              \
        "sources", NODE_KEY_SOURCES, "N", 0,                                                       \
            "Prefill nodes that send each request, a share of the prefill ranks each (default 1)", \
            0                                                                                      \
    }

/* Row of the prefill node. */
#define NODE_SOURCE_ROW                                                                   \
    {                                                                                     \
        "source", NODE_KEY_SOURCE, "I/N", 0,                                              \
            "This is the I-th of N prefill nodes that send each request (default 1/1)", 0 \
    }

struct node_config {
    struct tlm_config model;
    uint32_t kv_heads;     /* as given; the model's own differ for MLA */
    uint32_t source_tp;    /* of all sources together */
    uint32_t sources;      /* prefill nodes that send each request, 1..NODE_SOURCES_MAX */
    uint32_t source_index; /* prefill: which of them this node is */
    uint32_t target_tp;
    uint32_t target_dp;
    uint32_t chunk_tokens; /* 0: unlimited */
    const char *provider;
    const char *advertise;             /* IP to bind endpoints to; NULL: found by routing */
    const char *key_file;              /* NULL: no key */
    uint8_t key[HLG_SEALED_KEY_BYTES]; /* of key_file */
    bool insecure;                     /* without a key, talk to other hosts all the same */
    const char *record;                /* directory of traces; NULL: none */
    uint32_t lease_ms;                 /* 0: the default */
    uint32_t watchdog_ms;              /* 0: none */
    uint32_t pages;                    /* of a pool; 0: the default */
    uint32_t data_port;                /* 0: any */
    uint32_t node_id;                  /* identity that outlives a restart; 0: drawn */
    bool guard;                        /* decode: watch the pages that are free; for tests */
    bool redial;                       /* decode */
    const char *cores;                 /* list, or "auto"; NULL: any */
    const char *nics;                  /* NULL: all */
    const char *metrics;               /* as given, a port; NULL: none */
    uint32_t metrics_port;             /* 0: any */
    bool cuda;                         /* KV pages are in memory of GPUs */
    bool staged;                       /* and move through pinned host memory */
    const char *flush_text;            /* as given; NULL: auto */
    uint32_t flush;                    /* enum hlg_flush_policy */
    const char *device_text;           /* as given; NULL: by rank */
    uint32_t device;                   /* GPU of all ranks, where device_text says so */
    struct plant plant;
    const char *plant_text; /* as given; NULL: none */
};

/* Bounds of the engines. */
enum {
    NODE_SOURCES_MAX = 4,     /* prefill nodes that send a request */
    NODE_REQUESTS_MAX = 512,  /* open at a time on one node */
    NODE_SEQUENCES_MAX = 64,  /* of one forward */
    NODE_FORWARDS_MAX = 1024, /* announced and not wholly sent; > NODE_CONTEXT_TOKENS */
    NODE_CONTEXT_TOKENS = 512 /* longest sequence: prompt and output */
};

/* Level of a messenger's log: HALAGE_LOG where it is set, else `otherwise`. Returns whether HALAGE_LOG is a level; else
 * a line is on stderr. */
bool node_log_level(const char *program, enum hlg_log_level otherwise, enum hlg_log_level *level);

void node_config_default(struct node_config *config);

/*
 * Take one option. For an argp parser: returns 0, EINVAL (one line was printed) or
 * ARGP_ERR_UNKNOWN.
 */
int node_config_parse(int key, const char *argument, const char *program,
                      struct node_config *config);

/*
 * Check what options cannot check one by one.
 *
 * text  [capacity] a sentence when the answer is not 0
 *
 * Returns 0, -HLG_EINVAL (a value out of range) or -HLG_EPLAN (cannot be sharded, or planned, so).
 */
int node_config_check(const struct node_config *config, char *text, size_t capacity);

/* Where the pages are and how they move, for people: "host", "cuda, flush policy auto", "cuda, staged through pinned
 * host memory". */
#define NODE_MEMORY_BYTES 64u
void node_config_memory(const struct node_config *config, char *text, size_t capacity);

/* Layout of a prefill node (HLG_ROLE_PREFILL; of the ranks that this source hosts) or a decode node. */
void node_layout(const struct node_config *config, enum hlg_role role, struct hlg_layout *layout);

/* The same layout with all its ranks hosted. */
void node_layout_whole(const struct node_config *config, enum hlg_role role,
                       struct hlg_layout *layout);

/* Hash of all that two nodes must agree on for a KV cache to mean the same on both. */
void node_fingerprint(const struct tlm_config *model, uint8_t fingerprint[HLG_FINGERPRINT_BYTES]);

/* Words of struct node_config as options, but for --sources and --source, "--name=value". Each is malloc'd: free them all, and the
 * array's use is the caller's. Returns how many, <= NODE_CONFIG_WORDS, or -HLG_ENOMEM. */
#define NODE_CONFIG_WORDS 32
int node_config_words(const struct node_config *config, char *words[NODE_CONFIG_WORDS]);

/* What is in effect, after the options of a file, in one line: "config FILE: layers=4 pages=300 ...". */
void node_config_tell(const struct node_config *config, const char *file, char *text,
                      size_t capacity);

/* The same in one line for people. */
void node_config_print(const struct node_config *config, char *text, size_t capacity);

#endif
