/* The few parts of base.h that need a C library: texts, defaults, the end of a broken process. */
#include <halage/base.h>

#include <stdio.h>
#include <stdlib.h>

const char *hlg_error_text(int error)
{
    if (error == 0) {
        return "no error";
    }
    if (error < -HLG_EUNSUPPORTED || error > 0) {
        return "unknown error";
    }
    const enum hlg_error code = (enum hlg_error)(-error);
    switch (code) {
    case HLG_EINVAL:
        return "invalid argument";
    case HLG_ELIMIT:
        return "a limit is reached; try again later";
    case HLG_ESTALE:
        return "the request is over";
    case HLG_ESTATE:
        return "not possible in this state";
    case HLG_EPEER:
        return "the peer is unknown, down or refused";
    case HLG_EOWNED:
        return "a page belongs to another request or is quarantined";
    case HLG_EPROTO:
        return "the peer broke the protocol";
    case HLG_EPLAN:
        return "the two layouts cannot be joined";
    case HLG_ENOMEM:
        return "out of memory";
    case HLG_EIO:
        return "input or output failed";
    case HLG_ECANCELED:
        return "the endpoint was closed first";
    case HLG_EFORK:
        return "made by another process";
    case HLG_EUNSUPPORTED:
        return "not supported by this build, machine or provider";
    }
    return "unknown error";
}

void hlg_limits_default(struct hlg_limits *limits)
{
    *limits = (struct hlg_limits){
        .peers_max = 16,
        .requests_max = 1024,
        .sources_max = HLG_SOURCES_MAX,
        .lanes_max = 8,
        .rails_max = 4,
        .slices_max = 4096,
        .forwards_max = 8,
        .chunks_max = 4096,
        .ops_max = 16384,
        .blocks_max = 16384,
        .prompt_bytes_max = 4u << 20,
        .message_bytes_max = HLG_MESSAGE_BYTES_MAX,
        .window_pieces = 1024,
        .reserve_percent = 50,
        .grant_prompt_bytes = 256u << 20,
        /* some large pages, a fraction of a millisecond on a 400 Gbit/s rail */
        .turn_bytes = 256u << 10,
        .lease_ns = 30 * HLG_NS_PER_S,
        .heartbeat_ns = 5 * HLG_NS_PER_S,
        .fence_ns = 10 * HLG_NS_PER_S,
    };
}

_Noreturn void hlg_assert_failed(const char *condition, const char *file, int line)
{
    /* If stderr is gone there is nobody to tell, and the abort says enough. */
    (void)fprintf(stderr, "halage: %s:%d: broken: %s\n", file, line, condition);
    abort();
}
