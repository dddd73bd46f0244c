#!/usr/bin/env python3
"""Where `halage-sim` writes: what is no regular file is written, never replaced; links, modes and write
protection are respected; no output replaces an input or another output; a full disk is said."""

import json
import os
import pathlib
import stat
import subprocess
import threading
import unittest

from test_sim_cli import PROGRAM, SMALL, Sim

OPTIONS = ("--json", "--csv", "--series", "--trace-out")
PLAN = ("--quiet", "--slo", "ttft=9s", "--gpus", "16", "--requests", "60", "-s", "measure.warmup_requests=5")


class Outputs(Sim):
    def setUp(self):
        super().setUp()
        self.write("a.yaml", "schema: 1\n")
        self.write("b.yaml", "schema: 1\nextends: a.yaml\n")

    def run_words(self, *words):
        return ("run", "a.yaml", "--quiet", *SMALL, *words)


class Nodes(Outputs):
    def test_a_fifo_is_written_and_stays(self):
        path = self.directory / "fifo"
        os.mkfifo(path)
        commands = [self.run_words(option, "fifo") for option in OPTIONS]
        commands += [("list", "gpus", "--json", "fifo"), ("check", "a.yaml", "--json", "fifo"),
                     ("init", "fifo"), ("plan", "a.yaml", *PLAN, "--json", "fifo"),
                     ("sweep", "a.yaml", "--quiet", *SMALL, "-g", "seed=1", "--out", "o", "--json", "fifo")]
        for words in commands:
            with self.subTest(words):
                got = []
                reader = threading.Thread(target=lambda to=got: to.append(path.read_bytes()), daemon=True)
                reader.start()
                self.good(*words)
                reader.join(timeout=20)
                self.assertGreater(len(got[0]), 100)
                self.assertTrue(stat.S_ISFIFO(path.lstat().st_mode))

    @unittest.skipUnless(os.geteuid() == 0, "making devices is root's")
    def test_a_device_is_written_and_stays(self):
        path = self.directory / "full"
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
            with open(path, "wb", buffering=0):
                pass
        except PermissionError:
            self.skipTest("no devices here")
        for option in OPTIONS:
            result = self.sim(*self.run_words(option, "full"))
            self.expect_line(result, 1, option, "full: cannot write: ", "; give another file")
            self.assertTrue(stat.S_ISCHR(path.lstat().st_mode))
        self.expect_line(self.sim("init", "full"), 1, "No space left on device; give another file")

    def test_links_stay_and_modes_too(self):
        folder = self.directory / "far"
        folder.mkdir()
        target = folder / "there"
        for option in OPTIONS:
            target.write_text("old")
            target.chmod(0o640)
            link = self.directory / "link"
            link.symlink_to("far/there")
            self.good(*self.run_words(option, "link"))
            self.assertTrue(link.is_symlink())
            self.assertNotEqual(target.read_text(), "old")
            self.assertEqual(stat.S_IMODE(target.stat().st_mode), 0o640)
            link.unlink()
            link.symlink_to("far/new")
            self.good(*self.run_words(option, "link"))
            self.assertTrue(link.is_symlink())
            self.assertTrue((folder / "new").is_file())
            (folder / "new").unlink()
            link.unlink()
        self.assertEqual([path.name for path in folder.iterdir()], ["there"])

    def test_what_is_protected_is_refused(self):
        path = self.directory / "old"
        for option in OPTIONS:
            path.write_text("old")
            path.chmod(0o444)
            self.expect_line(self.sim(*self.run_words(option, "old")), 1, "old: is write-protected")
            self.assertEqual((path.read_text(), stat.S_IMODE(path.stat().st_mode)), ("old", 0o444))

    def test_a_folder_is_no_file(self):
        for option in OPTIONS:
            self.expect_line(self.sim(*self.run_words(option, ".")), 2, "Is a directory")


class Twice(Outputs):
    def refused(self, words, *parts):
        before = {path: path.read_bytes() for path in self.directory.iterdir() if path.is_file()}
        with self.subTest(words):
            self.expect_line(self.sim(*words), 2, *parts)
            after = {path: path.read_bytes() for path in self.directory.iterdir() if path.is_file()}
            self.assertEqual(before, after)

    def test_an_input_is_no_output(self):
        self.write("t.jsonl", '{"timestamp": 0, "input_length": 9, "output_length": 5, "hash_ids": [1]}\n')
        self.write("t.yaml", "schema: 1\nmeasure: {warmup_requests: 0}\n"
                   "traffic: {source: trace, trace: {format: mooncake, file: t.jsonl}}\n")
        os.link(self.directory / "a.yaml", self.directory / "hard")
        (self.directory / "soft").symlink_to("a.yaml")
        for option in OPTIONS:
            for path in "a.yaml", "./a.yaml", "hard", "soft":
                self.refused(self.run_words(option, path), f"{option}: {path}: is also the scenario itself")
            self.refused(("run", "b.yaml", option, "a.yaml"), "is also a scenario that this one extends")
            self.refused(("run", "t.yaml", option, "t.jsonl"), "is also a trace of the scenario")
        self.refused(("check", "b.yaml", "t.yaml", "--json", "t.jsonl"), "is also a trace of the scenario")
        self.refused(("check", "b.yaml", "--json", "a.yaml"), "is also a scenario that this one extends")
        self.refused(("plan", "a.yaml", *PLAN, "--json", "hard"), "is also the scenario itself")
        self.refused(("sweep", "a.yaml", "-g", "seed=1,2", "--out", "o", "--json", "a.yaml"),
                     "is also the scenario itself")
        self.write("bad.yaml", "schema: 1\nnone: 1\n")
        self.refused(("check", "bad.yaml", "--json", "bad.yaml"), "is also the scenario itself")

    def test_sweeps_keep_their_scenario(self):
        folder = self.directory / "o"
        folder.mkdir()
        (folder / "sweep.json").write_text("schema: 1\n")
        self.refused(("sweep", "o/sweep.json", "-g", "seed=1,2", "--out", "o"), "is also the scenario itself")
        self.refused(("sweep", "a.yaml", "-g", "seed=1,2", "--out", "o", "--json", "o/sweep.json"), "is also --out")

    def test_one_file_takes_one_output(self):
        self.refused(self.run_words("--json", "x", "--csv", "x"), "--csv: x: is also --json")
        self.refused(self.run_words("--json", "x", "--series", "./x"), "--series: ./x: is also --json")
        (self.directory / "x").write_text("")
        (self.directory / "y").symlink_to("x")
        self.refused(self.run_words("--series", "x", "--trace-out", "y"), "--trace-out: y: is also --series")
        (self.directory / "d").mkdir()
        self.refused(self.run_words("--series", "d/series.tsv", "--plot", "d"), "is also --series")
        self.good(*self.run_words("--json", "/dev/null", "--csv", "/dev/null"))

    def test_a_redirected_stdout_is_one_too(self):
        for path in "x", "/dev/stdout":
            with open(self.directory / "x", "w", encoding="utf-8") as out:
                done = subprocess.run([PROGRAM, *self.run_words("--json", path)], cwd=self.directory, stdout=out,
                                      stderr=subprocess.PIPE, encoding="utf-8", check=False, timeout=50)
            self.expect_line(done, 2, "is also where this command's text goes")


class FullDisk(Outputs):
    def test_what_cannot_be_printed_is_said(self):
        for words in (("run", "a.yaml", "--quiet", *SMALL), ("list", "keys"), ("list", "models"), ("init",),
                      ("check", "a.yaml"), ("check", "a.yaml", "--values"), ("plan", "a.yaml", *PLAN),
                      ("explain", "a.yaml", "--quiet", *SMALL, "--request", "7"),
                      ("sweep", "a.yaml", "--quiet", *SMALL, "-g", "seed=1,2", "--out", "o")):
            with self.subTest(words), open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([PROGRAM, *words], cwd=self.directory, stdout=full, stderr=subprocess.PIPE,
                                      encoding="utf-8", check=False, timeout=50)
                self.assertEqual(done.returncode, 1, done.stderr)
                last = done.stderr.splitlines()[-1]
                self.assertRegex(last, r"^halage-sim \w+: .*cannot write")

    def test_values_are_a_scenario(self):
        words = ("-s", "decode.nodes=2", "-s", "seed=7")
        result = self.good("check", "a.yaml", "--values", *words)
        self.assertTrue(result.stderr.startswith("a.yaml: good\n"))
        self.write("again.yaml", result.stdout)
        both = [json.loads(self.good("check", *w, "--json", "-").stdout)["scenarios"][0]["digest"]
                for w in (("a.yaml", *words), ("again.yaml",))]
        self.assertEqual(both[0], both[1])
        again = self.good("check", "again.yaml", "--values")
        self.assertEqual(again.stdout, result.stdout)


if __name__ == "__main__":
    unittest.main()
