#include <halage/handoff.h>

bool hlg_handoff_context_due(const struct hlg_layout *layout)
{
    for (uint32_t g = 0; g < layout->group_count; g++) {
        if (layout->groups[g].kind == HLG_GROUP_CONTEXT) {
            return true;
        }
    }
    return false;
}

bool hlg_handoff_needs_prefill(const struct hlg_layout *layout, uint32_t tokens,
                               uint64_t pages_asked)
{
    if (hlg_handoff_prefill_tokens(tokens) == 0) {
        return false;
    }
    return pages_asked > 0 || hlg_handoff_context_due(layout);
}

uint32_t hlg_handoff_cached_tokens_max(const struct hlg_layout *layout, uint32_t tokens)
{
    HLG_ASSERT(tokens >= 2);
    return hlg_handoff_prefill_tokens(tokens) - (hlg_handoff_context_due(layout) ? 1 : 0);
}
