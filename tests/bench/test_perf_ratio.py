#!/usr/bin/env python3
"""Paged writes through the messenger's core are as fast as a bare libfabric loop that does the same work:
`halage perf run --local --bare`, interleaved pairs, the median ratio of each size and order on shm and on
libfabric's TCP. Every ratio is printed, also those that lose. HALAGE_PERF_WRITE: a file that the rows are added to,
as reports/perf.tsv is made.
"""
import json
import os
import pathlib
import subprocess
import sys

BIN = pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage"
PROVIDERS = ("shm", "tcp")
PAIRS = 15
SPAN_MS = 100
SMALL = 4096  # bytes; below it another bound
RATIO_MIN = {True: 0.90, False: 0.95}


def run(provider):
    words = [BIN, "perf", "run", "--local", "--bare", "--pairs", PAIRS, "--span", SPAN_MS, "--provider",
             provider, "--json", "-"]
    if os.environ.get("HALAGE_PERF_WRITE"):
        words += ["--write", os.environ["HALAGE_PERF_WRITE"]]
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=400,
                            check=False)
    if "cannot be used here" in result.stderr:
        print(f"{provider}: skipped, {result.stderr.strip()}")
        return []
    if result.returncode != 0:
        sys.exit(f"test_perf_ratio: {result.stdout}{result.stderr}")
    print(result.stderr)
    return json.loads(result.stdout)["rows"]


def main():
    failed = []
    measured = 0
    for provider in PROVIDERS:
        for row in run(provider):
            measured += 1
            least = RATIO_MIN[row["bytes"] < SMALL]
            median = row["ratio"]["median"]
            if len(row["ratio"]["pairs"]) < PAIRS:
                failed.append(f"{provider} {row['order']} {row['bytes']}: too few pairs")
            if median < least:
                failed.append(f"{provider} {row['order']} {row['bytes']} B: {median:.3f} < {least}")
    if measured == 0:
        print("skipped: none of the providers is here")
        sys.exit(77)
    if failed:
        sys.exit("test_perf_ratio: " + "; ".join(failed))


main()
