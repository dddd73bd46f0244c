/*
 * The decorator `staged` over `net`, from the side of who sends: all that the suite writes leaves memory of
 * the double of libcuda, through slots. The suite's own memory becomes that: it is registered with the
 * driver, and the transport registers it twice, as a GPU's to be sent and as the host's to be received.
 */
#define _GNU_SOURCE
#include "ofi.h"

#include <dlfcn.h>
#include <time.h>

#include "halage/transport/staged.h"
#include "memory/cuda_dl.h"

#define PAIRS_MAX 2048u

static const struct cuda *cuda;
static cuda_result (*pin)(void *host, size_t bytes, unsigned flags);
static cuda_result (*unpin)(void *host);

/* What one registration of the suite is below; by endpoint and number of the host's. */
static struct pair {
    const struct hlg_transport *t;
    hlg_mem host;
    hlg_mem gpu;
    void *base;
} pairs[PAIRS_MAX];

/* Of each fabric: the decorator, and what is below it. */
static struct {
    struct hlg_staged *staged;
    struct hlg_fabric *below;
    struct hlg_fabric wrapped;
} worlds[16];

static const struct hlg_transport_ops *real;
static struct hlg_transport_ops shim;

static struct pair *pair_of(const struct hlg_transport *t, hlg_mem host)
{
    for (uint32_t i = 0; i < PAIRS_MAX; i++) {
        if (pairs[i].t == t && (t == NULL || pairs[i].host == host)) {
            return &pairs[i];
        }
    }
    return NULL;
}

/* Memory that the suite registers twice is pinned once, as the driver wants it. */
static bool is_used(const void *base)
{
    for (uint32_t i = 0; i < PAIRS_MAX; i++) {
        if (pairs[i].t != NULL && pairs[i].base == base) {
            return true;
        }
    }
    return false;
}

static void forget(struct pair *pair)
{
    void *base = pair->base;

    *pair = (struct pair){0};
    HLG_ASSERT(is_used(base) || unpin(base) == CUDA_OK);
}

static int mem_register(struct hlg_transport *t, const struct hlg_mem_region *region, hlg_mem *mem)
{
    struct hlg_mem_region gpu = *region;
    struct pair pair = {.t = t, .base = region->base};

    int code = real->mem_register(t, region, &pair.host);
    if (code != 0) {
        return code;
    }
    HLG_ASSERT(is_used(region->base) || pin(region->base, region->bytes, 0) == CUDA_OK);
    gpu.kind = HLG_MEMORY_CUDA;
    code = real->mem_register(t, &gpu, &pair.gpu);
    HLG_ASSERT(code == 0);
    *pair_of(NULL, 0) = pair;
    *mem = pair.host;
    return 0;
}

static int mem_release(struct hlg_transport *t, hlg_mem mem)
{
    struct pair *pair = pair_of(t, mem);

    const int code = real->mem_release(t, mem);
    if (code != 0 || pair == NULL) {
        return code;
    }
    HLG_ASSERT(real->mem_release(t, pair->gpu) == 0);
    forget(pair);
    return 0;
}

static int64_t write_pieces(struct hlg_transport *t, const struct hlg_paged_write *w)
{
    const struct pair *pair = pair_of(t, w->mem);
    struct hlg_paged_write write = *w;

    write.mem = pair != NULL ? pair->gpu : w->mem;
    return real->write(t, &write);
}

static void free_endpoint(struct hlg_transport *t)
{
    real->free(t);
    for (struct pair *pair = pairs; pair < pairs + PAIRS_MAX; pair++) {
        if (pair->t == t) {
            forget(pair);
        }
    }
}

static int open_endpoint(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                         struct hlg_transport **out)
{
    uint32_t w = 0;

    while (&worlds[w].wrapped != fabric) {
        w++;
    }
    struct hlg_fabric *staged = hlg_staged_fabric(worlds[w].staged);
    const int code = staged->open(staged, lane, rail, out);
    if (code != 0) {
        return code;
    }
    real = (*out)->ops;
    shim = *real;
    shim.mem_register = mem_register;
    shim.mem_release = mem_release;
    shim.write = write_pieces;
    shim.free = free_endpoint;
    (*out)->ops = &shim;
    return 0;
}

static void query(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    uint32_t w = 0;

    while (&worlds[w].wrapped != fabric) {
        w++;
    }
    hlg_staged_fabric(worlds[w].staged)->query(hlg_staged_fabric(worlds[w].staged), caps);
}

static hlg_time now(struct hlg_fabric *fabric)
{
    (void)fabric;
    struct timespec time;
    HLG_ASSERT(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return (hlg_time)time.tv_sec * HLG_NS_PER_S + (hlg_time)time.tv_nsec;
}

static void load_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    char error[256] = "";
    int status = 0;
    int code = 0;
    cuda_context context = NULL;
    cuda_get_v2 get = NULL;

    if (cuda != NULL) {
        return;
    }
    cuda = cuda_open(&code, error, sizeof error);
    if (cuda == NULL) {
        (void)fprintf(stderr, "%s\n", error);
        abort();
    }
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    memcpy(&get, &symbol, sizeof get);
    HLG_ASSERT(get("cuMemHostRegister", &symbol, 6050, 0, &status) == CUDA_OK);
    memcpy(&pin, &symbol, sizeof pin);
    HLG_ASSERT(get("cuMemHostUnregister", &symbol, 4000, 0, &status) == CUDA_OK);
    memcpy(&unpin, &symbol, sizeof unpin);
    HLG_ASSERT(cuda->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_OK);
    HLG_ASSERT(cuda->cuCtxPushCurrent(context) == CUDA_OK);
}

static struct hlg_fabric *open_fabric(uint32_t node, hlg_time stall_ns)
{
    struct hlg_staged_config config = {.below = ofi_backend_open("net", stall_ns)};
    char error[256] = "";
    uint32_t w = 0;

    (void)node;
    load_driver();
    while (worlds[w].staged != NULL) {
        w++;
    }
    if (config.below == NULL ||
        hlg_staged_create(&config, &worlds[w].staged, error, sizeof error) != 0) {
        (void)fprintf(stderr, "%s\n", error);
        return NULL;
    }
    worlds[w].below = config.below;
    worlds[w].wrapped = *hlg_staged_fabric(worlds[w].staged);
    worlds[w].wrapped.open = open_endpoint;
    worlds[w].wrapped.query = query;
    worlds[w].wrapped.now = now;
    return &worlds[w].wrapped;
}

static void close_fabric(struct hlg_fabric *fabric)
{
    uint32_t w = 0;

    while (&worlds[w].wrapped != fabric) {
        w++;
    }
    hlg_staged_destroy(worlds[w].staged);
    ofi_backend_close(worlds[w].below);
    worlds[w].staged = NULL;
}

const struct conformance_backend conformance_backend = {
    .name = "staged-net",
    .limits = LIMIT_TAKES_FIRST, /* into slots, before the provider is asked */
    .open = open_fabric,
    .close = close_fabric,
    .nobody = ofi_backend_nobody_ip,
};
