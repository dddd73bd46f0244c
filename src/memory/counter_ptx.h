/*
 * The kernels of counter.h, for the driver to compile. `forward` is a word of the module, on the GPU, so
 * that a tick asks nothing of the host: each counter loads a module of its own. fence.acq_rel.sys: all
 * that this thread knows to have happened, which by stream order is all that ran before it, is visible to
 * CPUs and other devices before the word is. The word is written whole, by one thread, and only written.
 * PTX 6.0 and sm_70 are the oldest that have the fence. Test `counter-ptx` has it compiled by ptxas.
 */
#ifndef HALAGE_MEMORY_COUNTER_PTX_H
#define HALAGE_MEMORY_COUNTER_PTX_H

#define COUNTER_STAMP "halage_counter_stamp"
#define COUNTER_TICK  "halage_counter_tick"

/* Both kernels: (u64 device address of the word, u32 value). */
static const char counter_ptx[] =
    ".version 6.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".global .align 4 .u32 forward = 0;\n"
    ".visible .entry " COUNTER_STAMP "(.param .u64 word, .param .u32 value)\n"
    "{\n"
    "    .reg .u64 %at;\n"
    "    .reg .u32 %now;\n"
    "    ld.param.u64 %at, [word];\n"
    "    ld.param.u32 %now, [value];\n"
    "    cvta.to.global.u64 %at, %at;\n"
    "    st.global.u32 [forward], %now;\n"
    "    fence.acq_rel.sys;\n"
    "    st.relaxed.sys.global.u32 [%at], %now;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry " COUNTER_TICK "(.param .u64 word, .param .u32 value)\n"
    "{\n"
    "    .reg .u64 %at;\n"
    "    .reg .u32 %now;\n"
    "    .reg .u32 %done;\n"
    "    ld.param.u64 %at, [word];\n"
    "    ld.param.u32 %done, [value];\n"
    "    cvta.to.global.u64 %at, %at;\n"
    "    ld.global.u32 %now, [forward];\n"
    "    or.b32 %now, %now, %done;\n"
    "    fence.acq_rel.sys;\n"
    "    st.relaxed.sys.global.u32 [%at], %now;\n"
    "    ret;\n"
    "}\n";

#endif
