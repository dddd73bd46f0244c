#!/usr/bin/env python3
"""The same core decides alike whatever carries its bytes.

Runs one script live in a program of each backend (loop, libfabric on loopback, SimGrid), then holds
them to two claims: every program replays every recorded trace to the action hash that was recorded, and
the canonical lists made of the traces are equal, line by line. Then faults are planted, and must be seen.

usage: test_same_core.py BACKEND... [--seeds A-B]     HALAGE_BIN_DIR names the programs' directory
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BIN = pathlib.Path(os.environ["HALAGE_BIN_DIR"])
SCENES = 5
NODES = 5
REQUESTS = 200
MESSAGES = {"2": "REQUEST", "3": "ACCEPT", "4": "REJECT", "5": "CANCEL", "6": "FENCED",
            "7": "FAILED"}

faults = []


def expect(condition, what):
    if not condition:
        faults.append(what)
        print(f"same-core: {what}")
    return condition


def program(backend, *words):
    return subprocess.run([BIN / f"halage-same-core-{backend}", *map(str, words)],
                          capture_output=True, text=True, timeout=170, check=False)


def run_live(backend, directory, seed, *words):
    """Returns (hash by trace name, lines of the list, digest), or None."""
    result = program(backend, "run", directory, "--seed", seed, *words)
    if not expect(result.returncode == 0,
                  f"{backend} seed {seed}: run ended with {result.returncode}: {result.stderr}"):
        return None
    hashes = dict(re.findall(r"^recorded (\S+) hash (\w+)$", result.stdout, re.MULTILINE))
    requests, count, digest = re.search(
        r"^list \S+ requests (\d+) lines (\d+) digest (\w+)$", result.stdout, re.MULTILINE).groups()
    lines = (directory / f"{backend}.list").read_text(encoding="utf-8").splitlines()
    expect(len(hashes) == SCENES * NODES, f"{backend}: {len(hashes)} traces were recorded")
    expect(int(requests) == REQUESTS and int(count) == len(lines),
           f"{backend}: the list is not of {requests} requests and {count} lines")
    return hashes, lines, digest


def replay(backend, traces):
    """Returns the hash by trace name that a program replays."""
    result = program(backend, "replay", *traces)
    expect(result.returncode == 0,
           f"{backend} replays with {result.returncode}: {result.stdout[:2000]}{result.stderr}")
    found = re.findall(r"^(\S+) events \d+ actions \d+ hash (\w+)$", result.stdout, re.MULTILINE)
    return {pathlib.Path(path).stem: value for path, value in found}


def check_coverage(lines):
    """The script is worth comparing: each request ends, and each kind of message is there."""
    words = [line.split() for line in lines]
    requests = {w[0] for w in words}
    expect(len(requests) == REQUESTS, f"the list speaks of {len(requests)} requests")
    kinds = {w[2] for w in words if w[1] == "message"}
    expect(kinds == set(MESSAGES), f"messages of kinds {sorted(kinds)} only")
    for scene in range(SCENES):
        begin = scene * REQUESTS // SCENES
        of_scene = [w for w in words if begin <= int(w[0]) < begin + REQUESTS // SCENES]
        expect(sum(w[1] == "piece" for w in of_scene) > 500, f"scene {scene} moves little")
    # one terminal notice each: READY (10) or FAILED (11) of the decoder
    terminal = [w[0] for w in words if w[1] == "notice" and w[2] in ("10", "11")]
    expect(len(terminal) == REQUESTS == len(set(terminal)),
           f"{len(terminal)} terminal notices of {len(set(terminal))} requests")


def first_difference(a, b):
    for left, right in zip(a, b):
        if left != right:
            return f"'{left}' against '{right}'"
    return f"{len(a)} lines against {len(b)}"


def check_seed(backends, directory, seed):
    runs = {b: run_live(b, directory, seed) for b in backends}
    if None in runs.values():
        return None
    recorded = {name: value for hashes, _, _ in runs.values() for name, value in hashes.items()}
    traces = sorted(directory.glob("*.trace"))
    expect(len(traces) == len(recorded), f"{len(traces)} traces for {len(recorded)} nodes")
    for backend in backends:
        replayed = replay(backend, traces)
        expect(replayed == recorded,
               f"{backend}: a replayed hash is not the recorded one, seed {seed}")
    first = runs[backends[0]]
    check_coverage(first[1])
    for backend in backends[1:]:
        hashes, lines, digest = runs[backend]
        expect(lines == first[1] and digest == first[2],
               f"seed {seed}: {backends[0]} and {backend} differ: "
               f"{first_difference(first[1], lines)}")
        # the runs were not one run in disguise: their traces do differ
        other = [h for name, h in hashes.items()
                 if first[0][name.replace(backend, backends[0], 1)] == h]
        expect(not other, f"{len(other)} traces of {backend} are those of {backends[0]}")
    print(f"seed {seed}: {REQUESTS} requests, {len(first[1])} lines, digest {first[2]} on "
          f"{', '.join(backends)}; {len(traces)} traces replayed by each of them")
    return first


def check_planted_cut(backend, lines, directory, seed):
    planted = run_live(backend, directory, seed, "--plant", "cut")
    if planted is None:
        return
    differing = {line.split()[0] for line in set(planted[1]) ^ set(lines)}
    expect(len(differing) == 1, f"a chunk cut elsewhere shows in {len(differing)} requests, not 1")


def check_altered(backends, directory):
    trace = directory / f"{backends[0]}-0-0.trace"
    altered = directory / "altered"
    made = program(backends[0], "alter", trace, altered)
    expect(made.returncode == 0, f"no event could be altered: {made.stderr}")
    for backend in backends:
        result = program(backend, "replay", altered)
        expect(result.returncode == 1 and "differs at record" in result.stdout,
               f"{backend} does not see an altered event: {result.stdout}{result.stderr}")


def check_damaged(backend, directory):
    whole = (directory / f"{backend}-0-0.trace").read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    cases = {"changed": (bytes(changed), "was changed"), "cut": (whole[:-100], "breaks off"),
             "longer": (whole + b"x", "follow")}
    for name, (data, sentence) in cases.items():
        path = directory / name
        path.write_bytes(data)
        result = program(backend, "replay", path)
        expect(result.returncode == 1 and sentence in result.stderr,
               f"{name} trace: {result.returncode} {result.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backends", nargs="+")
    parser.add_argument("--seeds", default="1-3")
    options = parser.parse_args()
    begin, _, end = options.seeds.partition("-")
    for seed in range(int(begin), int(end or begin) + 1):
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            first = check_seed(options.backends, directory, seed)
            if first is not None and seed == int(begin):
                check_altered(options.backends, directory)
                check_damaged(options.backends[0], directory)
                check_planted_cut(options.backends[0], first[1], directory, seed)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
