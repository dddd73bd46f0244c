#include "pump_internal.h"

#include <stdlib.h>

/* Functions of one type for both machines: a call through a pointer of another type is undefined. */
static int prefill_handle(void *machine, const struct hlg_event *event)
{
    return hlg_prefill_handle(machine, event);
}

static int prefill_next(void *machine, uint32_t lane, unsigned kinds, struct hlg_action *action)
{
    return hlg_prefill_next(machine, lane, kinds, action);
}

static hlg_time prefill_deadline(const void *machine)
{
    return hlg_prefill_deadline(machine);
}

static int prefill_check(const void *machine)
{
    return hlg_prefill_check(machine);
}

static uint32_t prefill_open(const void *machine)
{
    return hlg_prefill_open(machine);
}

static bool prefill_awaits(const void *machine)
{
    return hlg_prefill_awaits(machine);
}

static hlg_handle prefill_submitted(const void *machine)
{
    (void)machine;
    return 0;
}

static void prefill_stats(const void *machine, struct hlg_pump_stats *stats)
{
    hlg_prefill_stats(machine, &stats->prefill);
    stats->layers_early = stats->prefill.layers_early;
    stats->layers_late = stats->prefill.layers_late;
}

static int decode_handle(void *machine, const struct hlg_event *event)
{
    return hlg_decode_handle(machine, event);
}

static int decode_next(void *machine, uint32_t lane, unsigned kinds, struct hlg_action *action)
{
    return hlg_decode_next(machine, lane, kinds, action);
}

static hlg_time decode_deadline(const void *machine)
{
    return hlg_decode_deadline(machine);
}

static int decode_check(const void *machine)
{
    return hlg_decode_check(machine);
}

static uint32_t decode_open(const void *machine)
{
    return hlg_decode_open(machine);
}

static bool decode_awaits(const void *machine)
{
    (void)machine;
    return false;
}

static hlg_handle decode_submitted(const void *machine)
{
    return hlg_decode_submitted(machine);
}

static void decode_stats(const void *machine, struct hlg_pump_stats *stats)
{
    hlg_decode_stats(machine, &stats->decode);
}

static int init_prefill(struct pump_machine *machine, const struct hlg_prefill_config *config)
{
    size_t bytes = hlg_prefill_size(config);

    if (bytes == 0) {
        return -HLG_EINVAL;
    }
    void *memory = malloc(bytes);
    if (memory == NULL) {
        return -HLG_ENOMEM;
    }
    struct hlg_prefill *prefill = hlg_prefill_init(memory, config);
    if (prefill == NULL) {
        free(memory);
        return -HLG_EINVAL;
    }
    HLG_ASSERT((void *)prefill == memory);
    *machine = (struct pump_machine){.memory = memory,
                                     .handle = prefill_handle,
                                     .next = prefill_next,
                                     .deadline = prefill_deadline,
                                     .check = prefill_check,
                                     .open = prefill_open,
                                     .awaits = prefill_awaits,
                                     .submitted = prefill_submitted,
                                     .stats = prefill_stats};
    return 0;
}

static int init_decode(struct pump_machine *machine, const struct hlg_decode_config *config)
{
    size_t bytes = hlg_decode_size(config);

    if (bytes == 0) {
        return -HLG_EINVAL;
    }
    void *memory = malloc(bytes);
    if (memory == NULL) {
        return -HLG_ENOMEM;
    }
    struct hlg_decode *decode = hlg_decode_init(memory, config);
    if (decode == NULL) {
        free(memory);
        return -HLG_EINVAL;
    }
    HLG_ASSERT((void *)decode == memory);
    *machine = (struct pump_machine){.memory = memory,
                                     .handle = decode_handle,
                                     .next = decode_next,
                                     .deadline = decode_deadline,
                                     .check = decode_check,
                                     .open = decode_open,
                                     .awaits = decode_awaits,
                                     .submitted = decode_submitted,
                                     .stats = decode_stats};
    return 0;
}

int pump_machine_init(struct pump_machine *machine, const struct hlg_pump_config *config)
{
    switch (config->role) {
    case HLG_ROLE_PREFILL:
        return init_prefill(machine, &config->prefill);
    case HLG_ROLE_DECODE:
        return init_decode(machine, &config->decode);
    }
    return -HLG_EINVAL;
}

void pump_machine_trace(struct hlg_trace *trace, const struct hlg_pump_config *config)
{
    const bool prefill = config->role == HLG_ROLE_PREFILL;

    hlg_trace_begin(trace, prefill ? &config->prefill : NULL, prefill ? NULL : &config->decode);
}
