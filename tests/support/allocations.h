/* What this program's own objects allocate, linked libraries' objects included and shared libraries' not: link
 * test_allocations, and the linker sends their calls of malloc and its kin through here (--wrap). */
#ifndef HALAGE_TESTS_ALLOCATIONS_H
#define HALAGE_TESTS_ALLOCATIONS_H

#include <stdatomic.h>
#include <stdint.h>

extern _Atomic uint64_t allocations; /* since the start */

#endif
