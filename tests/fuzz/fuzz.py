#!/usr/bin/env python3
"""Run a fuzzer, or make its corpus small.

usage: fuzz.py run NAME [--seconds N] [--corpus DIR] [--bin DIR] [--searches FILE ...]
       fuzz.py distil NAME --corpus DIR [--files N] [--bin DIR]
       fuzz.py list [--bin DIR]

The fuzzers are built by: cmake --preset fuzz && cmake --build --preset fuzz
run     from the corpus of the sources and, if given, from DIR, which also keeps what is found; a crash
        is left as DIR/crash-* (or in the current directory), and the replay command is printed
distil  replace the corpus of the sources by the fewest inputs out of DIR and it that reach the same edges,
        at most N
Exit status: 0, 1 for a crash or a run that did next to nothing, 77 when the fuzzers are not built.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.dirname(os.path.dirname(HERE))
DEFAULT_BIN = os.path.join(SOURCES, "build", "fuzz", "bin")
INPUT_BYTES_MAX = 4096
RSS_MB_MAX = 1024
# The slowest (pair) made 36 a second on two busy cores; fewer than this is a fuzzer that does not run.
EXECUTIONS_PER_SECOND_MIN = 5


def program_of(arguments):
    program = os.path.join(arguments.bin, "fuzz-" + arguments.name)
    if not os.path.exists(program):
        print(f"fuzz.py: {program} is not built: cmake --preset fuzz && cmake --build --preset fuzz")
        sys.exit(77)
    return program


def coverage_of(text):
    """{file: [functions reached, functions, edges reached, edges]} out of libFuzzer's table. The branches
    of the sanitizers themselves are edges as well, about half of all, and are never reached."""
    found = {}
    for covered, total, path in re.findall(
            r"^(?:UN)?COVERED_FUNC: .*?edges: (\d+)/(\d+) \S+ (\S+?):\d+$", text, re.M):
        counts = found.setdefault(os.path.relpath(path, SOURCES), [0, 0, 0, 0])
        for index, value in enumerate([int(covered) > 0, 1, int(covered), int(total)]):
            counts[index] += value
    return found


def print_counts(name, counts):
    print(f"  {name:28} {counts[0]:4} of {counts[1]:4} functions, {counts[2]:5} of {counts[3]:5} edges")


def print_coverage(found, searches):
    total = [0, 0, 0, 0]
    for path in searches or sorted(path for path in found if not path.startswith("tests/")):
        if path in found:
            print_counts(path, found[path])
            total = [a + b for a, b in zip(total, found[path])]
    print_counts("all", total)
    return total[2]


def dictionary_of(name):
    path = os.path.join(HERE, name + ".dict")
    return ["-dict=" + path] if os.path.exists(path) else []


def run(arguments):
    program = program_of(arguments)
    committed = os.path.join(HERE, "corpus", arguments.name)
    with tempfile.TemporaryDirectory() as scratch:
        kept = arguments.corpus or scratch
        os.makedirs(kept, exist_ok=True)
        artifacts = arguments.corpus or os.getcwd()
        command = [program, f"-max_total_time={arguments.seconds}", f"-max_len={INPUT_BYTES_MAX}",
                   "-timeout=20", f"-rss_limit_mb={RSS_MB_MAX}", "-print_final_stats=1",
                   "-print_coverage=1", f"-artifact_prefix={artifacts}/{arguments.name}-",
                   *dictionary_of(arguments.name), kept]
        if os.path.isdir(committed):
            command.append(committed)
        log = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             check=False).stdout
    return judge(arguments, program, log.decode("utf-8", "replace"), command)


def judge(arguments, program, text, command):
    executions = re.search(r"stat::number_of_executed_units: (\d+)", text)
    count = int(executions[1]) if executions else 0
    crash = re.search(r"Test unit written to (\S+)", text)
    if crash or "ERROR: " in text:
        print("\n".join(text.splitlines()[-60:]))
        print(f"fuzz.py: {arguments.name} ended in an error after {count} executions")
        print(f"again: {program} {crash[1] if crash else ' '.join(command[1:])}")
        return 1
    print(f"{arguments.name}: {count} executions in {arguments.seconds} s")
    covered = print_coverage(coverage_of(text), arguments.searches)
    if count < EXECUTIONS_PER_SECOND_MIN * arguments.seconds or covered == 0:
        print(f"fuzz.py: {arguments.name} did next to nothing: {count} executions, {covered} edges")
        return 1
    return 0


def read_control(path):
    """Files of a merge's control file, each with the set of edges that it reaches."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    names = lines[2:2 + int(lines[0])]
    edges = {}
    for line in lines[2 + int(lines[0]):]:
        words = line.split()
        if words and words[0] == "FT":  # of a feature: eight classes of counts for each edge
            edges[names[int(words[1])]] = {int(word) // 8 for word in words[2:]}
    return edges


def distil(arguments):
    program = program_of(arguments)
    committed = os.path.join(HERE, "corpus", arguments.name)
    os.makedirs(committed, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        control = os.path.join(scratch, "control")
        whole = os.path.join(scratch, "whole")
        os.makedirs(whole)
        subprocess.run([program, "-set_cover_merge=1", f"-merge_control_file={control}",
                        f"-max_len={INPUT_BYTES_MAX}", whole, committed, arguments.corpus],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        edges = read_control(control)
        sizes = {name: os.path.getsize(name) for name in edges}
        reached, chosen = set(), []
        while len(chosen) < arguments.files:
            name = max(edges, key=lambda n: (len(edges[n] - reached) / (sizes[n] + 512), n), default=None)
            if name is None or not edges[name] - reached:
                break
            chosen.append(name)
            reached |= edges.pop(name)
        missed = set().union(*edges.values()) - reached if edges else set()
        fresh = os.path.join(scratch, "fresh")
        os.makedirs(fresh)
        for index, name in enumerate(chosen):
            shutil.copyfile(name, os.path.join(fresh, f"{index:02}"))
        for old in os.listdir(committed):
            if re.fullmatch(r"\d\d", old):
                os.remove(os.path.join(committed, old))
        for new in os.listdir(fresh):
            shutil.copyfile(os.path.join(fresh, new), os.path.join(committed, new))
    size = sum(os.path.getsize(os.path.join(committed, n)) for n in os.listdir(committed))
    print(f"{arguments.name}: {len(chosen)} inputs, {size} bytes, {len(reached)} edges, {len(missed)} left out")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("action", choices=["run", "distil", "list"])
    parser.add_argument("name", nargs="?")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus")
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--bin", default=DEFAULT_BIN)
    parser.add_argument("--searches", nargs="*")
    arguments = parser.parse_args()
    if arguments.action == "list":
        names = os.listdir(arguments.bin) if os.path.isdir(arguments.bin) else []
        print("\n".join(sorted(name[5:] for name in names if name.startswith("fuzz-"))))
        return 0
    if arguments.name is None or (arguments.action == "distil" and arguments.corpus is None):
        parser.error("run needs NAME; distil needs NAME and --corpus")
    return run(arguments) if arguments.action == "run" else distil(arguments)


if __name__ == "__main__":
    sys.exit(main())
