/* Which source set serves which target set. */
#include <halage/replica.h>

uint32_t hlg_replica_offset(uint32_t random, uint32_t offset_count)
{
    HLG_ASSERT(offset_count != 0);

    /* The high word of the product, not a remainder: it uses the generator's best bits. */
    return (uint32_t)((uint64_t)random * offset_count >> 32);
}

uint32_t hlg_replica_source_set(uint32_t target_set, uint32_t offset, uint32_t source_sets)
{
    HLG_ASSERT(source_sets != 0);
    HLG_ASSERT(target_set <= UINT32_MAX - offset);

    return (target_set + offset) % source_sets;
}
