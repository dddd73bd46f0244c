#!/usr/bin/env python3
"""tools/soak itself: parts that go on, Ctrl-C, failing runs, stale commits. Its campaigns are replaced by one of
small commands, its state by a directory of the test's."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

SOAK = pathlib.Path(__file__).resolve().parents[2] / "tools/soak"
CHILD = textwrap.dedent("""
    import importlib.machinery, importlib.util, pathlib, sys
    loader = importlib.machinery.SourceFileLoader("soak", sys.argv[1])
    soak = importlib.util.module_from_spec(importlib.util.spec_from_loader("soak", loader))
    loader.exec_module(soak)
    soak.STATE = pathlib.Path(sys.argv[2])
    soak.ROOT = pathlib.Path(sys.argv[2])
    commit, runs = sys.argv[3], [w.split("=") for w in sys.argv[4].split(",")]
    soak.commit_now = lambda: commit
    soak.build = lambda runs, targets: None
    soak.CAMPAIGNS = {"small": ("small ones",
        lambda: [soak.Run("dev", name, ["sh", "-c", command]) for name, command in runs], [])}
    sys.argv = ["soak", *sys.argv[5:]]
    sys.exit(soak.main())
""")


class Soak(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def start(self, runs, *words, commit="one"):
        return subprocess.Popen([sys.executable, "-c", CHILD, SOAK, self.directory.name, commit, runs, *words],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def soak(self, runs, *words, **values):
        process = self.start(runs, *words, **values)
        out, _ = process.communicate(timeout=30)
        return process.returncode, out

    def test_a_campaign_runs_to_its_end_and_then_has_nothing_left(self):
        for _ in range(2):
            status, out = self.soak("a=true,b=exit 77", "small")
            self.assertEqual(status, 0, out)
            self.assertIn("1 passed, 0 failed, 1 skipped, 0 left", out)

    def test_a_failing_run_keeps_what_it_said(self):
        reports = pathlib.Path(self.directory.name) / "reports"
        reports.mkdir()
        status, out = self.soak("a=true,b=echo why; exit 1", "small", "--write", "--jobs=1")
        self.assertEqual(status, 1, out)
        rows = [line.split("\t") for line in (reports / "soak-small.tsv").read_text().splitlines()]
        self.assertEqual([(r[0], r[1], r[3]) for r in rows[2:]], [("dev", "a", "passed"), ("dev", "b", "failed")])
        self.assertIn("failed: dev b", out)
        self.assertEqual((pathlib.Path(self.directory.name) / "small.logs/dev_b.log").read_text(), "why\n")

    def test_a_part_ends_and_the_next_goes_on(self):
        runs = ",".join(f"r{i}=sleep 0.3" for i in range(6))
        status, out = self.soak(runs, "small", "--minutes=0.005", "--jobs=1")
        self.assertEqual(status, 3, out)
        self.assertIn("goes on", out)
        status, out = self.soak(runs, "small", "--jobs=3")
        self.assertEqual(status, 0, out)
        self.assertIn("6 passed", out)
        self.assertNotIn("dev r0", out)

    def test_control_c_ends_what_runs_and_keeps_what_was_done(self):
        marker = pathlib.Path(self.directory.name) / "pid"
        process = self.start(f"a=true,b=echo $$ > {marker}; exec sleep 60", "small", "--jobs=1")
        due = time.monotonic() + 20
        while not (marker.exists() and marker.read_text().strip()) and time.monotonic() < due:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, out)
        self.assertIn("interrupted after 1 runs", out)
        self.assertFalse(os.path.exists(f"/proc/{marker.read_text().strip()}"))

    def test_another_commit_is_not_mixed_in_unasked(self):
        self.soak("a=true,b=true", "small", "--minutes=0.0001")
        status, out = self.soak("a=true,b=true", "small", commit="two")
        self.assertEqual(status, 2, out)
        self.assertIn("begun at commit one and this is two", out)
        self.assertEqual(self.soak("a=true,b=true", "small", "--keep", commit="two")[0], 0)
        self.assertEqual(self.soak("a=true,b=true", "small", "--again", commit="two")[0], 0)

    def test_bad_options(self):
        for words in (["none"], [], ["small", "--minutes=0"], ["small", "--jobs=65"]):
            self.assertEqual(self.soak("a=true", *words)[0], 2, words)


if __name__ == "__main__":
    unittest.main()
