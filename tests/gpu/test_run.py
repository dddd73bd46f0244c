#!/usr/bin/env python3
"""tests/gpu/run, over the double of libcuda: every check runs; one that fails says why and stops none of the others;
without a GPU all are skipped with the reason."""

import os
import pathlib
import subprocess
import unittest

HERE = pathlib.Path(__file__).parent
BIN = os.environ["HALAGE_BIN_DIR"]
DOUBLE = os.environ["FAKE_CUDA_DIR"]
CHECKS = ["cumem", "staged", "demo", "counter", "flush"]


def run(*words, **variables):
    """(exit status, {check: (word, reason)}, all output)."""
    done = subprocess.run(
        [HERE / "run", "--bin", BIN, *words], env={**os.environ, **variables}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=100,
    )
    results = {}
    for line in done.stdout.splitlines():
        name, _, rest = line.partition(": ")
        word, _, reason = rest.partition(": ")
        if name in CHECKS:
            results[name] = (word, reason)
    return done.returncode, results, done.stdout


class Run(unittest.TestCase):
    def expect(self, found, status, words):
        self.assertEqual(found[0], status, found[2])
        self.assertEqual({name: word for name, (word, _) in found[1].items()}, words, found[2])
        for name, (_, reason) in found[1].items():
            self.assertTrue(reason, name)

    def test_each_check_runs(self):
        found = run("--double", DOUBLE, "--forwards", "2")
        self.expect(found, 0, dict.fromkeys(CHECKS, "ran"))
        for figure in ("gate to tick, us: 122 times, p50 ", "one flush from the call to its return", "4 verified"):
            self.assertIn(figure, found[2])
        self.assertIn("over a double of libcuda: nothing below is of a GPU", found[2])

    def test_one_that_fails_stops_no_other(self):
        found = run("--double", DOUBLE, "--forwards", "1", FAKE_CUDA_FAIL="cuMemExportToShareableHandle:1:999")
        self.expect(found, 1, {**dict.fromkeys(CHECKS, "ran"), "cumem": "failed", "demo": "failed"})
        self.assertIn("cuMemExportToShareableHandle failed with error 999", found[1]["cumem"][1])

    def test_what_a_check_needs_and_has_not(self):
        found = run("--double", DOUBLE, "--only", "counter", FAKE_CUDA_MISSING="cuGraphLaunch")
        self.expect(found, 77, {"counter": "skipped"})
        self.assertIn("cuGraphLaunch", found[1]["counter"][1])
        found = run("--double", DOUBLE, "--only", "counter", FAKE_CUDA_FAIL="cuLaunchKernel:20:719")
        self.expect(found, 1, {"counter": "failed"})

    def test_without_a_gpu_all_are_skipped(self):
        found = run(CUDA_VISIBLE_DEVICES="")
        self.expect(found, 77, dict.fromkeys(CHECKS, "skipped"))

    def test_wrong_words(self):
        for words in (["--only", "none"], ["--colour"], ["--forwards"]):
            self.assertEqual(run(*words)[0], 2)


if __name__ == "__main__":
    unittest.main()
