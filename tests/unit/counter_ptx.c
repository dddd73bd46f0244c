/* The PTX of layer counters, or with an argument of the GPU checks' gate, for test `counter-ptx` to have compiled. */
#include "../../src/memory/counter_ptx.h"
#include "../gpu/gate_ptx.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    (void)argv;
    return fputs(argc > 1 ? gate_ptx : counter_ptx, stdout) < 0;
}
