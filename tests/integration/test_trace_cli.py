#!/usr/bin/env python3
"""`--record` and `halage trace` as a user calls them: a demo's nodes are recorded, each trace replays to
an equal hash and reads as text and JSON; traces that differ, abort, break off or are none end with their
sentence and status."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ["HALAGE_BIN_DIR"])
DECODERS = 2


def call(*words):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=60,
                          check=False)


def trace(*words):
    return call(BIN / "halage", "trace", *words)


class Trace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = pathlib.Path(tempfile.mkdtemp())
        result = call(BIN / "halage", "demo", "--decode-nodes", DECODERS, "--requests", 12,
                      "--record", cls.directory)
        assert result.returncode == 0, result.stdout + result.stderr
        cls.traces = sorted(cls.directory.glob("*.trace"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.directory)

    def path(self, name):
        return self.directory / name

    def expect_refused(self, result, words):
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, rf"^halage trace: .*(?:{words}).*\n$")

    def test_each_node_leaves_a_trace_that_replays(self):
        self.assertEqual([t.name for t in self.traces],
                         [f"decode-{n}.trace" for n in range(1, DECODERS + 1)] + ["prefill.trace"])
        for path in self.traces:
            result = trace("--summary", path)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            head, outcome = result.stdout.splitlines()
            self.assertRegex(head, r"^trace version 3 role (prefill|decode) node [0-9a-f]{16} ")
            self.assertRegex(outcome, r"^replayed: events \d+ actions \d+ hash [0-9a-f]{16} equal$")

    def test_several_prefill_nodes_leave_a_trace_each(self):
        with tempfile.TemporaryDirectory() as directory:
            result = call(BIN / "halage", "demo", "--sources", 2, "--decode-nodes", 1, "--requests", 4,
                          "--record", directory)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            traces = sorted(pathlib.Path(directory).iterdir())
            self.assertEqual([t.name for t in traces], ["decode-1.trace", "prefill-2.trace", "prefill.trace"])
            for path in traces:
                result = trace("--summary", path)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_requests_are_seen_on_both_sides(self):
        prefill = trace(self.path("prefill.trace")).stdout
        requested = len(re.findall(r"notice requested ", prefill))
        decoders = "".join(trace(t).stdout for t in self.traces if t.stem != "prefill")
        self.assertEqual(len(re.findall(r"notice ready ", decoders)), 12)
        # a prompt of one token needs no prefiller
        self.assertEqual(len(re.findall(r"message request ", decoders)), requested)
        self.assertGreater(requested, 6)

    def test_json_says_what_the_text_says(self):
        path = self.path("decode-1.trace")
        out = self.path("out.json")
        text = trace(path, "--json", out)
        self.assertEqual(text.returncode, 0, text.stderr)
        data = json.loads(out.read_text(encoding="utf-8"))
        lines = text.stdout.splitlines()[1:-1]
        self.assertEqual(len(data["records"]), len(lines))
        self.assertEqual(data["trace"]["records"], len(lines))
        for record, line in zip(data["records"], lines):
            names = [name for name, _ in record["fields"]]
            self.assertTrue(line.startswith(f"{record['record']} {names[0]} "), line)
            position = 0
            for name in names:
                position = line.index(f" {name} ", position) + 1
        self.assertTrue(data["replay"]["equal"])
        self.assertIn(data["replay"]["hash"], text.stdout)
        on_stdout = trace(path, "--json", "-")
        self.assertEqual(json.loads(on_stdout.stdout), data)
        self.assertIn(" equal\n", on_stdout.stderr)

    def test_a_log_that_breaks_off_is_taken_in_part(self):
        whole = self.path("prefill.trace").read_bytes()
        cut = self.path("cut")
        cut.write_bytes(whole[: len(whole) // 2])
        self.expect_refused(trace(cut), r"breaks off.*--partial")
        result = trace("--partial", "--summary", cut)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"the log breaks off after record \d+\nreplayed: .* equal\n$")

    def test_what_is_no_sound_trace_is_refused(self):
        whole = bytearray(self.path("prefill.trace").read_bytes())
        whole[len(whole) // 2] ^= 4
        changed = self.path("changed")
        changed.write_bytes(whole)
        empty = self.path("empty")
        empty.write_bytes(b"")
        self.expect_refused(trace(changed), "was changed|breaks off")  # or a length was hit
        self.expect_refused(trace(empty), "not a trace of halage")
        self.expect_refused(trace("/etc/passwd"), "/etc/passwd: not a trace of halage")
        self.expect_refused(trace(self.path("absent")), "cannot be read: No such file")
        self.expect_refused(trace(self.directory), "is a directory; name one of the traces in it")
        self.expect_refused(trace(), "FILE must be given")
        before = self.path("prefill.trace").read_bytes()
        self.expect_refused(trace(self.path("prefill.trace"), "--json", self.path("prefill.trace")),
                            "--json: .* is also the input ")
        result = call(BIN / "halage", "demo", "--trace", self.path("prefill.trace"), "--json",
                      self.path("prefill.trace"))
        self.assertEqual(result.returncode, 2)
        self.assertIn("is also the input", result.stderr)
        self.assertEqual(self.path("prefill.trace").read_bytes(), before)
        self.expect_refused(trace("a", "b"), "one FILE at a time")

    def test_differences_and_aborts_end_with_status_1(self):
        tool = BIN / "halage-same-core-loop"
        altered = self.path("altered")
        stuffed = self.path("stuffed")
        self.assertEqual(call(tool, "alter", self.path("prefill.trace"), altered).returncode, 0)
        result = trace("--summary", altered)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout,
                         r"replayed: differs at record \d+\n  recorded .*\n  replayed .*\n$")
        self.assertEqual(call(tool, "stuff", self.path("prefill.trace"), stuffed).returncode, 0)
        result = trace("--summary", stuffed, "--json", self.path("stuffed.json"))
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("replayed: the machine broke off after ", result.stdout)
        self.assertIn(": broken: ", result.stderr)
        data = json.loads(self.path("stuffed.json").read_text(encoding="utf-8"))
        self.assertTrue(data["replay"]["aborted"] and not data["replay"]["equal"])

    def test_a_directory_that_cannot_be_made_is_said(self):
        result = call(BIN / "halage", "demo", "--decode-nodes", 1, "--requests", 1, "--record",
                      self.path("nowhere") / "deep")
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot record to ", result.stdout + result.stderr)

    def test_a_directory_is_made(self):
        directory = self.path("made")
        result = call(BIN / "halage", "demo", "--decode-nodes", 1, "--requests", 2, "--record", directory)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(p.name for p in directory.iterdir()), ["decode-1.trace", "prefill.trace"])

    def test_a_full_disk_is_said(self):
        for name, title in ("prefill", "prefill node"), ("decode-1", "decode node 1"):
            directory = self.path(f"full-{name}")
            directory.mkdir()
            (directory / f"{name}.trace").symlink_to("/dev/full")  # opened, never replaced
            result = call(BIN / "halage", "demo", "--decode-nodes", 1, "--requests", 2, "--record", directory)
            self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
            self.assertIn("recording is cut short: the file could not be written: No space left on device",
                          result.stdout + result.stderr)
            self.assertIn(title, result.stdout + result.stderr)
            self.assertTrue((directory / f"{name}.trace").is_symlink())

    def test_a_killed_node_leaves_what_it_was_told(self):
        directory = self.path("killed")
        directory.mkdir()
        with subprocess.Popen([BIN / "halage-prefill", "--listen", "127.0.0.1:0", "--record",
                               directory], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as node:
            port = None
            for line in node.stderr:
                found = re.search(r"port (\d+)", line)
                if found:
                    port = found.group(1)
                    break
            self.assertIsNotNone(port)
            decode = call(BIN / "halage", "node", "decode", "--connect", f"127.0.0.1:{port}",
                          "--requests", 3)
            self.assertEqual(decode.returncode, 0, decode.stderr)
            node.kill()
        path = directory / "prefill.trace"
        self.expect_refused(trace(path), "breaks off")
        result = trace("--partial", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(re.findall(r"notice requested ", result.stdout)), 3)


if __name__ == "__main__":
    unittest.main()
