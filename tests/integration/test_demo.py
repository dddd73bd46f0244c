#!/usr/bin/env python3
"""`halage demo` in small: one pair of nodes first, then each thing that may vary, over both
providers. Everything must be verified against a run in one process."""

import json
import subprocess
import unittest

import demo

PROVIDERS = ("net", "tcp;ofi_rxm")


class Variants(unittest.TestCase):
    def verify(self, *words, requests=8, **values):
        values = {"decode_nodes": 1, "provider": "net", **values}
        result = demo.run(*words, requests=requests, **values)
        demo.expect_verified(self, result, requests)
        return result

    def test_one_rank_writes_to_one_rank(self):
        native = demo.native_tcp()
        for provider, name in (("net", native), ("tcp", native), ("tcp;ofi_rxm", "tcp;ofi_rxm")):
            with self.subTest(provider=provider):
                result = self.verify(source_tp=1, target_tp=1, provider=provider)
                self.assertEqual(result.json["provider"], name)

    def test_latents_go_from_eight_ranks_to_eight_pools(self):
        self.verify(model="mla", source_tp=8, target_tp=1, target_dp=8)

    def test_fewer_ranks_decode(self):
        self.verify(source_tp=4, target_tp=2, provider="tcp;ofi_rxm")

    def test_more_ranks_decode(self):
        self.verify(source_tp=2, target_tp=4)

    def test_ranks_share_no_divisor(self):
        self.verify(source_tp=3, target_tp=2, kv_heads=6)

    def test_replicated_heads(self):
        self.verify(source_tp=8, target_tp=2, kv_heads=2, provider="tcp;ofi_rxm")

    def test_tokens_before_heads_in_pages_of_one(self):
        self.verify(layout="nhd", page_tokens=1, source_tp=2, target_tp=1)

    def test_tokens_before_heads_when_heads_are_cut(self):
        self.verify(layout="nhd", source_tp=1, target_tp=2, kv_heads=4)

    def test_chunks_of_one_token(self):
        self.verify(requests=4, chunk_tokens=1, source_tp=1)

    def test_chunks_that_end_within_pages(self):
        self.verify(chunk_tokens=7)

    def test_whole_prompts(self):
        self.verify(chunk_tokens="unlimited", decode_nodes=3, provider="tcp;ofi_rxm")

    def test_other_seeds_give_other_requests(self):
        first = self.verify(seed=1)
        second = self.verify(seed=2)
        self.assertNotEqual(first.json["kv_bytes"], second.json["kv_bytes"])

    def test_a_trace_gives_the_lengths(self):
        directory = self.enterContext(demo.tempfile.TemporaryDirectory())
        trace = demo.pathlib.Path(directory) / "trace.csv"
        rows = ["TIMESTAMP,ContextTokens,GeneratedTokens", "t,1000,20", "t,24,1000", "t,1,1"]
        trace.write_text("\n".join(rows) + "\n")
        result = demo.run(requests=200, trace=trace, decode_nodes=1)
        demo.expect_verified(self, result, 3)

    def test_a_trace_gives_the_times(self):
        directory = self.enterContext(demo.tempfile.TemporaryDirectory())
        trace = demo.pathlib.Path(directory) / "trace.csv"
        # Over the end of a leap month and of a day: 0, 0.25, 0.75 and 0.75 s.
        rows = ["TIMESTAMP,ContextTokens,GeneratedTokens", "2024-02-29 23:59:59.5,20,4",
                "2024-02-29 23:59:59.75,30,4", "2024-03-01 00:00:00.2500000,40,4",
                "2024-03-01 00:00:00.25,50,4"]
        trace.write_text("\n".join(rows) + "\n")
        result = demo.run("--detail", trace=trace, arrivals="trace", decode_nodes=3)
        demo.expect_verified(self, result, 4)
        requests = result.json["detail"]["requests"]
        for request, due in zip(requests, (0, 250e6, 750e6, 750e6)):
            self.assertGreaterEqual(request["submitted_ns"], due, result)
        self.assertLess(requests[0]["submitted_ns"], 250e6, result)
        self.assertEqual([r["decode_node"] for r in requests], [0, 1, 2, 0])
        self.assertEqual([r["prompt_tokens"] for r in requests], [20, 30, 40, 50])

    def test_prefill_nodes_take_turns_and_the_detail_adds_up(self):
        result = demo.run("--detail", requests=24, prefill_nodes=3, decode_nodes=2)
        demo.expect_verified(self, result, 24)
        self.assertIn("3 prefill nodes of 2 ranks", result.out)
        requests = result.json["detail"]["requests"]
        steps = result.json["detail"]["steps"]
        self.assertEqual({r["prefill_node"] for r in requests}, {0, 1, 2})
        for node in (0, 1):  # each in its own order; one prompt of one token asks nobody
            turns = [r["prefill_node"] for r in requests if r["decode_node"] == node]
            self.assertEqual(len(set(turns)), min(3, len(turns)))
        self.assertEqual(sum(r["bytes"] for r in requests), result.json["kv_bytes"])
        self.assertEqual(sum(r["pieces"] for r in requests), result.json["pieces_counted"])
        prefill = [step for step in steps if step["kind"] == "prefill"]
        self.assertEqual(sum(step["tokens"] for step in prefill),
                         sum(r["prompt_tokens"] - 1 for r in requests))
        self.assertEqual(len(prefill), result.json["forwards"])
        decode = [step for step in steps if step["kind"] == "decode"]
        self.assertEqual(sum(step["tokens"] for step in decode),
                         sum(r["output_tokens"] for r in requests))
        for request in requests:
            # ACCEPT and the pieces travel apart: either may come first, and ACCEPT after READY is not told
            moments = ["submitted_ns", "asked_ns", "first_piece_ns",
                       "last_piece_ns", "ready_ns", "first_token_ns"]
            if request["prompt_tokens"] > 1:
                times = [request[name] for name in moments]
                self.assertEqual(times, sorted(times), request)
                if request["accepted_ns"] is not None:
                    self.assertLess(request["asked_ns"], request["accepted_ns"], request)
                    self.assertLessEqual(request["accepted_ns"], request["ready_ns"], request)
            else:
                self.assertIsNone(request["last_piece_ns"])
        accepted = [r for r in requests if r["accepted_ns"] is not None]
        self.assertGreater(len(accepted), len(requests) / 2)

    def test_two_prefill_nodes_send_each_request(self):
        for provider in PROVIDERS:
            with self.subTest(provider=provider):
                result = self.verify(sources=2, source_tp=4, target_tp=2, decode_nodes=2, provider=provider)
                self.assertIn("2 prefill nodes of 4 ranks, each sending 2 of them", result.out)
                posted = [node["pieces_posted"] for node in result.json["nodes"] if "prefill" in node["node"]]
                self.assertEqual(len(posted), 2)
                self.assertGreater(min(posted), 0)
                self.assertEqual(sum(posted), result.json["pieces_counted"])

    def test_sources_of_one_rank_each(self):
        self.verify(requests=5, sources=4, source_tp=4, target_tp=2, layout="nhd", chunk_tokens=7)

    def test_of_replicas_one_source_sends(self):
        """Each request's latents lie whole at both nodes, and come from one of them."""
        result = self.verify(requests=12, model="mla", sources=2, source_tp=2, target_tp=1, target_dp=2)
        single = self.verify(requests=12, model="mla", source_tp=1, target_tp=1, target_dp=2)
        self.assertEqual(result.json["pieces_counted"], single.json["pieces_counted"])
        self.assertEqual(result.json["kv_bytes"], single.json["kv_bytes"])
        self.verify(requests=5, sources=2, source_tp=8, target_tp=2, kv_heads=2, provider="tcp;ofi_rxm")

    def test_sets_of_sources_take_turns(self):
        result = self.verify("--detail", requests=10, sources=2, prefill_nodes=4)
        requests = [r for r in result.json["detail"]["requests"] if r["prompt_tokens"] > 1]
        self.assertEqual({r["prefill_node"] for r in requests}, {0, 2})

    def test_json_on_stdout_leaves_it_to_json(self):
        result = subprocess.run(
            [demo.HALAGE, "demo", "--json=-", "--requests=3", "--decode-nodes=1"],
            capture_output=True, text=True, timeout=60, check=True,
        )
        values = json.loads(result.stdout)
        self.assertEqual(values["verified"], 3)
        for name in ("ttft_ms", "handover_ms", "exposed_transfer_ms"):
            self.assertEqual(sorted(values[name]), ["p50", "p90", "p99"])
            self.assertLessEqual(values[name]["p50"], values[name]["p99"])
        self.assertIn("layers_early_ratio", values)
        self.assertIn("3 verified", result.stderr)


class Prefill(unittest.TestCase):
    def test_no_sampler_is_linked_into_it(self):
        names = subprocess.run(
            ["nm", demo.BIN / "halage-prefill"], capture_output=True, text=True, check=True
        ).stdout
        self.assertIn("tlm_forward", names)
        for name in ("tlm_sample", "greedy", "tlm_reference"):
            self.assertNotIn(name, names)


if __name__ == "__main__":
    unittest.main()
