#!/bin/sh
# Has ptxas of the CUDA Toolkit compile the kernels of layer counters and of the GPU checks, as a driver would.
# usage: test_counter_ptx.sh PRINTER PTXAS
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" >"$work/counter.ptx"
"$1" gate >"$work/gate.ptx"
for arch in sm_80 sm_90; do
    for text in counter gate; do
        "$2" -arch "$arch" -o "$work/$text-$arch.cubin" "$work/$text.ptx"
        test -s "$work/$text-$arch.cubin"
        echo "$text compiled for $arch"
    done
done
# and it is the text that is judged: without its fence's name it does not compile
sed 's/fence.acq_rel.sys/fence.acq_rel.world/' "$work/counter.ptx" >"$work/broken.ptx"
if "$2" -arch sm_90 -o "$work/broken.cubin" "$work/broken.ptx" 2>/dev/null; then
    echo "ptxas takes anything"
    exit 1
fi
