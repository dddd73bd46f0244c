#!/usr/bin/env python3
"""What a request costs does not grow with the requests in flight, nor with the peers that there may be.

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
GROWTH = 1.1


def parse(path):
    """Own instructions by (file, function), and those of calls into other files, by the same keys."""
    own = collections.Counter()
    calls = collections.Counter()
    names = {}
    file = function = target = None
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
            file = name(value)
            if key == "fl":
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


def count(in_flight, peers_max, requests, show=False):
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory) / "callgrind.out"
        begun = time.monotonic()
        run = subprocess.run(
            ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=scale_measure",
             f"--callgrind-out-file={out}", "--compress-pos=no", str(PROGRAM), "flight",
             "--in-flight", str(in_flight), "--peers-max", str(peers_max), "--requests",
             str(requests)], capture_output=True, text=True)
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
    each = sum(total.values()) / requests
    print(f"in flight {in_flight:6} peers_max {peers_max:6}: {each:9.0f} instructions a request, "
          f"{time.monotonic() - begun:.1f} s")
    if show:
        for function, cost in total.most_common(25):
            print(f"    {cost / requests:9.1f} {function}")
    return each


def main():
    show = "--show" in sys.argv
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is missing (tools/setup installs it)")
        sys.exit(77)
    few = count(100, 16, 4000, show)
    many = count(10000, 16, 4000, show)
    wide = count(100, 10000, 4000, show)
    print(f"10,000 in flight cost {many / few:.3f} times what 100 cost; "
          f"room for 10,000 peers {wide / few:.3f} times what room for 16 costs")
    if few < 1000:
        sys.exit("test_scale: too few instructions were counted to mean anything")
    if many > GROWTH * few:
        sys.exit(f"test_scale: more than {GROWTH} times as many")
    if wide > GROWTH * few:
        sys.exit(f"test_scale: more than {GROWTH} times as many with room for many peers")


main()
