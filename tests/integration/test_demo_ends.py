#!/usr/bin/env python3
"""How the demo ends when it cannot end well: nodes and ranks killed, Ctrl-C, bad options, nodes that
cannot work together. Each time: no hang, a sentence, a status, and nothing left behind."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import unittest

import demo

# Enough that most are still to come when a quarter is done.
REQUESTS = 200


class Kills(unittest.TestCase):
    def kill(self, text, rank=False, requests=REQUESTS, **values):
        """Kill a process once a quarter of the requests is done."""
        run = demo.Demo(requests=requests, provider="net", **values)
        victim = run.find(text, rank=rank)
        run.wait_line(f" of {requests} done")
        others = list(run.descendants())
        os.kill(victim, signal.SIGKILL)
        return run, victim, others

    def expect_clean(self, others):
        self.assertEqual(demo.alive(others), [])

    def expect_sums(self, result):
        values = result.json
        self.assertEqual(values["requests"], values["completed"] + values["failed"], result)
        self.assertEqual(values["mismatched"], 0, result)

    def test_a_prefill_node(self):
        run, victim, others = self.kill("halage-prefill")
        result = run.finish()
        self.assertEqual(result.status, demo.FAILED, result)
        self.assertIn(f"prefill node (process {victim}) was killed by signal 9", result.err)
        self.assertIn("the prefill node is gone", result.err)
        self.expect_sums(result)
        self.assertEqual(result.json["requests"], REQUESTS)
        self.assertGreater(result.json["verified"], 0)
        self.expect_clean(others)

    def test_a_rank_of_a_prefill_node(self):
        run, victim, others = self.kill("halage-prefill", rank=True)
        result = run.finish()
        self.assertEqual(result.status, demo.FAILED, result)
        self.assertRegex(result.err, rf"rank \d \(process {victim}\) was killed by signal 9")
        self.expect_clean(others)

    def test_one_of_two_prefill_nodes_and_the_rest_goes_on(self):
        run, victim, others = self.kill("halage-prefill", requests=80, prefill_nodes=2)
        result = run.finish()
        self.assertEqual(result.status, demo.FAILED, result)
        self.assertRegex(result.err, rf"prefill node( 2)? \(process {victim}\) was killed by")
        self.assertIn("a prefill node is gone", result.err)
        self.assertNotIn("the prefill node is gone:", result.err)
        self.expect_sums(result)
        self.assertEqual(result.json["requests"], 80)
        self.assertGreaterEqual(result.json["verified"], 60, result)
        self.expect_clean(others)

    def test_one_of_two_nodes_that_send_each_request(self):
        run, victim, others = self.kill("--source=2/2", sources=2)
        result = run.finish()
        self.assertEqual(result.status, demo.FAILED, result)
        self.assertIn(f"prefill node 2 (process {victim}) was killed by signal 9", result.err)
        self.assertRegex(result.err, r"a prefill node of each set is gone: \d+ requests are not sent")
        self.expect_sums(result)
        self.assertEqual(result.json["requests"], REQUESTS)
        self.assertGreater(result.json["verified"], 0)
        nodes = [node for node in result.json["nodes"] if "decode" in node["node"]]
        self.assertEqual(len(nodes), 3)
        for node in nodes:  # pages of failed requests, too: the other source said that it stopped
            self.assertEqual(node["pages_free"], node["pages"], result)
        self.expect_clean(others)

    def test_one_of_four_and_the_other_set_goes_on(self):
        run, victim, others = self.kill("--number=3", requests=60, sources=2, prefill_nodes=4, decode_nodes=1)
        result = run.finish()
        self.assertEqual(result.status, demo.FAILED, result)
        self.assertIn(f"prefill node 3 (process {victim}) was killed by signal 9", result.err)
        self.assertNotIn("requests are not sent", result.err)
        self.expect_sums(result)
        self.assertGreaterEqual(result.json["verified"], 40, result)
        self.expect_clean(others)

    def test_a_decode_node_and_the_rest_goes_on(self):
        run, victim, others = self.kill("--number=2", requests=80)
        result = run.finish()
        self.assertEqual(result.status, demo.FAILED, result)
        self.assertIn(f"decode node 2 (process {victim}) was killed by signal 9", result.err)
        self.expect_sums(result)
        self.assertEqual(result.json["requests"], 80)
        self.assertGreaterEqual(result.json["verified"], 70, result)
        self.expect_clean(others)

    def test_a_rank_of_a_decode_node(self):
        run, victim, others = self.kill("--number=1", rank=True, requests=80)
        result = run.finish()
        self.assertEqual(result.status, demo.FAILED, result)
        self.assertRegex(result.err, rf"rank \d \(process {victim}\) was killed by signal 9")
        self.assertGreaterEqual(result.json["verified"], 70, result)
        self.expect_clean(others)

    def test_the_only_decode_node(self):
        run, victim, others = self.kill("--number=1", decode_nodes=1)
        result = run.finish()
        self.assertEqual(result.status, demo.FAILED, result)
        self.assertIn(f"(process {victim}) was killed", result.err)
        self.assertIn("no decode node is left", result.err)
        self.expect_clean(others)

    def test_the_demo_itself(self):
        run = demo.Demo(requests=REQUESTS, provider="net")
        run.find("--number=3")
        others = list(run.descendants())
        run.signal(signal.SIGKILL)
        run.finish()
        due = demo.time.monotonic() + 10
        while demo.alive(others) and demo.time.monotonic() < due:
            demo.time.sleep(0.01)
        self.expect_clean(others)

    def test_control_c_reports_what_was_done(self):
        run = demo.Demo(requests=REQUESTS, provider="net")
        run.wait_line(f" of {REQUESTS} done")
        others = list(run.descendants())
        run.interrupt()
        result = run.finish()
        self.assertEqual(result.status, demo.INTERRUPTED, result)
        self.assertTrue(result.json["interrupted"])
        self.assertGreater(result.json["verified"], 0)
        self.assertEqual(result.json["failed"], 0, result)
        self.assertIn("interrupted", result.out)
        self.expect_clean(others)

    def test_control_c_twice_ends_at_once(self):
        run = demo.Demo(requests=REQUESTS, provider="net")
        run.wait_line(f" of {REQUESTS} done")
        others = list(run.descendants())
        for process in others:  # or the first would end it before the second comes
            os.kill(process, signal.SIGSTOP)
        run.interrupt()
        demo.time.sleep(0.1)
        run.interrupt()
        begun = demo.time.monotonic()
        for process in demo.alive(others):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
        result = run.finish()
        self.assertLess(demo.time.monotonic() - begun, 20)
        self.assertEqual(result.status, demo.INTERRUPTED, result)
        self.assertNotIn("giving up", result.err)
        self.expect_clean(others)

    def test_nothing_has_a_name_in_shared_memory_or_tmp(self):
        before = set(os.listdir("/dev/shm"))
        run, _, _ = self.kill("halage-prefill")
        run.finish()
        self.assertEqual(set(os.listdir("/dev/shm")) - before, set())


class BadInput(unittest.TestCase):
    def expect_line(self, result, status, pattern):
        self.assertEqual(result.status, status, result)
        self.assertRegex(result.err, pattern)
        self.assertEqual(result.err.count("\n"), 1, result)
        self.assertEqual(result.out, "")

    def test_options(self):
        for words, pattern in (
            (["--frobnicate"], "unknown option '--frobnicate'; valid: --model --kv-heads .*--json"),
            (["--model=gpt"], "unknown model 'gpt'; valid: gqa mla"),
            (["--layout=dhn"], "unknown layout 'dhn'; valid: hnd nhd"),
            (["--provider=carrier-pigeon"], "carrier-pigeon.*auto, tcp,.*tcp;ofi_rxm"),
            (["--kv-heads=0"], "--kv-heads: '0': write a whole number, 1 to 64"),
            (["--layers=1x"], "--layers: '1x'"),
            (["--hidden=12"], "--hidden: '12': write a multiple of 8"),
            (["--seed=-1"], "--seed: '-1'"),
            (["--seed=18446744073709551616"], "--seed: '18446744073709551616'.*below 2\\^64"),
            (["--requests=0"], "--requests: '0'"),
            (["--lease-ms=99"], "--lease-ms: '99': write a whole number, 100 to 600000"),
            (["--watchdog-ms=9"], "--watchdog-ms: '9': write a whole number, 10 to 3600000"),
            (["--data-port=80"], "--data-port: '80': write a whole number, 1024 to 65000"),
            (["--pages=0"], "--pages: '0': write a whole number, 1 to 65536"),
            (["--pages=31"], "--pages: 31: the longest request takes 32 of 16 tokens: give at least"),
            (["--plant=stop"], "--plant: unknown fault 'stop'"),
            (["--plant=stop:write,0"], "--plant: unknown fault 'stop:write,0'"),
            (["--advertise=here"], "--advertise: 'here': write an IPv4 or IPv6 address"),
            (["--target-tp=4", "--target-dp=4"], "16 ranks, at most 8"),
            (["more"], "unknown argument 'more'"),
            (["--trace=/does/not/exist"], "/does/not/exist: cannot be read"),
            (["--trace=/"], "/: cannot be read: Is a directory"),
            (["--arrivals=often"], "--arrivals: unknown word 'often'; valid: closed trace"),
            (["--arrivals=trace"], "--arrivals trace: give the --trace too"),
            (["--prefill-nodes=9"], "--prefill-nodes: '9': write a whole number, 1 to 8"),
            (["--decode-nodes=0"], "--decode-nodes: '0': write a whole number, 1 to 16"),
            (["--json=/does/not/exist"], "--json: /does/not/exist: cannot be opened: No such file"),
            (["--json=/"], "--json: /: cannot be opened: Is a directory"),
            (["--sources=0"], "--sources: '0': write a whole number, 1 to 4"),
            (["--sources=3"], "--sources: 3 nodes cannot share 2 ranks alike: give a divisor of --source-tp"),
            (["--sources=2", "--prefill-nodes=3"],
             "--prefill-nodes: 3, of which 2 send each request: give a multiple of --sources"),
            (["--netns=a"], "--netns: 'a': write NAME=IP for each node"),
            (["--netns=a=::1"], "--netns: 'a=::1': write NAME=IP for each node, IPv4"),
            (["--netns=../a=10.0.0.1"], "--netns: '../a=10.0.0.1'"),
            (["--netns=a=10.0.0.1"], "--netns: 1 places for 4 nodes"),
        ):
            with self.subTest(words=words):
                self.expect_line(demo.run(*words), demo.BAD_INPUT, pattern)

    def test_what_the_fabric_cannot_do(self):
        """One sentence with what to do, whichever program opens the fabric."""
        both, prefill, decode, perf = (["demo"], ["node", "prefill", "--insecure", "--listen=127.0.0.1:0"],
                                       ["node", "decode", "--insecure", "--connect=127.0.0.1:9"],
                                       ["perf", "run", "--local"])
        elsewhere = "Cannot assign requested address: give an address that this host has$"
        cases = [
            ([both, prefill, decode], ["--provider=tcp", "--nics=lo,mlx9_0"],
             r"there is no NIC 'mlx9_0' of provider \w+: there (is|are) "),
            ([prefill], ["--provider=tcp", "--advertise=203.0.113.7"], elsewhere),
            ([perf], ["--provider=tcp", "--node=203.0.113.7"], elsewhere),
        ]
        if not pathlib.Path("/sys/class/infiniband").exists():
            cases += [
                ([both, prefill, perf], ["--provider=efa"],
                 "efa (needs libfabric 1.22 or newer, and this is .*EFA installer|"
                 "cannot be used here.*[:;] use .*, or see halage doctor)"),
                ([decode, perf], ["--provider=verbs;ofi_rxm"],
                 "verbs;ofi_rxm cannot be used here.*: it finds no device of its own; use .*, or see halage doctor$"),
            ]
        for programs, words, pattern in cases:
            for program in programs:
                with self.subTest(program=program, words=words):
                    result = subprocess.run([str(demo.BIN / "halage"), *program, *words], capture_output=True,
                                            text=True, timeout=30, check=False)
                    self.assertIn(result.returncode, (1, 2), result)
                    self.assertRegex(result.stderr.splitlines()[-1], pattern)

    def test_a_bad_line_of_a_trace_is_named(self):
        for row in ("2023,5", "2023,5,x", "2023,,5", "2023,-5,6", "", "2023,5,6,7", "a,5,99999999999"):
            with self.subTest(row=row), tempfile.TemporaryDirectory() as directory:
                trace = pathlib.Path(directory) / "trace.csv"
                trace.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\nt,5,6\n{row}\n")
                self.expect_line(demo.run(trace=trace), demo.BAD_INPUT,
                                 re.escape(f"{trace}:3: "))

    def test_a_bad_time_of_a_trace_is_named(self):
        for time in ("t", "2023-11-16", "2023-11-16 18:15", "2023-13-16 18:15:46", "",
                     "2023-11-16 18:15:46.x", "2023-11-16T18:15:46", "2023-11-16 18:14:59"):
            with self.subTest(time=time), tempfile.TemporaryDirectory() as directory:
                trace = pathlib.Path(directory) / "trace.csv"
                trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                 f"2023-11-16 18:15:00,5,6\n{time},5,6\n")
                self.expect_line(demo.run(trace=trace, arrivals="trace"), demo.BAD_INPUT,
                                 re.escape(f"{trace}:3: ") + ".*write a time as")

    def test_a_network_namespace_that_is_not_there(self):
        result = demo.run("--netns=none-such=10.0.0.1,none-such=10.0.0.2", decode_nodes=1)
        self.assertEqual(result.status, demo.FAILED, result)
        self.assertIn("network namespace /run/netns/none-such cannot be entered", result.err)

    def test_other_headings_of_a_trace_are_refused(self):
        with tempfile.TemporaryDirectory() as directory:
            trace = pathlib.Path(directory) / "trace.csv"
            trace.write_text("TIMESTAMP,GeneratedTokens,ContextTokens\nt,5,6\n")
            self.expect_line(demo.run(trace=trace), demo.BAD_INPUT, re.escape(f"{trace}:1: "))

    def test_what_cannot_be_planned_is_refused_with_the_reason(self):
        self.expect_line(demo.run(kv_heads=6, source_tp=4), demo.INFEASIBLE,
                         r"heads: 6 .*tp 4.*must divide")
        self.expect_line(demo.run(kv_heads=6, target_tp=4), demo.INFEASIBLE,
                         r"heads: 6 .*tp 4.*must divide")
        self.expect_line(demo.run(model="mla", source_tp=3), demo.INFEASIBLE,
                         "--source-tp: 3: tp must divide query_heads")


class Nodes(unittest.TestCase):
    """`halage node`, as on two machines."""

    def prefill(self, **values):
        run = demo.Demo(listen="127.0.0.1:0", command=("node", "prefill"), provider="net", **values)
        self.addCleanup(run.process.kill)
        while True:
            line = run.process.stderr.readline()
            self.assertNotEqual(line, "")
            found = re.search(r"port (\d+)$", line)
            if found:
                return run, int(found.group(1))

    def decode(self, port, **values):
        values = {"requests": 8, "provider": "net", **values}
        return demo.run(connect=f"127.0.0.1:{port}", command=("node", "decode"), **values)

    def test_two_commands_make_a_pair(self):
        prefill, port = self.prefill(source_tp=2)
        for _ in range(2):  # a second decode node after the first is gone
            result = self.decode(port, source_tp=2, target_tp=2)
            self.assertEqual(result.status, demo.DONE, result)
            self.assertEqual(result.json["verified"], 8)
            self.assertIn("HND, TP 2\n", result.out)  # of the prefill node, nothing is known here
            self.assertNotIn("tokens a forward", result.out)
            self.assertIsNone(result.json["handover_ms"])
            self.assertIsNone(result.json["layers_early_ratio"])
        prefill.interrupt()
        end = prefill.finish()
        self.assertEqual(end.status, demo.INTERRUPTED, end)
        self.assertIn("is up", end.err)
        self.assertIn("interrupted; ", end.err)

    def test_a_prefill_node_drains(self):
        """SIGTERM lets what was taken end; the node then ends well and says so. A decode node is told."""
        prefill, port = self.prefill()
        self.assertEqual(self.decode(port).status, demo.DONE)
        prefill.process.send_signal(signal.SIGTERM)
        end = prefill.finish()
        self.assertEqual(end.status, demo.DONE, end)
        self.assertRegex(end.err, r"draining: [^\n]*\n.*drained; [0-9]+ requests sent, 0 stopped")

    def test_two_sources_and_a_decode_node(self):
        (first, one), (second, two), (third, three) = (self.prefill(source=s) for s in ("1/2", "2/2", "2/2"))
        result = self.decode(f"{one},127.0.0.1:{two}", sources=2)
        self.assertEqual(result.status, demo.DONE, result)
        self.assertEqual(result.json["verified"], 8)
        result = self.decode(one, sources=2)
        self.assertEqual(result.status, demo.BAD_INPUT, result)
        self.assertIn("--connect: 1 prefill nodes, of which 2 send each request: give a multiple of --sources",
                      result.err)
        # A rank that nobody hosts would be missing from the count as well, and READY come too early.
        for port, values, text in ((one, {}, "no prefill node named hosts rank 1; name all that share the model"),
                                   (f"{two},127.0.0.1:{three}", {"sources": 2}, "hosts rank 0")):
            result = self.decode(port, **values)
            self.assertEqual(result.status, demo.FAILED, result)
            self.assertIn(text, result.err)
            self.assertEqual(result.json["mismatched"], 0, result)
            self.assertEqual(result.json["pieces_counted"], 0, result)
        for prefill in (first, second, third):
            prefill.interrupt()
            self.assertEqual((end := prefill.finish()).status, demo.INTERRUPTED, end)
            self.assertRegex(end.err, r"(\d+) of \1 pages free")

    def test_a_source_is_one_of_several(self):
        for text in ("0/2", "3/2", "1", "1/", "/2", "1/5", "a/2", "000000001/2", "1/2/2"):
            with self.subTest(text=text):
                result = demo.Demo(source=text, command=("node", "prefill")).finish()
                self.assertEqual(result.status, demo.BAD_INPUT, result)
                self.assertIn(f"--source: '{text}': write I/N, as 1/2 and 2/2 for two prefill nodes", result.err)

    def test_prompts_of_one_token_are_not_sent(self):
        """They need no prefill node, and its last line says so: 5 verified there, 3 sent here."""
        prefill, port = self.prefill()
        with tempfile.TemporaryDirectory() as directory:
            trace = pathlib.Path(directory) / "trace.csv"
            rows = "".join(f"2023-11-16 18:15:4{i}.0000000,{tokens},3\n" for i, tokens in enumerate((40, 1, 17, 1, 2)))
            trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows, encoding="ascii")
            result = self.decode(port, requests=5, trace=trace)
        self.assertEqual(result.status, demo.DONE, result)
        self.assertEqual(result.json["verified"], 5)
        prefill.interrupt()
        self.assertIn("; 3 requests sent, 0 stopped, ", end := prefill.finish().err)
        self.assertIn("(prompts of one token need no prefill node and are not among them)", end)

    def test_no_library_catches_control_c(self):
        prefill, _ = self.prefill()
        status = pathlib.Path(f"/proc/{prefill.process.pid}/status").read_text()
        caught = int(re.search(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE).group(1), 16)
        for number in (signal.SIGINT, signal.SIGTERM):
            self.assertEqual(caught >> (number - 1) & 1, 0, number)
        prefill.interrupt()
        self.assertEqual(prefill.finish().status, demo.INTERRUPTED)

    def refuse(self, pattern, **values):
        prefill, port = self.prefill()
        result = self.decode(port, **values)
        self.assertEqual(result.status, demo.INFEASIBLE, result)
        self.assertRegex(result.err, pattern)
        self.assertIsNone(result.json)
        prefill.interrupt()
        end = prefill.finish()
        self.assertRegex(end.err, "refused a decode node.*" + pattern)

    def test_other_weights_are_refused_on_both_sides(self):
        self.refuse("fingerprints differ", seed=2)

    def test_other_layers_are_refused_on_both_sides(self):
        self.refuse("fingerprints differ", layers=5)

    def test_other_pages_are_refused_on_both_sides(self):
        self.refuse("page_tokens", page_tokens=32)

    def test_a_peer_that_is_not_there(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        result = self.decode(port)
        self.assertEqual(result.status, demo.FAILED, result)
        self.assertIn("connection refused", result.err)
        self.assertLess(result.seconds, 10)

    def test_a_port_in_use(self):
        _, port = self.prefill()
        second = demo.Demo(listen=f"127.0.0.1:{port}", command=("node", "prefill"), provider="net")
        result = second.finish()
        self.assertEqual(result.status, demo.FAILED, result)
        self.assertRegex(result.err, r"(?i)address already in use|in use")

    def test_a_bad_address_is_named_with_its_option(self):
        for words in (("prefill", "--listen", "7700"), ("prefill", "--listen", ""),
                      ("decode", "--connect", ":7700"), ("decode", "--connect", "here")):
            with self.subTest(words=words):
                result = demo.Demo(*words[1:], command=("node", words[0])).finish()
                self.assertEqual(result.status, demo.BAD_INPUT, result)
                self.assertIn(f"{words[1]}: '{words[2]}' is not an address" if words[2] else
                              f"option '{words[1]}' needs a value: HOST:PORT", result.err)

    def test_keys(self):
        with tempfile.TemporaryDirectory() as directory:
            key = pathlib.Path(directory) / "key"
            digits = subprocess.run([demo.HALAGE, "key"], check=True, capture_output=True, text=True,
                                    timeout=20).stdout
            self.assertRegex(digits, r"\A[0-9a-f]{64}\n\Z")
            for text, mode, pattern in (
                (digits, 0o640, "can be used by others than its owner.*chmod 600"),
                (digits, 0o604, "can be used by others than its owner.*chmod 600"),
                (digits[:-2], 0o600, "holds no key: 64 hexadecimal digits"),
                (digits + digits, 0o600, "holds no key"),
                ("", 0o600, "holds no key"),
                ("0" * 5000, 0o600, "holds no key"),
                (None, 0, "cannot be read: No such file"),
                (".", 0o755, "is no file; name the one that 'halage key' was written to"),
            ):
                with self.subTest(pattern=pattern, mode=mode):
                    key.unlink(missing_ok=True)
                    if text == ".":
                        key.mkdir(mode)
                    elif text is not None:
                        key.write_text(text)
                        key.chmod(mode)
                    for words in (("prefill",), ("decode", "--connect=127.0.0.1:1")):
                        result = demo.Demo(*words[1:], f"--key-file={key}",
                                           command=("node", words[0])).finish()
                        self.assertEqual(result.status, demo.BAD_INPUT, result)
                        self.assertRegex(result.err, re.escape(f"--key-file: '{key}' ") + pattern)

    def test_nodes_with_different_keys_say_so(self):
        with tempfile.TemporaryDirectory() as directory:
            keys = [pathlib.Path(directory) / name for name in ("a", "b")]
            for key in keys:
                key.touch(mode=0o600)
                key.write_bytes(subprocess.run([demo.HALAGE, "key"], check=True, timeout=20,
                                               capture_output=True).stdout)
            _, port = self.prefill(key_file=keys[0])
            result = self.decode(port, key_file=keys[1])
            self.assertEqual(result.status, demo.INFEASIBLE, result)
            self.assertIn("has another key; give both sides the same key", result.err)
            result = self.decode(port)
            self.assertIn("asks for one, the other has none", result.err)
            result = self.decode(port, key_file=keys[0])
            self.assertEqual(result.status, demo.DONE, result)

    def test_kinds_of_nodes(self):
        for words in ((), ("router",)):
            result = demo.Demo(command=("node", *words)).finish()
            self.assertEqual(result.status, demo.BAD_INPUT, result)


class Starts(unittest.TestCase):
    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_results_that_cannot_be_printed_are_a_failure(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([demo.HALAGE, "demo", "--requests=2"], stdout=full,
                                    stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, demo.FAILED, result)
        self.assertIn("halage demo: the results cannot be printed\n", result.stderr)

    def test_control_c_while_nodes_start(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            run = demo.Demo(connect=f"127.0.0.1:{port}", command=("node", "decode"), provider="net")
            server.settimeout(20)
            connection, _ = server.accept()  # and says nothing, so that the node is never up
            with connection:
                run.interrupt()
                result = run.finish()
        self.assertEqual(result.status, demo.INTERRUPTED, result)
        self.assertIn("interrupted before all nodes were up", result.err)


class Silent(unittest.TestCase):
    """Takes as long as the lease: not for the quick tier."""

    def test_a_peer_that_says_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            result = demo.run(connect=f"127.0.0.1:{server.getsockname()[1]}",
                              command=("node", "decode"), requests=8, provider="net")
        self.assertEqual(result.status, demo.FAILED, result)
        self.assertIn("no connection", result.err)
        self.assertLess(result.seconds, 45)


if __name__ == "__main__":
    unittest.main()
