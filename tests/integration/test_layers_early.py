#!/usr/bin/env python3
"""Where a layer costs 2 ms and more, nine of ten layers but the last are on their way before their
forward ends: that is what sending layer by layer is for."""

import pathlib
import statistics
import tempfile
import unittest

import demo

LAYERS = 4
FORWARDS_MIN = 100
REQUESTS = 80


def trace(directory):
    """Lengths of 33 to 63 tokens, and answers of one: what is measured are forwards of a prefill node."""
    path = pathlib.Path(directory) / "trace.csv"
    rows = [f"t,{33 + 7 * request % 31},1\n" for request in range(REQUESTS)]
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(rows))
    return path


class LayersEarly(unittest.TestCase):
    def measure(self, source_tp):
        with tempfile.TemporaryDirectory() as directory:
            result = demo.run(
                source_tp=source_tp, target_tp=1, decode_nodes=1, layers=LAYERS, hidden=512,
                trace=trace(directory), requests=REQUESTS, in_flight=4, chunk_tokens=32, timeout=200,
            )
        demo.expect_verified(self, result, REQUESTS)
        self.assertGreaterEqual(result.json["forwards"], FORWARDS_MIN, result)
        self.assertGreaterEqual(result.json["forward_ms"] / LAYERS, 2, result)
        return result.json["layers_early_ratio"]

    def test_one_rank(self):
        self.assertGreaterEqual(statistics.median(self.measure(1) for _ in range(3)), 0.9)

    def test_two_ranks(self):
        self.assertGreaterEqual(statistics.median(self.measure(2) for _ in range(3)), 0.9)


if __name__ == "__main__":
    unittest.main()
