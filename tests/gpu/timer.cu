// Kernels of check `counter`: a gate in the stream that notes the GPU's time when it lets through.
// Compiled to PTX by `run`, loaded by the driver; no CUDA runtime.

#define LIMIT_NS 2000000000ull // a host that died must not hang the GPU

// Waits until *gate >= value, notes %globaltimer in *note.
extern "C" __global__ void gpu_gate(const unsigned *gate, unsigned value, unsigned long long *note)
{
    unsigned long long begin;
    unsigned long long now;
    unsigned seen;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(gate) : "memory");
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (seen < value && now - begin < LIMIT_NS);
    *note = now;
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}
