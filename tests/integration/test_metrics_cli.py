#!/usr/bin/env python3
"""`halage node ... --metrics PORT`: both nodes of a pair serve their numbers while they work, which agree with
what the decode node verified; a port that is taken, or is none, is told in a line."""
import os
import pathlib
import re
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

HALAGE = str(pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage")
REQUESTS = 6


def get(port, path="/metrics"):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        return answer.read().decode()


def value(text, series):
    found = re.search(rf"^{re.escape(series)} ([0-9.]+)$", text, re.M)
    return float(found[1]) if found else None


class Metrics(unittest.TestCase):
    def start_prefill(self, *words):
        node = subprocess.Popen(
            [HALAGE, "node", "prefill", "--listen", "127.0.0.1:0", *words],
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(node.stderr.close)
        self.addCleanup(node.wait)
        self.addCleanup(node.kill)
        return node

    def test_both_nodes_serve_what_they_did(self):
        prefill = self.start_prefill("--metrics", "0")
        lines = []
        ports = {}
        for line in prefill.stderr:
            lines.append(line)
            if "without libmicrohttpd" in line:
                self.skipTest(line.strip())
            found = re.search(r"metrics at http://127\.0\.0\.1:(\d+)/metrics", line)
            if found:
                ports["metrics"] = int(found[1])
            found = re.search(r"listening on .*, port (\d+)", line)
            if found:
                ports["listen"] = int(found[1])
            if len(ports) == 2:
                break
        self.assertEqual(set(ports), {"metrics", "listen"}, "".join(lines))
        self.assertEqual(get(ports["metrics"], "/healthz"), "good\n")
        taken = subprocess.run(
            [HALAGE, "node", "decode", "--connect", f"127.0.0.1:{ports['listen']}", "--requests",
             str(REQUESTS), "--metrics", str(ports["metrics"])],
            capture_output=True, text=True, timeout=100)
        self.assertEqual(taken.returncode, 0, taken.stdout + taken.stderr)
        self.assertIn(f"127.0.0.1:{ports['metrics']}: another process serves there", taken.stderr)
        self.assertIn("the node goes on without", taken.stderr)
        for _ in range(1000):
            text = get(ports["metrics"])
            if value(text, 'halage_peers_up{side="prefill"}') == 0:
                break
        self.assertEqual(value(text, 'halage_requests_total{side="prefill",status="completed"}'),
                         REQUESTS)
        self.assertEqual(value(text, 'halage_requests_total{side="prefill",status="failed"}'), 0)
        self.assertGreater(value(text, 'halage_bytes_total{side="prefill",direction="out"}'), 0)
        self.assertGreater(
            value(text, 'halage_layer_lag_seconds_count{side="prefill",stage="read"}'), 0)
        with self.assertRaises(urllib.error.HTTPError):
            get(ports["metrics"], "/else")

    def test_a_port_that_is_none_is_refused(self):
        for word in ("65536", "-1", "x", ""):
            run = subprocess.run([HALAGE, "node", "prefill", f"--metrics={word}"],
                                 capture_output=True, text=True, timeout=60)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn("--metrics", run.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[1:])
