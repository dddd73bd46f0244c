#!/usr/bin/env python3
"""`halage-storm` as one calls it: options out of range are refused in a sentence, a failing seed's line
replays it, the smaller case fails by the same checker, output does not depend on how many processes
there are, a case that aborts is told of like any other, Ctrl-C tells what is known."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ["HALAGE_BIN_DIR"])
STORM = BIN / "halage-storm"


def call(*words):
    return subprocess.run([str(STORM)] + [str(w) for w in words], capture_output=True, text=True,
                          timeout=120, check=False)


def line_after(text, mark):
    return text.split(mark, 1)[1].splitlines()[0].split()[1:]


class Options(unittest.TestCase):
    def test_what_cannot_be_is_refused_in_one_sentence(self):
        wrong = [("--seeds", "x"), ("--seeds", "9-1"), ("--seeds", "1-"), ("--seeds", "-1"),
                 ("--seeds", "1-2000000001"), ("--seeds", "99999999999999999999"),
                 ("--jobs", "0"), ("--jobs", "65"), ("--jobs", "2x"), ("--repeat", "-1"),
                 ("--without", "nothing"), ("--without", "delay,"), ("--requests", "0"),
                 ("--requests", "100001"), ("--nodes", "5:1"), ("--nodes", "1"),
                 ("--nodes", "1:0"), ("--plant", "none"), ("--plant", "99"), ("more",),
                 ("--nonsense",)]
        for words in wrong:
            with self.subTest(words=words):
                result = call(*words)
                self.assertEqual(result.returncode, 2, result.stdout)
                self.assertEqual(result.stdout, "")
                self.assertIn(re.split("[,:]", words[-1].strip("-"))[-1], result.stderr)

    def test_help_and_list(self):
        self.assertIn("--without", call("--help").stdout)
        listed = call("--list").stdout
        self.assertIn("partition", listed)
        self.assertRegex(listed, r"old-keys +target")

    def test_a_file_that_cannot_be_written_is_named(self):
        result = call("--seeds", 1, "--json", "/nowhere/at/all")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nowhere/at/all", result.stderr)


class Runs(unittest.TestCase):
    def test_processes_do_not_show(self):
        one = call("--seeds", "1-12", "--verbose", "--jobs", 1)
        three = call("--seeds", "1-12", "--verbose", "--jobs", 3)
        self.assertEqual(one.returncode, 0, one.stdout)
        self.assertEqual(one.stdout, three.stdout)
        self.assertIn("12 passed, 0 failed", one.stdout)

    def test_counts_as_json(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "counts.json"
            self.assertEqual(call("--seeds", "1-3", "--json", path).returncode, 0)
            counts = json.loads(path.read_text())
        self.assertEqual((counts["passed"], counts["failed"]), (3, 0))
        self.assertGreater(counts["checkers"]["target"], 0)
        self.assertGreater(counts["notes"]["session_up"], 0)

    def test_three_seeds_do_not_cover_all(self):
        result = call("--seeds", "1-3", "--cover")
        self.assertEqual(result.returncode, 1)
        self.assertIn("never hit: ", result.stdout)

    def test_an_interrupt_tells_what_is_known(self):
        process = subprocess.Popen([str(STORM), "--seeds", "1-1000000", "--jobs", "2",
                                    "--verbose"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertIn("seed 1:", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertRegex(out, r"\d+ passed, 0 failed, interrupted")


class Failures(unittest.TestCase):
    def test_a_line_replays_and_a_smaller_case_fails_alike(self):
        with tempfile.TemporaryDirectory() as directory:
            result = call("--seeds", "1-20", "--plant", "source-freed", "--trace", directory)
            traces = sorted(pathlib.Path(directory).glob("*.trace"))
            self.assertTrue(traces)
            shown = subprocess.run([str(BIN / "halage"), "trace", str(traces[0])],
                                   capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertEqual(result.returncode, 0, result.stdout)
        again = call(*line_after(result.stdout, "again with: "), "--as-is")
        self.assertIn("broken, checker source", again.stdout)
        words = line_after(result.stdout, "tries: ")
        smaller = call(*words, "--as-is")
        self.assertIn("broken, checker source", smaller.stdout)
        self.assertLess(int(words[words.index("--requests") + 1]), 10)
        self.assertIn("its last happenings:", result.stdout)

    def test_the_smaller_case_needs_what_it_keeps(self):
        result = call("--seeds", "1-20", "--plant", "poison-reused")
        self.assertEqual(result.returncode, 0, result.stdout)
        words = line_after(result.stdout, "tries: ")
        without = words[words.index("--without") + 1] if "--without" in words else ""
        self.assertNotIn("close-fails", without.split(","))
        rest = ",".join(filter(None, [without, "close-fails"]))
        if "--without" in words:
            words[words.index("--without") + 1] = rest
        else:
            words += ["--without", rest]
        self.assertIn("not noticed", call(*words, "--as-is").stdout)

    def test_an_assertion_is_told_with_its_seed(self):
        result = call("--seeds", "3-9", "--plant", "abort", "--as-is")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertRegex(result.stdout, r"seed 3: broken, checker machines: .*PLANT_ABORT.*")
        self.assertTrue(re.search(r"again with: halage-storm --seeds 3 ", result.stdout))


if __name__ == "__main__":
    unittest.main()
