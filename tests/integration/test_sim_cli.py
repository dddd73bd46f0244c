#!/usr/bin/env python3
"""`halage-sim` as a user calls it: every kind of bad input takes one line and status 2, every shipped
scenario can be run, and equal runs write equal bytes."""

import csv
import io
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import tempfile
import time
import unittest

PROGRAM = pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage-sim"
SOURCE = pathlib.Path(os.environ["HALAGE_SOURCE_DIR"])
SCENARIOS = sorted((SOURCE / "scenarios").rglob("*.yaml"))
NEED_DATA = {"mooncake.yaml"}
SMALL = ("--requests", "60", "-s", "measure.warmup_requests=5", "-s", "traffic.output.tokens=40")


def let_work(process, seconds=1, limit=60):
    """Wait until a process has worked for so long, which on a busy machine takes longer."""
    end = time.monotonic() + limit
    stat = pathlib.Path(f"/proc/{process.pid}/stat")
    while time.monotonic() < end:
        user, system = stat.read_text().rpartition(")")[2].split()[11:13]
        if int(user) + int(system) >= seconds * os.sysconf("SC_CLK_TCK"):
            return
        time.sleep(0.05)
    raise AssertionError(f"the program did not get {seconds} s of a processor within {limit} s")


class Sim(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def write(self, name, text):
        path = self.directory / name
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(text, encoding="utf-8")
        return name

    def sim(self, *words, timeout=50):
        return subprocess.run(
            [PROGRAM, *words], cwd=self.directory, capture_output=True, timeout=timeout,
            check=False, encoding="utf-8", errors="replace",
        )

    def expect_line(self, result, status, *parts):
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr[:2000])
        for part in parts:
            self.assertIn(part, result.stderr)
        self.assertEqual(result.returncode, status, result.stderr)

    def good(self, *words, **more):
        result = self.sim(*words, **more)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result


class Commands(Sim):
    def test_help_and_version(self):
        for words in (["--help"], ["--version"], *([c, "--help"] for c in
                      ("check", "explain", "init", "list", "run")), ["run", "-V"]):
            result = self.good(*words)
            self.assertEqual(result.stderr, "")
            self.assertIn("halage-sim", result.stdout)
        for command in ("check", "explain", "init", "list", "run"):
            self.assertIn(f"\n  {command} ", self.sim("--help").stdout)

    def test_bad_command_lines_take_one_line(self):
        self.write("a.yaml", "schema: 1\n")
        cases = [
            ([], "no command; valid: "),
            (["rum"], "unknown command 'rum'; valid: "),
            (["run"], "name a scenario file"),
            (["run", "a.yaml", "b.yaml"], "'b.yaml': name one scenario"),
            (["run", "--fast", "a.yaml"], "unknown option '--fast'; valid: -s --seed --requests"),
            (["run", "a.yaml", "--seed", "x"], "--seed: 'x': write a whole number"),
            (["run", "a.yaml", "--requests", "0"], "--requests: '0': write a whole number"),
            (["run", "a.yaml", "--json", "-", "--csv", "-"], "only one of --json, --csv"),
            (["run", "a.yaml", "-s"], "option '-s' needs a value: KEY=VALUE"),
            (["explain", "a.yaml"], "--request must be given"),
            (["explain", "a.yaml", "--request", "-1"], "--request: '-1': write a whole number"),
            (["list"], "name a list: models"),
            (["list", "fruit"], "'fruit': write models, gpus"),
            (["check"], "name at least one scenario"),
            (["init", "a", "b"], "'b': name one file"),
        ]
        for words, part in cases:
            with self.subTest(words):
                self.expect_line(self.sim(*words), 2, "halage-sim", part)

    def test_lists(self):
        for name, known in (("models", "DeepSeek-R1"), ("gpus", "H200"), ("nics", "cx7-400g"),
                            ("nodes", "hgx-h200"), ("engines", "sglang")):
            text = self.good("list", name).stdout
            self.assertIn(known, text)
            both = self.good("list", name, "--json", "-")
            self.assertEqual(both.stderr, text)
            rows = json.loads(both.stdout)[name]
            self.assertEqual(len(rows), text.count("\n") - 1)
            self.assertIn(known, [row["name"] for row in rows])
        keys = json.loads(self.good("list", "keys", "--json", "-").stdout)["keys"]
        self.assertIn("decode.nodes", [key["key"] for key in keys])

    def test_the_document_has_the_keys_as_they_are(self):
        text = (SOURCE / "docs" / "simulation.md").read_text(encoding="utf-8")
        for key in json.loads(self.good("list", "keys", "--json", "-").stdout)["keys"]:
            cells = [f"`{key['key']}`", key["takes"], f"`{key['default']}`" if key["default"] else "",
                     key["meaning"]]
            row = "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
            self.assertIn(" ".join(row.split()), " ".join(text.split()))

    def test_init_writes_the_default(self):
        text = self.good("init").stdout
        self.good("init", "new.yaml")
        self.assertEqual((self.directory / "new.yaml").read_text(encoding="utf-8"), text)
        self.expect_line(self.sim("init", "new.yaml"), 2, "new.yaml: is there already")
        self.good("init", "new.yaml", "--force")
        self.write("least.yaml", "schema: 1\n")
        result = self.good("check", "new.yaml", "least.yaml", "--json", "-")
        both = json.loads(result.stdout)["scenarios"]
        self.assertEqual(both[0]["digest"], both[1]["digest"])
        self.expect_line(self.sim("init", "no/such/file"), 1, "no/such")


class Scenarios(Sim):
    def test_every_shipped_scenario_can_be_run(self):
        self.assertGreater(len(SCENARIOS), 15)
        for path in SCENARIOS:
            if path.name in NEED_DATA and "HALAGE_DATA" not in os.environ:
                print(f"{path.name}: not checked, HALAGE_DATA is not set")
                continue
            with self.subTest(path.name):
                text = path.read_text(encoding="utf-8")
                self.assertTrue(text.startswith("# "))
                self.assertIn("\nquestion: ", text)
                result = self.good("check", path)
                self.assertIn(f"{path}: good\n", result.stdout)
                self.assertNotIn("cannot be run: ", result.stdout)
                self.assertEqual(result.stderr, "")

    def test_check_says_whether_the_network_is_folded(self):
        self.write("a.yaml", "schema: 1\n")
        for words, part in (((), ", folded\n"), (("-s", "network.fold=never"), "not folded, as the scenario says"),
                            (("-s", "decode.tp=1", "-s", "decode.dp=8", "-s", "decode.ep=8"), "not folded: the plan"),
                            (("-s", "faults.0.kind=slow", "-s", "faults.0.nic=0", "-s", "faults.0.factor=0.5"),
                             "not folded: a fault touches a single NIC")):
            self.assertIn(part, self.good("check", "a.yaml", *words).stdout)

    def test_the_readme_names_every_scenario(self):
        text = (SOURCE / "scenarios" / "README.md").read_text(encoding="utf-8")
        for path in SCENARIOS:
            self.assertIn(f"`{path.relative_to(SOURCE / 'scenarios')}`", text)


class BadInput(Sim):
    def refused(self, text, *parts, name="bad.yaml", words=()):
        self.write(name, text)
        for command in ("check", "run"):
            with self.subTest(parts, command=command):
                result = self.sim(command, name, *words)
                self.expect_line(result, 2, f"halage-sim {command}: ", *parts)
                self.assertEqual(result.stdout, "")

    def test_keys_units_and_numbers(self):
        cases = [
            ("schema: 1\nprefil: {}\n", "bad.yaml: line 2: unknown key 'prefil'; valid keys: schema, "),
            ("schema: 1\ndecode:\n  node: 3\n", "line 3: unknown key 'node' in decode; valid keys: nodes, "),
            ("schema: 1\ntraffic:\n  arrivals:\n    rate: 3\n",
             "bad.yaml: line 4: traffic.arrivals.rate: '3': write a rate with its unit"),
            ("schema: 1\nnetwork:\n  bandwidth: 400G\n", "line 3: network.bandwidth: '400G': write a bandwidth"),
            ("schema: 1\ndecode:\n  nodes: 999999\n", "line 3: decode.nodes: '999999': write a whole number, 1 to 2048"),
            ("schema: 1\nmeasure:\n  warmup: -1s\n", "line 3: measure.warmup: '-1s': write a value, 0ns to 316224000s"),
            ("schema: 1\nmeasure:\n  warmup: 1e300s\n", "measure.warmup: '1e300s': write a smaller number"),
            ("schema: 1\nseed: 18446744073709551616\n", "line 2: seed: "),
            ("schema: 1\nnodes: 3\nnodes: 4\n", "unknown key 'nodes'"),
            ("schema: 1\nseed: 3\nseed: 4\n", "seed: the key is there twice; keep one"),
            ("schema: one\n", "line 1: schema: 'one': write 1"),
            ("name: x\n", "schema: missing; begin the file with schema: 1"),
            ("schema: 1\nprefill: [1]\n", "line 2: prefill: the wrong shape"),
            ("schema: 1\nprefill:\n  nodes: [1]\n", "line 3: prefill.nodes: the wrong shape; write one value"),
            ("schema: 1\ntraffic: {arrivals: {rate: {a: 1}}}\n", "traffic.arrivals.rate: the wrong shape"),
            ("schema: 1\nfaults: {kind: kill}\n", "line 2: faults: the wrong shape"),
            ("schema: 1\nextends: bad.yaml\n", "line 2: extends: 'bad.yaml': scenarios extend each other in a circle"),
            ("", "bad.yaml: the file is empty"),
        ]
        for text, part in cases:
            self.refused(text, part)

    def test_what_cannot_be_built(self):
        self.refused("schema: 1\nnode: dgx-h100\n", "DeepSeek-R1 on H100", "GiB missing")
        self.refused("schema: 1\ndecode:\n  tp: 3\n", "bad.yaml: line 3: decode.tp: 3: ")
        self.refused("schema: 1\ndecode:\n  page_tokens: 32\n",
                     "its pages cannot be planned into decode's: page_tokens: source 64, target 32")
        self.refused("schema: 1\nmodel: {name: Llama-3.1-70B}\ndecode:\n  kv: fp8\n", "cannot be planned into decode's")
        self.refused("schema: 1\ntraffic: {prompt: {tokens: 200000}}\n", "model.max_context is 163840")
        self.refused("schema: 1\ndecode: {kv_tokens: 128}\n", "a DP rank of decode has room for 128; write shorter ones, "
                     "or raise its kv_tokens")
        self.refused("schema: 1\nprefill: {kv_tokens: 128}\n", "or raise its kv_tokens")

    def test_traces(self):
        trace = "schema: 1\ntraffic: {source: trace, trace: {format: %s, file: %s}}\n"
        good = '{"timestamp": 0, "input_length": 9, "output_length": 5, "hash_ids": [1]}\n'
        self.write("t.jsonl", good + '{"timestamp": 0, "input_length": "x"}\n')
        self.refused(trace % ("mooncake", "t.jsonl"), "t.jsonl:2: ")
        self.write("t.jsonl", good + '{"timestamp": \n')
        self.refused(trace % ("mooncake", "t.jsonl"), "t.jsonl:2: ")
        self.write("t.jsonl", "")
        self.refused(trace % ("mooncake", "t.jsonl"), "t.jsonl: no request")
        self.write("t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6,1,-1\n")
        self.refused(trace % ("azure", "t.csv"), "t.csv:2: ")
        self.refused(trace % ("azure", "none.csv"), "traffic.trace.file: 'none.csv': there is no such file")
        self.refused(trace % ("azure", "."), "t")
        self.refused(trace % ("excel", "t.csv"), "traffic.trace.format: 'excel': write azure, burstgpt")
        self.write("c.json", '{"architectures": 3}')
        self.refused("schema: 1\nmodel: {name: mine, config: c.json}\n", "c.json")
        self.write("t.tsv", "kind\ttokens\n")
        self.refused("schema: 1\nprefill: {table: t.tsv}\n", "t.tsv")

    def test_more_requests_than_a_trace_has(self):
        self.write("t.jsonl", '{"timestamp": 0, "input_length": 9, "output_length": 5, "hash_ids": [1]}\n' * 3)
        self.write("t.yaml", "schema: 1\nmeasure: {warmup_requests: 0}\n"
                   "traffic: {source: trace, trace: {format: mooncake, file: t.jsonl, requests: 7}}\n")
        note = "note: traffic.trace.requests: 7: the trace has 3 requests; all of them are taken\n"
        self.assertIn(f"  {note}", self.good("check", "t.yaml").stdout)
        self.assertEqual(self.good("run", "t.yaml", "--quiet").stderr, f"halage-sim run: {note}")
        self.assertEqual(self.good("run", "t.yaml", "--quiet", "--requests", "3").stderr, "")

    def test_files_that_are_none(self):
        for command in ("check", "run"):
            self.expect_line(self.sim(command, "none.yaml"), 2,
                             "none.yaml: cannot be opened: No such file or directory")
            self.expect_line(self.sim(command, "."), 2, ".: cannot be read: Is a directory")

    def test_a_second_document_and_keys_without_a_value_are_refused(self):
        for text, line in (("schema: 1\n---\nname: x\n", "line 2: a second document begins"),
                           ("schema: 1\nname:\nprefill: {nodes: 2}\n", "name has no value"),
                           ("schema: 1\nprefill: {nodes: ~}\n", "line 2: nodes has no value"),
                           ("schema: 1\nfaults:\n  - null\n", "line 3: faults has no value"),
                           ("schema: 1\nsweep:\n  prefill.nodes: [1, ~]\n", "line 3: prefill.nodes has no value")):
            self.write("s.yaml", text)
            for words in (["check", "s.yaml"], ["run", "s.yaml"], ["sweep", "s.yaml", "--out", "o"]):
                self.expect_line(self.sim(*words), 2, "s.yaml: ", line)

    def test_garbage_never_crashes_or_hangs(self):
        draw = random.Random(1)
        cases = {
            "noise": bytes(draw.randrange(256) for _ in range(65536)),
            "zeros": bytes(1 << 16),
            "elf": PROGRAM.read_bytes()[:100000],
            "one megabyte in a line": b"schema: 1\nname: " + b"x" * (1 << 20) + b"\n",
            "a key of one megabyte": b"schema: 1\n" + b"k" * (1 << 20) + b": 1\n",
            "nested lists": b"schema: 1\nfaults: " + b"[" * 200000,
            "nested mappings": b"schema: 1\nprefill: " + b"{a: " * 100000,
            "nested blocks": b"schema: 1\n" + b"".join(b" " * i + b"a:\n" for i in range(1500)),
            "many keys": b"schema: 1\n" + b"".join(b"k%d: 1\n" % i for i in range(50000)),
            "anchors": b"a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nschema: 1\n",
            "utf-16": "schema: 1\n".encode("utf-16"),
            "carriage returns": b"schema: 1\r\nname: \x07\r\n",
        }
        for name, content in cases.items():
            with self.subTest(name):
                self.write("bad.yaml", content)
                result = self.sim("check", "bad.yaml")
                self.assertIn(result.returncode, (0, 2), result.stderr[:500])
                if name not in ("utf-16",):
                    self.expect_line(result, 2, "halage-sim check: bad.yaml: ")
                self.assertLess(len(result.stderr), 4000)

    def test_good_files_with_bytes_changed_never_crash(self):
        draw = random.Random(2)
        text = bytearray(self.good("init").stdout.encode())
        for _ in range(60):
            changed = bytearray(text)
            for _ in range(draw.randrange(1, 4)):
                changed[draw.randrange(len(changed))] = draw.randrange(256)
            self.write("bad.yaml", bytes(changed))
            result = self.sim("check", "bad.yaml")
            self.assertIn(result.returncode, (0, 2), bytes(changed)[:80])
            self.assertLessEqual(result.stderr.count("\n"), 1)

    def test_folding_that_is_not_exact(self):
        self.refused("schema: 1\nmodel: {name: Llama-3.1-70B}\nprefill: {tp: 4}\nnetwork: {fold: always}\n",
                     "bad.yaml: network.fold: not exact here, ")

    def test_the_value_is_blamed(self):
        self.write("a.yaml", "schema: 1\ndecode:\n  nodes: 2\n")
        self.write("base.yaml", "schema: 1\n\ndecode:\n  tp: 3\n")
        self.write("b.yaml", "schema: 1\nextends: base.yaml\ndecode:\n  nodes: 2\n")
        self.write("c.yaml", "schema: 1\ntraffic: {requests: 100}\n")
        for words, part in ((("a.yaml", "-s", "decode.tp=3"), " a.yaml: -s decode.tp: 3: must divide"),
                            (("b.yaml",), " base.yaml: line 4: decode.tp: 3: must divide"),
                            (("c.yaml",), " c.yaml: measure.warmup_requests (default): 200: the scenario has 100")):
            self.expect_line(self.sim("check", *words), 2, part)

    def test_more_nodes_than_there_is_memory_for(self):
        self.write("a.yaml", "schema: 1\n")
        words = ("-s", "prefill.nodes=600", "-s", "decode.nodes=600", "-s", "prefill.kv_tokens=20000",
                 "-s", "decode.kv_tokens=20000")
        little = subprocess.run(
            [PROGRAM, "run", "a.yaml", *SMALL, *words], cwd=self.directory, capture_output=True, timeout=50,
            check=False, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30)),
        )
        self.expect_line(little, 2, "prefill.nodes, decode.nodes: 600, 600: ", "; write fewer nodes")
        self.assertIn("note: connections of 600 x 600 nodes take some 14 GiB",
                      self.good("check", "a.yaml", *words).stdout)
        self.expect_line(
            self.sim("check", "a.yaml", "-s", "prefill.nodes=2048", "-s", "decode.nodes=513", "-s",
                     "faults.0.kind=kill", "-s", "faults.0.at=1s"),
            2, "decode.nodes: 513, with 2048 prefill nodes: write at most 1048576 pairs")

    def test_overrides(self):
        self.write("a.yaml", "schema: 1\n")
        for override, part in (("decode.nodez=3", "-s: unknown key 'decode.nodez'; valid keys: decode.nodes, "),
                               ("decode.nodes", "-s: 'decode.nodes': write key.path=value"),
                               ("measure.stop=5", "-s: measure.stop: '5': write a time with its unit")):
            for command in ("check", "run"):
                self.expect_line(self.sim(command, "a.yaml", "-s", override), 2, part)


class Runs(Sim):
    def setUp(self):
        super().setUp()
        self.write("a.yaml", "schema: 1\n")

    def test_equal_seeds_give_equal_bytes(self):
        outputs = []
        for seed in ("1", "1", "2"):
            self.good("run", "a.yaml", *SMALL, "--seed", seed, "--json", "j", "--csv", "c", "--series", "s",
                      "--trace-out", "t")
            outputs.append([(self.directory / name).read_bytes() for name in "jcst"])
        self.assertEqual(outputs[0], outputs[1])
        self.assertNotEqual(outputs[0][1], outputs[2][1])
        json.loads(outputs[0][0])
        json.loads(outputs[0][3])
        rows = [line for line in outputs[0][1].decode().splitlines() if not line.startswith("#")]
        self.assertEqual(len(list(csv.DictReader(io.StringIO("\n".join(rows))))), 60)
        self.assertEqual(sorted(path.name for path in self.directory.iterdir()), ["a.yaml", *"cjst"])

    def test_json_on_stdout_moves_the_text(self):
        plain = self.good("run", "a.yaml", *SMALL)
        both = self.good("run", "a.yaml", *SMALL, "--json", "-")
        self.assertEqual(plain.stdout, both.stderr)
        self.assertIn("TTFT", plain.stdout)
        json.loads(both.stdout)

    def test_what_the_numbers_rest_on_is_in_the_text(self):
        words = ("-s", "prefill.engine=none", "-s", "decode.engine=vllm")
        result = self.good("run", "a.yaml", *SMALL, *words, "--json", "-")
        costs = json.loads(result.stdout)["origin"]["cost"]
        self.assertTrue(costs[0]["why"] and costs[1]["why"])
        for cost in costs:
            self.assertIn(f": {cost['why']}\n", result.stderr)

    def test_steps_beyond_a_users_table_are_counted(self):
        rows = "kind\ttokens\tcontext\ttime_us\nprefill\t1\t0\t100\nprefill\t%d\t0\t90000\n" \
               "decode\t1\t0\t5000\ndecode\t1\t%d\t9000\ndecode\t256\t0\t9000\ndecode\t256\t%d\t20000\n"
        self.write("wide.tsv", rows % (70000, 300000, 300000))
        self.write("small.tsv", rows % (10, 20, 20))
        for name in "wide", "small":
            words = ("-s", f"prefill.table={name}.tsv", "-s", f"decode.table={name}.tsv",
                     "-s", "prefill.budget_tokens=65536", "-s", "prefill.chunked=false")
            result = self.good("run", "a.yaml", *SMALL, *words, "--json", "-")
            costs = json.loads(result.stdout)["origin"]["cost"]
            self.assertEqual([cost["calibration"] for cost in costs], ["none", "none"])
            self.assertEqual(result.stderr.count(f"    step times of {name}.tsv; "), 2, result.stderr)
            self.assertNotIn("calibration", result.stderr)
            for cost in costs:
                self.assertGreater(cost["steps"], 0)
                self.assertEqual(cost["steps_beyond"], 0 if name == "wide" else cost["steps"])
            self.assertEqual(result.stderr.count("BEYOND what was measured: 100.00 % of its steps"),
                             0 if name == "wide" else 2)

    def test_explain_tells_one_life(self):
        text = self.good("explain", "a.yaml", *SMALL, "--request", "7").stdout
        self.assertIn("7", text)
        self.assertIn("exposed transfer", text)
        self.expect_line(self.sim("explain", "a.yaml", *SMALL, "--request", "60"), 2,
                         "--request: 60: the scenario has requests 0 to 59")

    def test_what_cannot_be_written_is_refused(self):
        for option in ("--json", "--csv", "--series", "--trace-out"):
            result = self.sim("run", "a.yaml", *SMALL, option, "no/such/file")
            self.expect_line(result, 2, f"{option}: ", "no/such/file")

    def test_an_overloaded_scenario_ends_and_says_so(self):
        words = ("-s", "traffic.arrivals.rate=200/s", "-s", "measure.stop=20s", "--requests", "3000")
        result = self.good("run", "a.yaml", *words, "--json", "-")
        self.assertIn("unfinished", result.stderr)
        self.assertRegex(result.stderr, r"measured +\d+: +\d+ finished, [1-9]\d* unfinished")

    def test_ctrl_c_tells_what_is_known(self):
        with subprocess.Popen(
            [PROGRAM, "run", "a.yaml", "--requests", "400000", "-s", "traffic.arrivals.rate=6/s"],
            cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:
            let_work(process)
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=40)
        self.assertEqual(process.returncode, 130, error)
        self.assertIn("TTFT", out)
        self.assertIn("unfinished", out)

    def test_explain_interrupted_says_so(self):
        with subprocess.Popen(
            [PROGRAM, "explain", "a.yaml", "--requests", "400000", "--request", "3", "-s", "traffic.arrivals.rate=6/s"],
            cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:
            let_work(process)
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=40)
        self.assertEqual(process.returncode, 130, error)
        self.assertIn("exposed transfer", out)
        self.assertIn("interrupted: what is told is what was known then", error)


if __name__ == "__main__":
    unittest.main()
