#!/usr/bin/env python3
"""What a request costs does not grow with the requests in flight, nor with the peers that there may be; nor a
peer's heartbeat with the peers that there are.

halage-bench-scale moves the same requests at the same pace with few and with many of them in flight, under
callgrind, which counts instructions: no clock, no noise. Counted are the functions of src/core and
src/driver, with what they call of libc; the network (loop) and the engines of the test are not.
"""
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

PROGRAM = pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage-bench-scale"
OURS = re.compile(r"/(src/core|src/driver|include/halage)/")
TREE = re.compile(r"/(src|include|transports|tests)/")
REQUESTS = 4000
GROWTH = 1.1
GROWTH_BEATS = 2  # a heap of peers is some levels deeper


def parse(path):
    """Own instructions by (file, function), and those of calls into other files, by the same keys."""
    own = collections.Counter()
    calls = collections.Counter()
    names = {}
    kind = file = function = target = None
    called = False
    target_file = None

    def name(text):
        match = re.match(r"\((\d+)\)(?: (.*))?$", text)
        if not match:
            return text
        if match[2] is not None:
            names[(kind, match[1])] = match[2]
        return names[(kind, match[1])]

    for line in path.read_text().splitlines():
        if re.match(r"[+\-*\d]", line):
            cost = int(line.split()[1])
            if called:
                calls[(file, function, target_file, target)] += cost
                called = False
            else:
                own[(file, function)] += cost
            continue
        key, _, value = line.partition("=")
        if key in ("fl", "fi", "fe"):
            kind = "file"
            inlined = name(value)
            if key == "fl":  # the function's own; the others are of what is inlined into it
                file = inlined
                target_file = None
        elif key == "fn":
            kind = "fn"
            function = name(value)
            target_file = None
        elif key in ("cfi", "cfl"):
            kind = "file"
            target_file = name(value)
        elif key == "cfn":
            kind = "fn"
            target = name(value)
        elif key in ("ob", "cob"):
            kind = "ob"
            name(value)
        elif key == "calls":
            called = True
            if target_file is None:
                target_file = file
    return own, calls


def count(toggle, units, show, *words):
    """Instructions per unit, of which the run has so many; None: as many as it says in `beats`."""
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory) / "callgrind.out"
        begun = time.monotonic()
        run = subprocess.run(
            ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect={toggle}",
             f"--callgrind-out-file={out}", "--compress-pos=no", str(PROGRAM), *map(str, words)],
            capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"test_scale: {run.stdout}{run.stderr}")
        own, calls = parse(out)
    total = collections.Counter()
    for (file, function), cost in own.items():
        if OURS.search(file):
            total[function] += cost
    for (file, function, target_file, target), cost in calls.items():
        if OURS.search(file) and not TREE.search(target_file):
            total[target] += cost
    if units is None:
        units = int(re.search(r"beats (\d+)", run.stdout)[1])
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
