#include "digest.h"

#include <string.h>

uint64_t digest_bytes(uint64_t digest, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i + 4 <= count; i += 4) {
        uint32_t word = 0;
        memcpy(&word, at + i, sizeof word);
        digest = (digest ^ word) * 0x100000001B3ull;
        digest ^= digest >> 29;
    }
    return digest;
}

uint64_t digest_page(uint64_t digest, const struct tlm_config *model, uint32_t tp, const void *page,
                     uint32_t slots)
{
    const unsigned char *bytes = page;
    const uint32_t heads = tlm_kv_head_count(model, tp);
    const size_t token_bytes = (size_t)tlm_kv_dim(model) * TLM_ELEMENT_BYTES;
    if (model->arrangement == TLM_NHD) {
        return digest_bytes(digest, bytes, slots * heads * token_bytes);
    }
    for (uint32_t head = 0; head < heads; head++) {
        digest = digest_bytes(digest, bytes + head * model->page_tokens * token_bytes,
                              slots * token_bytes);
    }
    return digest;
}
