#!/usr/bin/env python3
"""Plant faults in the demo, one at a time, and see that the verification finds each where it is:
a check that never fails proves nothing. docs/testing.md lists the kinds."""

import itertools
import unittest

import demo

LAYERS, PLANES, RANKS = 2, 2, 2
PLACES = list(itertools.product(range(LAYERS), range(PLANES), range(RANKS)))


class Faults(unittest.TestCase):
    def plant(self, kind, place=(0, 0, 0), **values):
        values = {
            "layers": LAYERS, "source_tp": RANKS, "target_tp": RANKS, "kv_heads": 2,
            "decode_nodes": 1, "requests": 3, "provider": "net", **values,
        }
        where = ",".join(map(str, place))
        result = demo.run(plant=f"{kind}:{where}", **values)
        self.assertEqual(result.status, demo.FAILED, f"{kind} {place}\n{result}")
        self.assertGreaterEqual(result.json["mismatched"], 1, f"{kind} {place}\n{result}")
        return result

    def test_without_a_fault_all_is_well(self):
        result = demo.run(layers=LAYERS, source_tp=RANKS, target_tp=RANKS, kv_heads=2,
                          decode_nodes=1, requests=3, provider="net")
        demo.expect_verified(self, result, 3)

    def test_a_landed_byte(self):
        for layer, plane, rank in PLACES:
            result = self.plant("landed", (layer, plane, rank))
            self.assertEqual(result.json["mismatched"], 1)
            self.assertIn(f"rank {rank}, layer {layer}, plane {plane}\n", result.err)

    def test_a_byte_after_it_was_looked_at(self):
        for place in PLACES:
            result = self.plant("landed-after", place)
            self.assertEqual(result.json["mismatched"], 1)
            self.assertIn("logits of step 0 differ", result.err)

    def test_a_byte_of_a_context(self):
        for rank in range(RANKS):
            result = self.plant("context", (0, 0, rank))
            self.assertIn(f"context differs: pool 0, rank {rank}\n", result.err)

    def test_a_wrong_offset(self):
        for layer, plane, rank in PLACES:
            result = self.plant("offset", (layer, plane, rank))
            self.assertIn(f"rank {rank}, layer {layer}, plane {plane}\n", result.err)

    def test_ready_before_the_last_piece(self):
        for layer, plane, rank in PLACES:
            result = self.plant("early-ready", (layer, plane, rank))
            self.assertIn(f"rank {rank}, layer {layer}, plane {plane}\n", result.err)

    def test_a_tick_before_its_layer(self):
        for layer in range(LAYERS):
            result = self.plant("early-tick", (layer, 0, 0))
            self.assertIn("landed bytes differ", result.err)

    def test_a_token(self):
        self.assertIn("token of step 0 differs", self.plant("token").err)

    def test_a_byte_in_a_free_page(self):
        """What --guard is for; the requests themselves are good."""
        for layer, plane, rank in (PLACES[0], PLACES[-1]):
            result = demo.run("--guard", plant=f"free:{layer},{plane},{rank}", layers=LAYERS, source_tp=RANKS,
                              target_tp=RANKS, kv_heads=2, decode_nodes=1, requests=3, provider="net")
            self.assertEqual(result.status, demo.FAILED, result)
            self.assertEqual(result.json["verified"], 3, result)
            self.assertIn(f"group 0, lane {rank}, area {layer * PLANES + plane}\n", result.err)
            self.assertIn("bytes landed in 1 pages that nobody had asked for", result.err)

    def test_a_pool_of_its_own(self):
        result = self.plant("landed", (1, 0, 5), model="mla", source_tp=8, target_tp=1,
                            target_dp=8, requests=16)
        self.assertIn("pool 5, rank 0, layer 1, plane 0\n", result.err)


if __name__ == "__main__":
    unittest.main()
