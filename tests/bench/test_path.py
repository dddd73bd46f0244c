#!/usr/bin/env python3
"""How many instructions of ours a page costs, at the side that writes and at the side that is written to.

halage-bench-path moves pages of 256 bytes over libfabric's TCP provider, both ends in one thread, under
callgrind, which counts instructions: no clock, no noise. Counted are the functions of this project (machines,
pump, transport, channel), each with what it calls of libc; libfabric and the kernel are not.
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


def count(side, pages, requests, show):
    """Instructions of one action of so many pages."""
    out, total = callgrind.run([PROGRAM, PROVIDER, "core", 256, WINDOW, pages, LAYERS, requests], f"path_{side}", OURS)
    actions = int(re.search(r"actions (\d+)", out)[1])
    each = sum(total.values()) / actions
    print(f"{side}: {pages:3} pages an action: {each:8.0f} instructions an action, "
          f"{each / pages:7.1f} a page")
    if show:
        for function, cost in total.most_common(30):
            print(f"    {cost / actions / pages:9.2f} {function}")
    return each / pages


def main():
    show = "--show" in sys.argv
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is missing (tools/setup installs it)")
        sys.exit(77)
    each = {}
    for side in ("source", "target"):
        for pages, requests in ((1, 40), (4, 20), (16, 10), (256, 4)):
            each[side, pages] = count(side, pages, requests, show and pages in (1, 256))
    if min(each["source", 256], each["target", 256]) < 5:
        sys.exit("test_path: too few instructions were counted to mean anything")
    if each["source", 256] > SOURCE_MAX:
        sys.exit(f"test_path: more than {SOURCE_MAX} instructions a page at the source")
    if each["target", 256] > TARGET_MAX:
        sys.exit(f"test_path: more than {TARGET_MAX} instructions a page at the target")


main()
