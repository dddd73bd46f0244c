#!/usr/bin/env python3
"""Paged writes through the messenger's core are as fast as a bare libfabric loop that does the same work:
`halage perf run --local --bare`, interleaved pairs, the median ratio of each size and order on shm and on
libfabric's TCP. A pair of connections is a few hundredths faster or slower than the next one for as long as it
lives, so that the pairs are of several. Every ratio is printed, also those that lose. HALAGE_PERF_WRITE: a file
that the rows are added to, as reports/perf.tsv is made.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys

BIN = pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage"
PROVIDERS = ("shm", "tcp")
CONNECTIONS = 5
CONNECTIONS_MAX = 30  # where the median of fewer is below its bound; every pair counts
PAIRS = 5  # of each
SPAN_MS = 60
SMALL = 4096  # bytes; below it another bound
RATIO_MIN = {True: 0.90, False: 0.95}
COLUMNS = ("provider", "order", "bytes", "mxfers_per_second", "bare_mxfers_per_second", "ratio", "ratio_q1", "ratio_q3",
           "pairs")


def run(provider, *words):
    """Returns the rows of one pair of connections."""
    words = [BIN, "perf", "run", "--local", "--bare", "--pairs", PAIRS, "--span", SPAN_MS, "--provider",
             provider, "--no-latency", "--json", "-", *words]
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=400,
                            check=False)
    if "cannot be used here" in result.stderr:
        print(f"{provider}: skipped, {result.stderr.strip()}")
        return []
    if result.returncode != 0:
        sys.exit(f"test_perf_ratio: {result.stdout}{result.stderr}")
    return json.loads(result.stdout)["rows"]


def least(size):
    return RATIO_MIN[size < SMALL]


def pairs_of(rows):
    return [ratio for row in rows for ratio in row["ratio"]["pairs"]]


def measure(provider):
    """Returns a row of COLUMNS for each size and order, of all connections together."""
    cells = {}
    for _ in range(CONNECTIONS):
        for row in run(provider):
            cells.setdefault((row["order"], row["bytes"]), []).append(row)
    for (order, size), rows in cells.items():
        if statistics.median(pairs_of(rows)) < least(size):
            for _ in range(CONNECTIONS_MAX - CONNECTIONS):  # all of them: no stop where it looks well
                rows += run(provider, "--order", order, "--sizes", size)
        pairs = pairs_of(rows)
        quarters = statistics.quantiles(pairs, n=4, method="inclusive")
        rates = [statistics.median(row[key] for row in rows) for key in COLUMNS[3:5]]
        yield (provider, order, size, *rates, quarters[1], quarters[0], quarters[2], len(pairs))


def text(row):
    return "\t".join(f"{value:.4f}" if isinstance(value, float) else str(value) for value in row)


def write(rows):
    path = os.environ.get("HALAGE_PERF_WRITE")
    if path:
        with open(path, "a", encoding="utf-8") as out:
            out.writelines(text(row) + "\n" for row in (COLUMNS, *rows))


def main():
    failed = []
    rows = []
    for provider in PROVIDERS:
        for row in measure(provider):
            if not rows:
                print("\t".join(COLUMNS))
            rows.append(row)
            _, order, size, _, _, median, _, _, count = row
            print(text(row), "loses" if median < 1 else "", flush=True)
            if count < CONNECTIONS * PAIRS:
                failed.append(f"{provider} {order} {size}: too few pairs")
            if median < least(size):
                failed.append(f"{provider} {order} {size} B: {median:.3f} < {least(size)}")
    if not rows:
        print("skipped: none of the providers is here")
        sys.exit(77)
    write(rows)
    if failed:
        sys.exit("test_perf_ratio: " + "; ".join(failed))


main()
