/* The PTX of layer counters, for test `counter-ptx` to have compiled. */
#include "../../src/memory/counter_ptx.h"

#include <stdio.h>

int main(void)
{
    return fputs(counter_ptx, stdout) < 0;
}
