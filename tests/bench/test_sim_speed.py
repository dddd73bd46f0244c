#!/usr/bin/env python3
"""What a simulation costs, in processor time of its process (getrusage), so that other work on the machine
counts as little as can be. Full: the bounds of the project, for one core. Quick: the same against SimGrid's own
cost, measured beside it, which a busy or slow machine raises as well.

Both print what they measured: reports/speed.md was written from it."""

import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ["HALAGE_BIN_DIR"])
SOURCE = pathlib.Path(os.environ["HALAGE_SOURCE_DIR"])
DATA = os.environ.get("HALAGE_DATA")
R1 = SOURCE / "scenarios" / "article" / "r1-1p3d.yaml"
LAYERS = 61
FLOWS = LAYERS + 1  # of a request: its layers, one forward each at these lengths, and the context
# Mean and spread of azure2023_conv.csv (Azure's public trace of 2023, 19,366 conversations): 1154.7 prompt tokens
# with a deviation of 0.960 of the mean, 211.1 answer tokens with 0.771; longest 14,050 and 1,000.
CONVERSATION = [
    "traffic.prompt.kind=lognormal", "traffic.prompt.mean=1155", "traffic.prompt.cv=0.96",
    "traffic.prompt.min=2", "traffic.prompt.max=14050",
    "traffic.output.kind=lognormal", "traffic.output.mean=211", "traffic.output.cv=0.77",
    "traffic.output.min=7", "traffic.output.max=1000",
]


class Cost:
    """Processor seconds and peak memory of a command that must succeed."""

    def __init__(self, words):
        with tempfile.TemporaryFile() as out:
            child = subprocess.Popen(words, stdout=out, stderr=out)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                out.seek(0)
                raise AssertionError(f"{words}: {child.returncode}\n{out.read().decode()}")
        self.seconds = usage.ru_utime + usage.ru_stime
        self.mib = usage.ru_maxrss / 1024


def simulate(requests, *keys, scenario=R1):
    words = [str(BIN / "halage-sim"), "run", str(scenario), "--quiet"]
    if requests is not None:
        words.append(f"--requests={requests}")
    for key in keys:
        words += ["-s", key]
    return Cost(words)


def cluster(prefills):
    return (f"prefill.nodes={prefills}", f"decode.nodes={3 * prefills}",
            f"traffic.arrivals.rate={3 * prefills}/s")


def bare(*words):
    """Median ratio to the bare loop, and the bare loop's microseconds for a flow."""
    result = subprocess.run([BIN / "halage-bench-flows", *words], capture_output=True, check=True,
                            encoding="utf-8")
    print(result.stdout.rstrip())
    return (float(re.search(r"^ratio +([\d.]+)", result.stdout, re.M)[1]),
            float(re.search(r"^bare .*then ([\d.]+) us/flow", result.stdout, re.M)[1]))


class Quick(unittest.TestCase):
    def test_a_flow_costs_little_more_than_simgrid_alone(self):
        ratio, _ = bare("--engine", "--requests=60", "--runs=5")
        self.assertLessEqual(ratio, 2.5)

    def test_a_request_costs_little_more_than_its_flows_in_simgrid(self):
        few = []
        many = []
        for _ in range(3):
            few.append(simulate(200, "measure.warmup_requests=0", *CONVERSATION).seconds)
            many.append(simulate(2200, "measure.warmup_requests=0", *CONVERSATION).seconds)
        us = (statistics.median(many) - statistics.median(few)) / 2000 / FLOWS * 1e6
        _, alone = bare("--lanes=1", "--requests=150", "--runs=5")
        print(f"halage-sim, conversations: {us:.2f} us a flow; bare SimGrid: {alone:.2f}")
        self.assertLessEqual(us, 2.5 * alone)


class Full(unittest.TestCase):
    def test_ratio_to_the_bare_loop(self):
        for words in (["--engine"], []):
            ratio, _ = bare("--requests=300", "--runs=7", *words)
            self.assertLessEqual(ratio, 2)

    def test_requests(self):
        each = {}
        for count, runs in ((1000, 7), (10000, 3), (100000, 1)):
            costs = [simulate(count, *CONVERSATION) for _ in range(runs)]
            seconds = statistics.median(c.seconds for c in costs)
            each[count] = seconds / count
            print(f"conversations, {count}: {seconds:.2f} s, {each[count] * 1e6:.0f} us each, "
                  f"{costs[0].mib:.0f} MiB")
        self.assertLessEqual(100000 * each[100000], 20)
        # Flat. What the first thousand pay for the start is theirs, so the bound is on what more cost.
        self.assertLessEqual(each[100000], 1.3 * each[10000])
        self.assertLessEqual(each[100000], 1.3 * each[1000])

    def test_prompts_of_the_article(self):
        cost = simulate(100000)
        print(f"4096 and 500 tokens, 100000: {cost.seconds:.2f} s, {cost.mib:.0f} MiB")
        self.assertLessEqual(cost.seconds, 20)

    def test_a_million(self):
        cost = simulate(1000000, *CONVERSATION)
        print(f"conversations, 1000000: {cost.seconds:.1f} s, {cost.mib:.0f} MiB")
        self.assertLessEqual(cost.seconds, 200)
        self.assertLessEqual(cost.mib, 1024)

    def test_mooncake(self):
        if DATA is None:
            self.skipTest("HALAGE_DATA is not set")
        costs = [simulate(None, scenario=SOURCE / "scenarios" / "mooncake.yaml") for _ in range(3)]
        seconds = statistics.median(c.seconds for c in costs)
        print(f"Mooncake's 12031 conversations: {seconds:.2f} s, {costs[0].mib:.0f} MiB")
        self.assertLessEqual(seconds, 6)

    def test_nodes(self):
        for prefills in (1, 4, 16, 64, 128):
            keys = cluster(prefills)
            few = simulate(1000, *keys, *CONVERSATION)
            many = simulate(11000, *keys, *CONVERSATION)
            us = (many.seconds - few.seconds) / 10000 / FLOWS * 1e6
            print(f"{4 * prefills} nodes: {us:.2f} us a flow; the first 1000 requests {few.seconds:.2f} s, "
                  f"{many.mib:.0f} MiB")
            self.assertLessEqual(many.mib, 4096)
            self.assertLessEqual(us, 10)


if __name__ == "__main__":
    unittest.main(verbosity=2)
