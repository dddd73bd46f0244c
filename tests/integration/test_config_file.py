#!/usr/bin/env python3
"""`halage node --config`: the options of a node from a YAML file."""
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

HALAGE = str(pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage")


class ConfigFile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, text, name="node.yaml"):
        path = pathlib.Path(self.folder.name) / name
        path.write_text(text)
        return str(path)

    def halage(self, *words, **environment):
        return subprocess.run([HALAGE, *words], capture_output=True, text=True, timeout=30,
                              env=dict(os.environ, **environment))

    def test_what_is_wrong_takes_one_line(self):
        cases = [
            ("page: 3\n", "unknown key 'page'; valid keys: listen, "),
            ("pages: 0\n", "--pages: '0': write a whole number, 1 to 65536"),
            ("insecure: maybe\n", "line 1: insecure: 'maybe': write true or false"),
            ("pages: [1, 2]\n", "pages: the wrong shape; write one value"),
            ("pages: 1\npages: 2\n", "pages: the key is there twice"),
            ("pages\n", "the wrong shape"),
            ("", "the file is empty"),
            ("config: other.yaml\n", "unknown key 'config'"),
            ("guard: true\n", "unknown key 'guard'"),
            ("model: \"g\\nqa\"\n", "--model: unknown model"),
            ("pages: 400\n---\nlayers: 2\n", "line 2: a second document begins, and a file is read as one: take out"),
            ("pages: 400\n...\nlayers: 2\n", "not YAML: did not find expected <document start>"),
            ("pages: 400\nlisten:\nlayers: 2\n", "listen has no value: write one, in quotes where the word is meant"),
            ("pages: 400\nlisten: ~\n", "line 2: listen has no value"),
            ("{pages: 400, listen: null}\n", "line 1: listen has no value"),
            ("listen: &a Null\n", "line 1: listen has no value"),
            ("pages: 400\nlisten: ''\n", "line 2: listen: '': write a value, or take the key out"),
            ("listen: \"~\"\npages: 0\n", "--pages: '0'"),  # in quotes it is a word
            ("--- {pages: 0}\n...\n", "--pages: '0'"),  # one document, marked at both ends
        ]
        for text, part in cases:
            with self.subTest(text):
                path = self.write(text)
                done = self.halage("node", "prefill", "--config", path)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertIn(f"halage node prefill: {path}: ", done.stderr)
                self.assertIn(part, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        missing = self.halage("node", "decode", "--config=/nowhere/x.yaml")
        self.assertEqual(missing.returncode, 2)
        self.assertIn("/nowhere/x.yaml: cannot be opened", missing.stderr)

    def test_a_pipe_is_read_once(self):
        for text, part in (("pages: 0\n", "--pages: '0': write a whole number"), ("page: 1\n", "unknown key 'page'"),
                           ("guard: x\nredial: x\n", "unknown key 'guard'"), ("a: ~\n", "line 1: a has no value"),
                           ("insecure: x\n", "insecure: 'x': write true or false")):
            pipe = pathlib.Path(self.folder.name) / "pipe"
            os.mkfifo(pipe)
            node = subprocess.Popen([HALAGE, "node", "prefill", "--config", pipe], stderr=subprocess.PIPE, text=True)
            self.addCleanup(node.kill)
            pipe.write_text(text)
            said = node.communicate(timeout=30)[1]
            pipe.unlink()
            self.assertEqual(node.returncode, 2, said)
            self.assertIn(part, said)

    def test_what_the_line_says_is_not_blamed_on_the_file(self):
        path = self.write("pages: 100\n")
        done = self.halage("node", "prefill", f"--config={path}", "--pages=0")
        self.assertEqual(done.returncode, 2)
        self.assertTrue(done.stderr.startswith("halage node prefill: --pages: '0': "), done.stderr)
        done = self.halage("node", "decode", "--config", path)
        self.assertEqual((done.returncode, done.stderr), (2, "halage node decode: --connect HOST:PORT must be given\n"))

    def test_levels(self):
        done = self.halage("node", "prefill", HALAGE_LOG="loud")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr,
                         "halage node prefill: HALAGE_LOG: 'loud': write fatal, error, warn, info or debug\n")

    def test_a_file_of_the_environment_is_named_with_it(self):
        done = self.halage("node", "prefill", HALAGE_CONFIG="/none/of.yaml")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "halage node prefill: HALAGE_CONFIG: /none/of.yaml: cannot be opened: No such file or "
                                      "directory\n")

    def test_a_pair_runs_by_two_files(self):
        """The prefill node by HALAGE_CONFIG, the decode node by --config; the line outdoes the file."""
        served = self.write("listen: 127.0.0.1:0\nlayers: 2\nprovider: tcp\npages: 300\n", "prefill.yaml")
        node = subprocess.Popen([HALAGE, "node", "prefill", "--pages=400"], stderr=subprocess.PIPE, text=True,
                                env=dict(os.environ, HALAGE_CONFIG=served))
        try:
            said = ""
            while "listening on" not in said:
                line = node.stderr.readline()
                self.assertTrue(line, said)
                said += line
            self.assertIn(f"config {served}", said)
            self.assertIn(" pages=400", said)
            self.assertIn(" layers=2 ", said)
            port = re.search(r"port (\d+)", said).group(1)
            asked = self.write(f"connect: 127.0.0.1:{port}\nlayers: 2\nprovider: tcp\nrequests: 50\nredial: false\n",
                               "decode.yaml")
            # HALAGE_CONFIG is of another kind of node: --config goes first, and the node that is started reads none.
            done = self.halage("node", "decode", "--config", asked, "--requests=3", HALAGE_CONFIG=served)
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            self.assertRegex(done.stderr, f"halage node decode: connect .* config {asked}: .* layers=2 ")
            self.assertRegex(done.stdout + done.stderr, r"\b3 verified")
        finally:
            node.send_signal(signal.SIGINT)
            node.communicate(timeout=20)


if __name__ == "__main__":
    unittest.main()
