#!/usr/bin/env python3
"""`halage-sim sweep`, `plan` and what `run` writes, as a user calls them, on real simulations: the same
bytes with any jobs, shards and after kill -9; rows for points that cannot be run; verdicts of plans;
traces that open; pictures where there is gnuplot."""

import csv
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

HALAGE_SIM = pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage-sim"

SCENARIO = """\
schema: 1
name: small
traffic:
  requests: 60
measure:
  warmup_requests: 0
sweep:
  - key: traffic.arrivals.rate
    values: [2/s, 4/s]
  - key: decode.nodes
    values: [1, 3]
"""

GRID = ["-g", "prefill.nodes:decode.nodes=1:3,2:2", "-g", "traffic.arrivals.rate=2/s,4/s,6/s"]


class Case(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        (self.directory / "s.yaml").write_text(SCENARIO, encoding="utf-8")

    def sim(self, *words, status=0, environment=None):
        result = subprocess.run(
            [HALAGE_SIM, *words], cwd=self.directory, capture_output=True, text=True, timeout=120,
            check=False, env=environment,
        )
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def read(self, name):
        return (self.directory / name).read_bytes()

    def rows(self, folder):
        lines = self.read(f"{folder}/sweep.tsv").decode().splitlines()
        self.assertTrue(lines[0].startswith("# halage-sim "))
        return list(csv.DictReader(lines[1:], delimiter="\t"))

    def assert_same(self, one, other):
        for name in "sweep.tsv", "sweep.json":
            self.assertEqual(self.read(f"{one}/{name}"), self.read(f"{other}/{name}"), name)


class Sweep(Case):
    def sweep(self, folder, *words, **more):
        return self.sim("sweep", "s.yaml", "--quiet", *GRID, "--out", folder, *words, **more)

    def test_jobs_and_shards_do_not_show(self):
        self.sweep("one", "--jobs", "1")
        self.sweep("two", "--jobs", "2")
        self.sweep("shards", "--shard", "2/2")
        self.assertFalse((self.directory / "shards/sweep.tsv").exists())
        self.sweep("shards", "--shard", "1/2")
        self.assert_same("one", "two")
        self.assert_same("one", "shards")
        rows = self.rows("one")
        self.assertEqual(len(rows), 6)
        self.assertEqual([row["prefill.nodes:decode.nodes"] for row in rows], ["1:3"] * 3 + ["2:2"] * 3)
        for row in rows:
            self.assertEqual(row["status"], "done")
            self.assertGreater(float(row["ttft_p50_ms"]), 0)

    def test_killed_it_goes_on(self):
        self.sweep("whole")
        sweep = subprocess.Popen(
            [HALAGE_SIM, "sweep", "s.yaml", "--quiet", *GRID, "--out", "killed", "--jobs", "1"],
            cwd=self.directory,
        )
        folder = self.directory / "killed"
        while sweep.poll() is None and len(list(folder.glob("*.json"))) < 2:
            time.sleep(0.001)
        sweep.kill()
        sweep.wait()
        result = self.sweep("killed")
        self.assertNotIn(" 0 kept", result.stdout)
        self.assert_same("whole", "killed")

    def test_interrupted_it_says_so(self):
        many = ["-g", "seed=" + ",".join(str(seed) for seed in range(200))]
        sweep = subprocess.Popen(
            [HALAGE_SIM, "sweep", "s.yaml", "--quiet", *many, "--out", "out", "--jobs", "2"],
            cwd=self.directory, stderr=subprocess.PIPE, text=True,
        )
        while not list((self.directory / "out").glob("*.json")):
            time.sleep(0.001)
        sweep.send_signal(signal.SIGINT)
        _, errors = sweep.communicate(timeout=60)
        self.assertEqual(sweep.returncode, 130)
        self.assertIn("of 200 points; the same command goes on from there", errors)
        self.assertFalse(list((self.directory / "out").glob("*.part")))

    def test_results_that_nothing_holds_end_it(self):
        (self.directory / "file").write_text("kept")
        result = self.sim("sweep", "s.yaml", "--quiet", *GRID, "--out", "file", status=1)
        self.assertIn("file: is not a folder; give another to --out", result.stderr)
        self.assertEqual((self.directory / "file").read_text(), "kept")
        # Files as /proc/self/fd has them: none can be made in it, though access() allows it to root.
        result = self.sim("sweep", "s.yaml", "--quiet", *GRID, "--out", "/proc/self/fd", status=1)
        self.assertRegex(result.stderr, r"^halage-sim sweep: /proc/self/fd.*\n\Z")
        self.assertNotIn("sweep:", result.stdout)

    def test_outputs_that_cannot_be_are_refused_before_the_work(self):
        for command in (["run", "s.yaml", "--json"], ["run", "s.yaml", "--csv"], ["run", "s.yaml", "--series"],
                        ["run", "s.yaml", "--trace-out"], ["sweep", "s.yaml", *GRID, "--out", "o", "--json"],
                        ["plan", "s.yaml", "--gpus=32", "--slo=ttft=1s", "--json"]):
            for path in ("none/file", ".", "s.yaml/file"):
                with self.subTest(command=command, path=path):
                    result = self.sim(*command, path, status=2)
                    self.assertRegex(result.stderr, rf"^halage-sim {command[0]}: {command[-1]}: {path}: cannot create: .*; "
                                                    r"give another file\n\Z")
                    self.assertEqual(result.stdout, "")
        self.assertFalse((self.directory / "o").exists())

    def test_a_model_that_is_not_listed_is_said_to_be_so(self):
        (self.directory / "m.yaml").write_text("schema: 1\nmodel:\n  name: DeepSeek\n  layers: 0\n", encoding="utf-8")
        result = self.sim("check", "m.yaml", status=2)
        self.assertIn("model DeepSeek: has no layers, and is none of 'halage-sim list models'", result.stderr)

    def test_bad_points_are_rows(self):
        result = self.sim("sweep", "s.yaml", "--quiet", "-g", "decode.gpu=H200,H100", "--out", "o")
        self.assertIn("2 points, 2 run now, 0 kept; 1 refused, 0 failed", result.stdout)
        rows = self.rows("o")
        self.assertEqual([row["status"] for row in rows], ["done", "refused"])
        self.assertIn("GiB", rows[1]["sentence"])
        self.assertEqual(rows[1]["ttft_p50_ms"], "nan")

    def test_what_cannot_be_read_is_refused_before_anything_runs(self):
        for axis, part in (
            ("decode.gpu=H200,none", "-g: decode.gpu: 'none'"),
            ("seed=1,two", "-g: seed: 'two': write a whole number"),
            ("decode.nodez=1,2", "'decode.nodez'"),
            ("decode.nodes=1,0", "-g: decode.nodes: '0': write a whole number, 1 to"),
        ):
            result = self.sim("sweep", "s.yaml", "-g", axis, "--out", "o", status=2)
            self.assertIn(part, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)
            self.assertFalse((self.directory / "o").exists())
        result = self.sim("sweep", "s.yaml", "-s", "seed=x", "-g", "decode.nodes=1,2", "--out", "o", status=2)
        self.assertIn("-s: seed: 'x'", result.stderr)

    def test_points_that_repeat_are_said(self):
        result = self.sim("sweep", "s.yaml", "--quiet", "-g", "seed=1,2,1", "-g", "decode.nodes=1,1", "--out", "o")
        self.assertIn("note: 4 of 6 points repeat another; point 1 is the same as 0\n", result.stderr)
        result = self.sim("sweep", "s.yaml", "--quiet", "-g", "seed=1,2", "--out", "o")
        self.assertNotIn("note", result.stderr)

    def test_when_no_point_can_be_run_that_is_the_end(self):
        result = self.sim("sweep", "s.yaml", "--quiet", "-g", "decode.gpu=H100", "-g", "seed=1,2", "--out", "o", status=3)
        self.assertIn("no point can be run; the first: ", result.stderr)
        self.assertIn("GiB", result.stderr)
        self.assertEqual([row["status"] for row in self.rows("o")], ["refused", "refused"])

    def test_nothing_measured_is_said(self):
        self.sim("sweep", "s.yaml", "--quiet", "-g", "measure.warmup=0s,1h", "--out", "o")
        rows = self.rows("o")
        self.assertEqual([row["status"] for row in rows], ["done", "refused"])
        self.assertIn("measure.warmup: nothing would be measured", rows[1]["sentence"])
        for words, key in ((["-s", "measure.warmup=1h"], "measure.warmup: "),
                           (["-s", "measure.stop=1ms"], "measure.stop: "),
                           (["-s", "measure.window=1ms"], "measure.window: "),
                           (["-s", "measure.stop=1s", "-s", "measure.warmup_requests=50"], "measure.stop: ")):
            for command in "run", "check":
                result = self.sim(command, "s.yaml", *words, status=2)
                self.assertIn(key + "nothing would be measured: ", result.stderr)
                self.assertEqual((result.stderr.count("\n"), result.stdout), (1, ""))

    def test_nothing_measured_that_only_the_run_can_know_is_said_too(self):
        closed = ("-s", "traffic.arrivals.kind=closed", "-s", "traffic.arrivals.users=2", "-s", "measure.warmup=1h")
        result = self.sim("run", "s.yaml", "--quiet", *closed, status=1)
        self.assertIn("NOTHING     was measured", result.stdout)
        self.assertIn("nothing was measured: ", result.stderr)

    def test_the_scenario_has_a_grid(self):
        self.sim("sweep", "s.yaml", "--quiet", "--out", "o", "--json", "copy.json")
        points = json.loads(self.read("copy.json"))["points"]
        self.assertEqual(
            [list(point["set"].values()) for point in points],
            [["2/s", "1"], ["2/s", "3"], ["4/s", "1"], ["4/s", "3"]],
        )
        for point in points:
            origin = point["report"]["origin"]
            self.assertEqual(origin["scenario_digest"], point["digest"])
            self.assertTrue(origin["version"] and origin["cost"][0]["calibration"])

    def test_bad_words_are_refused(self):
        for words, sentence in (
            (["--shard", "0/2"], "--shard: '0/2': write I/N with 1 <= I <= N"),
            (["--shard", "3/2"], "--shard: '3/2'"),
            (["--jobs", "0"], "--jobs: '0'"),
            (["-g", "seed"], "has no '=' after a key"),
            (["-g", "seed=1", "-g", "seed=2"], "has a key that another axis has"),
        ):
            result = self.sim("sweep", "s.yaml", "--out", "o", *words, status=2)
            self.assertIn(sentence, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)
        self.sim("sweep", "s.yaml", status=2)
        self.sim("sweep", "none.yaml", "-g", "seed=1", "--out", "o", status=2)

    @unittest.skipUnless(shutil.which("gnuplot"), "gnuplot is not installed")
    def test_pictures_are_drawn(self):
        self.sweep("o", "--plot")
        self.sim("run", "s.yaml", "--quiet", "--plot", "p")
        for name in "o/sweep", "p/latency", "p/series":
            self.assertEqual(self.read(name + ".png")[:8], b"\x89PNG\r\n\x1a\n")
            svg = self.read(name + ".svg").decode()
            self.assertIn("</svg>", svg)
            self.assertIn("ms" if name != "p/series" else "virtual time (s)", svg)

    def test_without_gnuplot_it_says_so_and_goes_on(self):
        empty = dict(os.environ, PATH=str(self.directory))
        result = self.sweep("o", "--plot", environment=empty)
        self.assertIn("gnuplot is not installed", result.stderr)
        self.assertTrue((self.directory / "o/sweep.gp").exists())
        self.assertEqual(len(self.rows("o")), 6)


class Run(Case):
    def test_every_file_is_written_and_agrees(self):
        self.sim("run", "s.yaml", "--quiet", "--json", "r.json", "--csv", "r.csv", "--trace-out", "t.json")
        report = json.loads(self.read("r.json"))
        lines = self.read("r.csv").decode().splitlines()
        rows = list(csv.DictReader(lines[1:]))
        self.assertEqual(len(rows), 60)
        self.assertIn(report["origin"]["scenario_digest"], lines[0])
        ttft = sorted(int(row["ttft_ns"]) for row in rows)
        self.assertAlmostEqual(report["latency"]["ttft_ms"]["p50"], ttft[29] / 1e6, places=5)
        self.assertAlmostEqual(report["latency"]["ttft_ms"]["max"], ttft[59] / 1e6, places=5)
        parts = report["latency"]["ttft_parts_ms"]
        self.assertAlmostEqual(
            sum(part["mean"] for part in parts.values()), report["latency"]["ttft_ms"]["mean"], places=5
        )
        events = json.loads(self.read("t.json"))["traceEvents"]
        threads = {}
        for event in events:
            if event["ph"] == "X":
                begin = round(event["ts"] * 1000)
                threads.setdefault((event["pid"], event["tid"]), []).append(
                    (begin, -round(event["dur"] * 1000))
                )
        self.assertGreater(len(threads), 4)
        for spans in threads.values():
            open_ends = []
            for begin, minus in sorted(spans):
                while open_ends and open_ends[-1] <= begin:
                    open_ends.pop()
                self.assertTrue(not open_ends or begin - minus <= open_ends[-1])
                open_ends.append(begin - minus)


    def report(self, *words):
        self.sim("run", "s.yaml", "--quiet", "--json", "r.json", *words)
        return json.loads(self.read("r.json"))

    def test_kv_limits_the_batch(self):
        """C02: pages for ten and a half requests hold ten, within 2 %; more slots change nothing."""
        room = 21 * (4096 + 500) // 2 // 64 * 64 + 64
        words = ["-s", f"decode.kv_tokens={room}", "-s", "traffic.requests=400", "-s", "decode.nodes=1",
                 "-s", "prefill.nodes=4", "-s", "traffic.arrivals.rate=4/s"]
        small = self.report(*words, "-s", "decode.sequences_max=64")
        large = self.report(*words, "-s", "decode.sequences_max=256")
        self.assertEqual(small["limit"], "decode KV")
        self.assertAlmostEqual(small["use"]["limit_batch"], 10, delta=0.2)
        self.assertEqual(small["throughput"], large["throughput"])
        slots = self.report(*words, "-s", "decode.sequences_max=4")
        self.assertEqual(slots["limit"], "decode batch slots")
        self.assertAlmostEqual(slots["use"]["limit_batch"], 4, delta=0.2)

    def test_overload_ends_and_counts_the_unfinished(self):
        """C18: an unfinished request counts as what it waited, and p99 falls among those."""
        words = ["-s", "traffic.requests=1000", "-s", "traffic.arrivals.kind=fixed",
                 "-s", "traffic.arrivals.rate=20/s", "-s", "measure.stop=50s"]
        report = self.report(*words, "--csv", "r.csv")
        self.assertTrue(report["overloaded"])
        self.assertEqual(report["limit"], "prefill")
        rows = list(csv.DictReader(self.read("r.csv").decode().splitlines()[1:]))
        waited = sorted(
            50_000_000_000 - int(row["arrived_ns"]) if row["ttft_is"] == "at least" else int(row["ttft_ns"])
            for row in rows
        )
        unfinished = report["requests"]["unfinished"]
        self.assertGreater(unfinished, 500)
        ttft = report["latency"]["ttft_ms"]
        self.assertTrue(ttft["lower_bound"]["p99"])
        self.assertGreater(ttft["open_count"], 500)
        self.assertAlmostEqual(ttft["p99"], waited[989] / 1e6, places=4)
        text = self.sim("run", "s.yaml", "--quiet", *words).stdout
        self.assertIn("OVERLOADED", text)
        self.assertRegex(text, r"TTFT .*>=")

    def test_equal_prompts_at_once_wait_in_a_row(self):
        """C05: b prompts of one budget at once on one node: queue and prefill are (b + 1) / 2 steps."""
        b = 20
        report = self.report(
            "-s", f"traffic.requests={b}", "-s", "traffic.arrivals.kind=bursts",
            "-s", f"traffic.arrivals.burst_requests={b}", "-s", "traffic.prompt.tokens=8193",
        )
        parts = report["latency"]["ttft_parts_ms"]
        step = parts["prefill"]["p50"]
        mean = parts["prefill queue"]["mean"] + parts["prefill"]["mean"]
        self.assertAlmostEqual(mean / ((b + 1) / 2 * step), 1, delta=0.01)


class Plan(Case):
    def plan(self, *words, status=0):
        return self.sim("plan", "s.yaml", "--quiet", "--json", "p.json", *words, status=status)

    def test_a_feasible_split_is_found(self):
        result = self.plan("--slo", "ttft=2s,tpot=40ms", "--rate", "3/s", "--gpus", "32")
        plan = json.loads(self.read("p.json"))
        best = plan["rows"][plan["best"]]
        self.assertTrue(plan["feasible"] and best["feasible"])
        for row in plan["rows"]:
            self.assertLessEqual(row["gpus"], 32)
            if row["feasible"]:
                self.assertGreaterEqual(row["gpus"], best["gpus"])
                self.assertGreaterEqual(row["report"]["slo"]["share"], 0.9)
            else:
                self.assertTrue(row["because"])
        self.assertIn("colocated", [row["serving"] for row in plan["rows"]])
        lines = result.stdout.splitlines()
        self.assertRegex(lines[2], r"^\* fewest GPUs: \S.* on \d+ GPUs = [0-9.]+ machines?")
        self.assertEqual(lines[2], lines[-1])
        self.assertIn("they are not searched", result.stdout)
        again = self.read("p.json")
        self.plan("--slo", "ttft=2s,tpot=40ms", "--rate", "3/s", "--gpus", "32", "--jobs", "1")
        self.assertEqual(self.read("p.json"), again)

    def test_what_no_size_can_do_is_said(self):
        result = self.plan("--slo", "ttft=50ms", "--rate", "1/s", "--gpus", "512", status=3)
        self.assertIn("infeasible at any size: on idle nodes", result.stdout)
        result = self.plan("--slo", "tpot=1ms", "--rate", "1/s", "--gpus", "512", status=3)
        self.assertIn("infeasible at any size: a sequence alone", result.stdout)
        result = self.plan("--slo", "tpot=20ms", "--rate", "1/s", "--gpus", "8", status=3)
        self.assertIn("infeasible because 8 GPUs are fewer", result.stdout)
        self.assertFalse(json.loads(self.read("p.json"))["feasible"])

    def test_what_cannot_be_simulated_is_bad_input(self):
        """A scenario that `check` refuses is none to plan; a row that it refuses is not called infeasible."""
        words = ("--slo", "tpot=40ms", "--gpus", "64")
        result = self.plan(*words, "-s", "prefill.gpu=H100", status=2)
        self.assertIn("GiB missing", result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)
        result = self.plan(*words, "-s", "colocated.tp=16", "--rate", "1/s")
        row = next(line for line in result.stdout.splitlines() if line.startswith(" co-loc."))
        self.assertIn("  not simulated: ", row)
        self.assertNotIn("infeasible", row)

    def test_machines_are_counted_and_rows_say_what_they_rest_on(self):
        """Two kinds of node of 4 and 8 GPUs in machines of 8; co-located nodes are as the decode nodes."""
        result = self.plan("--slo", "ttft=5s", "--gpus", "20", "--rate", "1/s", "-s", "model.name=Llama-3.1-70B",
                           "-s", "prefill.tp=4", "-s", "decode.engine=vllm")
        plan = json.loads(self.read("p.json"))
        self.assertEqual(plan["machine_gpus"], 8)
        self.assertRegex(result.stdout, r"\n.1:2 +20 +2\.5 ")
        mixed = [row["report"]["origin"]["cost"] for row in plan["rows"] if row["serving"] == "colocated"]
        apart = plan["rows"][0]["report"]["origin"]["cost"]
        self.assertIn("constants of vllm on H100", apart[1]["why"])
        for cost in mixed:
            self.assertEqual(cost[0]["why"], apart[1]["why"])
        self.assertEqual(apart[0]["why"], "")
        self.assertRegex(result.stdout, r"\n  prefill: sglang \S+, calibration \S+\n")
        self.assertIn(f"  co-located: vllm 0.15.1, calibration {apart[1]['calibration']}; rests on: {apart[1]['why']}",
                      result.stdout)

    def test_overload_is_said(self):
        result = self.plan("--slo", "ttft=5s", "--rate", "60/s", "--gpus", "16", status=3)
        self.assertRegex(result.stdout, r"prefill is overloaded [0-9.]+ times: the rate needs at least")
        self.assertIn("nothing is feasible with 16 GPUs", result.stdout)

    def test_without_load_the_fewest_nodes_do(self):
        """C08: nothing is left over from a load that went away."""
        self.plan("--slo", "ttft=2s,tpot=40ms", "--rate", "0.01/s", "--gpus", "48")
        plan = json.loads(self.read("p.json"))
        self.assertEqual(plan["rows"][plan["best_split"]]["gpus"], 16)
        self.assertEqual(plan["rows"][plan["best_colocated"]]["gpus"], 8)
        self.assertEqual(plan["best"], plan["best_colocated"])

    def test_bursts_are_planned_for(self):
        """C07: at the same mean rate, queues of bursts are in the verdict."""
        words = ("--slo", "ttft=1s,tpot=40ms", "--rate", "4/s", "--gpus", "48", "--requests", "400")
        found = []
        for arrivals in (), ("-s", "traffic.arrivals.kind=gamma", "-s", "traffic.arrivals.cv=4"):
            self.plan(*words, *arrivals)
            plan = json.loads(self.read("p.json"))
            first = next(row for row in plan["rows"] if (row["prefill_nodes"], row["decode_nodes"]) == (1, 1))
            found.append((plan["rows"][plan["best_split"]]["gpus"], first["report"]["latency"]["ttft_ms"]["mean"]))
        self.assertGreater(found[1][0], found[0][0])
        self.assertGreater(found[1][1], 3 * found[0][1])

    def test_co_located_nodes_are_compared_at_equal_gpus(self):
        """C23: same GPUs, requests and SLO."""
        self.plan("--slo", "ttft=2s,tpot=40ms", "--rate", "3/s", "--gpus", "32")
        rows = json.loads(self.read("p.json"))["rows"]
        mixed = [row for row in rows if row["serving"] == "colocated"]
        apart = [row for row in rows if row["serving"] != "colocated" and row["gpus"] == 32]
        counts = [row["gpus"] for row in mixed]
        self.assertEqual(counts, sorted(set(counts)))
        self.assertEqual(counts[-1], 32)
        self.assertLessEqual({row["gpus"] for row in rows if row["feasible"]}, set(counts))
        good = [row["gpus"] for row in mixed if row["feasible"]]
        self.assertTrue(good[0] == 8 or good[0] - 8 in counts)
        for row in apart:
            for key in "requests", "slo":
                mine, other = row["report"][key], mixed[-1]["report"][key]
                for field in "measured", "all", "ttft_ms", "tpot_ms":
                    self.assertEqual(mine.get(field), other.get(field))

    def test_an_unloaded_ttft_is_what_one_request_takes(self):
        self.plan("--slo", "ttft=5s", "--rate", "0.01/s", "--gpus", "16")
        plan = json.loads(self.read("p.json"))
        simulated = plan["rows"][0]["report"]["latency"]["ttft_ms"]["mean"]
        self.assertAlmostEqual(plan["base"]["unloaded_ttft_mean_ms"] / simulated, 1, delta=0.02)

    def interrupt(self, sent, *words):
        """After the first simulations, as `timeout` does: to the process, then at once to its group."""
        plan = subprocess.Popen(
            [HALAGE_SIM, "plan", "s.yaml", *words, "--json", "p.json"], cwd=self.directory,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )
        children = pathlib.Path(f"/proc/{plan.pid}/task/{plan.pid}/children")
        while plan.poll() is None and not children.read_text():
            time.sleep(0.001)  # from its first simulation on it is told whenever the signal comes
        plan.send_signal(sent)
        os.killpg(plan.pid, sent)
        out, errors = plan.communicate(timeout=60)
        self.assertEqual(plan.returncode, 130, out + errors)
        return out, json.loads(self.read("p.json"))

    def test_interrupted_it_does_not_conclude(self):
        for sent in signal.SIGTERM, signal.SIGINT:
            for slo in "ttft=60s", "ttft=60s,tpot=9s":
                out, plan = self.interrupt(sent, "--slo", slo, "--gpus", "96", "--requests", "4000", "--jobs", "2")
                self.assertRegex(out, r"\nINTERRUPTED: \d+ of \d+ splits simulated; ")
                self.assertNotIn("nothing is feasible", out)
                self.assertNotIn("fewest GPUs:", out)
                self.assertIs(plan["interrupted"], True)
                self.assertFalse(list(self.directory.glob("*.part")))
        self.plan("--slo", "ttft=9s", "--gpus", "16")
        self.assertIs(json.loads(self.read("p.json"))["interrupted"], False)

    def test_bad_words_are_refused(self):
        for words, sentence in (
            (["--gpus", "32"], "--slo"),
            (["--slo", "ttft=1s"], "--gpus"),
            (["--slo", "ttft=5", "--gpus", "32"], "with its unit"),
            (["--slo", "speed=5s", "--gpus", "32"], "write ttft=TIME,tpot=TIME"),
            (["--slo", "ttft=1s,tpot=1s,ttft=2s", "--gpus", "32"], "there twice; keep one"),
            (["--slo", "ttft=1s", "--slo", "ttft=2s", "--gpus", "32"], "there twice; keep one"),
            (["--slo", "ttft=1s", "--gpus", "1"], "2 to"),
            (["--slo", "ttft=1s", "--gpus", "32", "--rate", "12"], "/s"),
            (["--slo", "ttft=1s", "--gpus", "32", "--share", "2"], "--share"),
            (["--slo", "ttft=1s", "--gpus", "32", "-s", "traffic.arrivals.kind=closed"], "no rate"),
        ):
            result = self.sim("plan", "s.yaml", *words, status=2)
            self.assertIn(sentence, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
