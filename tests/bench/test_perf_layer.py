#!/usr/bin/env python3
"""From the stamp of a layer to its first write: `halage perf layer` on libfabric's TCP, the core thread on a
processor of its own. Its bounds hold where it looks at the counters itself; what the poller's thread takes is
printed beside it.
"""
import json
import os
import pathlib
import subprocess
import sys

BIN = pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage"
P50_US_MAX = 2
P90_US_MAX = 10


def main():
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        print("skipped: the core thread needs a processor of its own, and there is one in all")
        sys.exit(77)
    result = subprocess.run([str(w) for w in [BIN, "perf", "layer", "--local", "--provider", "tcp",
                                              "--cpu", cpus[-1], "--forwards", 100, "--json", "-"]],
                            capture_output=True, text=True, timeout=300, check=False)
    if result.returncode != 0:
        sys.exit(f"test_perf_layer: {result.stdout}{result.stderr}")
    print(result.stderr)
    rows = json.loads(result.stdout)["rows"]
    handed = {row["counters"]: row["handed_us"] for row in rows}
    core = handed["core"]
    if core["count"] < 1000:
        sys.exit("test_perf_layer: too few layers to mean anything")
    if not 0 < core["p50"] <= P50_US_MAX or core["p90"] > P90_US_MAX:
        sys.exit(f"test_perf_layer: p50 {core['p50']:.2f} us, p90 {core['p90']:.2f} us; at most "
                 f"{P50_US_MAX} and {P90_US_MAX}")


main()
