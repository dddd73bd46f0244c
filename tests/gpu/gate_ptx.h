/*
 * A gate in a stream: (u64 gate, u32 value, u64 note) waits until *gate >= value, 2 s at most so that a host
 * that died hangs no GPU, and notes %globaltimer of when it lets through.
 */
#ifndef GPU_GATE_PTX_H
#define GPU_GATE_PTX_H

static const char gate_ptx[] =
    ".version 6.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry gpu_gate(.param .u64 gate, .param .u32 value, .param .u64 note)\n"
    "{\n"
    "    .reg .u64 %gate, %note, %begin, %now, %past;\n"
    "    .reg .u32 %value, %seen;\n"
    "    .reg .pred %shut, %early;\n"
    "    ld.param.u64 %gate, [gate];\n"
    "    ld.param.u32 %value, [value];\n"
    "    ld.param.u64 %note, [note];\n"
    "    cvta.to.global.u64 %gate, %gate;\n"
    "    cvta.to.global.u64 %note, %note;\n"
    "    mov.u64 %begin, %globaltimer;\n"
    "again:\n"
    "    ld.acquire.sys.global.u32 %seen, [%gate];\n"
    "    mov.u64 %now, %globaltimer;\n"
    "    sub.u64 %past, %now, %begin;\n"
    "    setp.lt.u32 %shut, %seen, %value;\n"
    "    setp.lt.and.u64 %early, %past, 2000000000, %shut;\n"
    "    @%early bra again;\n"
    "    st.global.u64 [%note], %now;\n"
    "    fence.acq_rel.sys;\n"
    "    ret;\n"
    "}\n";

#endif
