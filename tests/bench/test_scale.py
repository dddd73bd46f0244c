#!/usr/bin/env python3
"""What a request costs does not grow with the requests in flight, nor with the peers that there may be; nor a
peer's heartbeat with the peers that there are.

halage-bench-scale moves the same requests at the same pace with few and with many of them in flight, under
callgrind, which counts instructions: no clock, no noise. Counted are the functions of src/core and
src/driver, with what they call of libc; the network (loop) and the engines of the test are not.
"""
import os
import pathlib
import re
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import callgrind  # noqa: E402

PROGRAM = pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage-bench-scale"
OURS = re.compile(r"/(src/core|src/driver|include/halage)/")
REQUESTS = 4000
GROWTH = 1.1
GROWTH_BEATS = 2  # a heap of peers is some levels deeper


def count(toggle, units, show, *words):
    """Instructions per unit, of which the run has so many; None: as many as it says in `beats`."""
    begun = time.monotonic()
    out, total = callgrind.run([PROGRAM, *words], toggle, OURS)
    if units is None:
        units = int(re.search(r"beats (\d+)", out)[1])
    each = sum(total.values()) / units
    print(f"{' '.join(map(str, words))}: {each:.0f} instructions each, "
          f"{time.monotonic() - begun:.1f} s")
    if show:
        for function, cost in total.most_common(25):
            print(f"    {cost / units:9.1f} {function}")
    return each


def flight(in_flight, peers_max, show):
    return count("scale_measure", REQUESTS, show, "flight", "--in-flight", in_flight, "--peers-max",
                 peers_max, "--requests", REQUESTS)


def beat(peers, show):
    return count("scale_peers_run", None, show, "peers", "--peers-max", peers)


def main():
    show = "--show" in sys.argv
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is missing (tools/setup installs it)")
        sys.exit(77)
    few = flight(100, 16, show)
    many = flight(10000, 16, show)
    wide = flight(100, 10000, show)
    alone = beat(100, show)
    crowd = beat(10000, show)
    print(f"10,000 requests in flight cost {many / few:.3f} times what 100 cost; room for 10,000 peers "
          f"{wide / few:.3f} times what room for 16 costs; heartbeats of 10,000 peers "
          f"{crowd / alone:.2f} times those of 100")
    if min(few, alone) < 100:
        sys.exit("test_scale: too few instructions were counted to mean anything")
    if many > GROWTH * few:
        sys.exit(f"test_scale: more than {GROWTH} times as many with 10,000 in flight")
    if wide > GROWTH * few:
        sys.exit(f"test_scale: more than {GROWTH} times as many with room for many peers")
    if crowd > GROWTH_BEATS * alone:
        sys.exit(f"test_scale: more than {GROWTH_BEATS} times as many a heartbeat")


main()
