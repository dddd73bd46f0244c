#!/usr/bin/env python3
"""How many instructions of ours a page costs, at the side that writes and at the side that is written to.

halage-bench-path moves pages of 256 bytes over libfabric's TCP provider, both ends in one thread, under
callgrind, which counts instructions: no clock, no noise. Counted are the functions of this project (machines,
pump, transport, channel), each with what it calls of libc; libfabric and the kernel are not. Pages lie one after
the other at both sides, so that they go in few writes, or are scattered at the source, the target or both: then
each is a write. Both bounds hold for all four.
"""
import os
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import callgrind  # noqa: E402

PROGRAM = pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage-bench-path"
PROVIDER = "tcp"
OURS = re.compile(r"/(src/core|src/driver|include/halage|transports/ofi|transports/tcp)/")
LAYERS = 32
WINDOW = 64
SOURCE_MAX = 150
TARGET_MAX = 60
ORDERS = {"rows": "none", "source": "the source's", "target": "the target's", "both": "both sides'"}
CASES = [(order, pages, requests) for order in ("rows", "both") for pages, requests in ((1, 40), (4, 20), (16, 10))]
CASES += [(order, 256, 4) for order in ORDERS]


def count(side, most, show):
    """Prints what an action of each case costs. Returns the sentences of those that cost too much."""
    words = [f"{order}:{pages}:{requests}" for order, pages, requests in CASES]
    _, parts = callgrind.run([PROGRAM, PROVIDER, 256, WINDOW, LAYERS, *words], f"path_{side}", OURS,
                             over="path_over")
    faults = []
    if len(parts) != len(CASES):
        sys.exit(f"test_path: {len(parts)} parts were counted of {len(CASES)}")
    for (order, pages, requests), total in zip(CASES, parts):
        each = sum(total.values()) / requests / LAYERS
        print(f"{side}: {pages:3} pages an action, {ORDERS[order]} scattered: {each:8.0f} instructions an action, "
              f"{each / pages:7.1f} a page")
        if show:
            for function, cost in total.most_common(30):
                print(f"    {cost / requests / LAYERS / pages:9.2f} {function}")
        if each < 100:
            faults.append(f"{side}: too few instructions were counted to mean anything")
        if pages == 256 and each / pages > most:
            faults.append(f"{side}, {ORDERS[order]} pages scattered: more than {most} instructions a page")
    return faults


def main():
    show = "--show" in sys.argv
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is missing (tools/setup installs it)")
        sys.exit(77)
    faults = count("source", SOURCE_MAX, show) + count("target", TARGET_MAX, show)
    if faults:
        sys.exit("test_path: " + "; ".join(faults))


main()
