/* Blocks of memory that this program's own objects have and did not give back: the linker puts these in
 * front of malloc and its kin (--wrap), so that nothing of libc's own is among them. */
#include "runner.h"

#include <stdlib.h>

static uint64_t blocks;

uint64_t heap_blocks(void)
{
    return blocks;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
void __wrap_free(void *block);

void *__wrap_malloc(size_t bytes)
{
    void *block = __real_malloc(bytes);

    blocks += block != NULL;
    return block;
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    void *block = __real_calloc(count, bytes);

    blocks += block != NULL;
    return block;
}

void *__wrap_realloc(void *block, size_t bytes)
{
    void *moved = __real_realloc(block, bytes);

    blocks += block == NULL && moved != NULL;
    return moved;
}

void __wrap_free(void *block)
{
    blocks -= block != NULL;
    __real_free(block);
}
