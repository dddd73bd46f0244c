#!/usr/bin/env python3
"""The predicates of claims_verdicts.py at their bounds, on rows made by hand."""

import unittest

import claims_verdicts as v

APART = {
    "tps": 95.0, "tps_half": 2.0, "ttft": 300.0, "ttft_half": 3.0, "handover": 61.0, "busy": 0.5, "late": 0.0,
    "gaps": 0.0,
}
MIXED = {
    "tps": 50.0, "tps_half": 2.0, "ttft": 200.0, "ttft_half": 4.0, "handover": 1.0, "busy": 0.9, "late": 0.0,
    "gaps": 2.0,
}


def verdict(claim, apart=None, mixed=None):
    return v.r1_cell({**APART, **(apart or {})}, {**MIXED, **(mixed or {})})[claim]


class Cells(unittest.TestCase):
    def test_a_cell_in_which_all_hold(self):
        cell = v.r1_cell(APART, MIXED)
        self.assertEqual(set(cell.values()), {v.HOLDS})

    def test_an_interval_across_a_bound_is_open_and_not_joint(self):
        self.assertEqual(verdict("decode", {"tps": 91.0}), v.OPEN)
        self.assertEqual(verdict("joint", {"tps": 91.0}), v.OPEN)
        self.assertEqual(verdict("mixed", mixed={"tps": 54.0}), v.OPEN)

    def test_one_that_fails_decides(self):
        for claim, apart, mixed in (
            ("decode", {"tps": 87.0}, {}),
            ("mixed", {}, {"tps": 58.0}),
            ("prefill", {"busy": 0.9}, {}),
            ("prefill", {"late": 1.0}, {}),
            ("ttft", {"ttft": 240.0}, {}),
            ("ttft", {"ttft": 360.0}, {}),
            ("ttft", {"late": 1.0}, {}),
        ):
            self.assertEqual(verdict(claim, apart, mixed), v.FAILS, (claim, apart, mixed))
            self.assertEqual(verdict("joint", apart, mixed), v.FAILS, (claim, apart, mixed))

    def test_intervals_of_both_sides_count_for_the_difference(self):
        mean, half = v.added(APART, MIXED)
        self.assertEqual((mean, half), (100.0, 5.0))
        self.assertEqual(verdict("ttft", {"ttft": 345.1}), v.OPEN)
        self.assertEqual(verdict("ttft", {"ttft": 344.9}), v.HOLDS)

    def test_parts_are_those_that_a_colocated_engine_has_not(self):
        self.assertEqual(verdict("parts", {"handover": 50.9}), v.FAILS)
        self.assertEqual(verdict("parts", {"handover": 51.1}), v.HOLDS)

    def test_gaps_must_go_with_separation(self):
        self.assertEqual(verdict("gaps", mixed={"gaps": 0.9}), v.FAILS)
        self.assertEqual(verdict("gaps", {"gaps": 0.5}), v.FAILS)


class Ranks(unittest.TestCase):
    def cell(self, **changed):
        row = {
            "deployment": "dp", "control": "none", "engine": "sglang", "drafts": 1.0, "prompt": 1024.0,
            "output": 500.0, "prefill": 4.0, "tps": 50.0, "tps_half": 1.0, "busy": 0.5, "late": 0.0,
            "limit": "none",
        }
        return v.dp([{**row, **changed}])["sglang", 1.0, 1024.0, 500.0, 4.0][0]

    def test_a_full_decode_node_does_not_carry_the_load(self):
        self.assertEqual(self.cell()["joint"], v.HOLDS)
        self.assertEqual(self.cell(limit="prefill")["load"], v.HOLDS)
        self.assertEqual(self.cell(limit="decode KV")["joint"], v.FAILS)
        self.assertEqual(self.cell(late=1.0)["load"], v.FAILS)
        self.assertEqual(self.cell(tps=39.5)["joint"], v.OPEN)


class Splits(unittest.TestCase):
    def test_where_a_broken_line_passes_a_limit(self):
        line = [(1.0, 10.0), (2.0, 14.0), (4.0, 24.0)]
        self.assertEqual(v.crossing(line, 12.0), 1.5)
        self.assertEqual(v.crossing(line, 19.0), 3.0)
        self.assertEqual(v.crossing(line, 24.0), 4.0)
        self.assertEqual(v.crossing(line, 9.0), 0.0)

    def test_the_best_split_is_by_node(self):
        self.assertEqual(v.best_split({1: 1.0, 2: 3.0, 3: 4.0}), (2, 1.0))
        best, share = v.best_split({1: 2.0, 2: 3.6, 3: 4.4})
        self.assertEqual(best, 2)
        self.assertAlmostEqual(share, 1.1 / 1.2)
        self.assertEqual(v.best_split({1: 0.0, 3: 0.0}), (None, 0.0))

    def test_the_busy_prefill_node_bounds_a_rate(self):
        def row(rate, tpot, busy):
            return {
                "deployment": "qwen", "control": "none", "output": 400.0, "decode": 3.0, "rate": rate,
                "tpot": tpot, "busy": busy, "late": 0.0,
            }

        rates = v.qwen([row(1.0, 10.0, 0.7), row(2.0, 12.0, 1.1)])
        self.assertAlmostEqual(rates[400.0, 15.0][3], 1.5)


if __name__ == "__main__":
    unittest.main()
