#!/usr/bin/env python3
"""Equal seed, equal bytes: all that `halage-sim run` writes is the same when it runs again, and a sweep's results are
the same with one process at a time and with two. The digests of the outputs are in sim_determinism.tsv, so that
builds by different compilers are held to the same bytes: tools/test runs this test with gcc's build and with clang's.

A change of the model, of the calibration or of an output changes digests: look at what changed, then run this
with HALAGE_UPDATE_GOLDEN=1 and say in the commit why."""

import hashlib
import os
import pathlib
import subprocess
import tempfile
import unittest

HALAGE_SIM = pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage-sim"
GOLDEN = pathlib.Path(__file__).with_name("sim_determinism.tsv")
UPDATE = os.environ.get("HALAGE_UPDATE_GOLDEN") == "1"

BASE = """\
schema: 1
name: same
traffic:
  requests: 100
  arrivals:
    rate: 8/s
  prompt:
    kind: lognormal
    mean: 2500
    cv: 1
    max: 20000
  output:
    kind: lognormal
    mean: 120
    cv: 0.8
    max: 800
measure:
  warmup_requests: 10
sweep:
  - key: decode.nodes
    values: [2, 3]
  - key: seed
    values: [1, 2]
"""

# Each is a part of the model that others do not have.
CASES = {
    "folded": [],
    "unfolded": ["network.fold=never", "network.bandwidth=10Gbit/s", "prefill.nodes=2"],
    "uplinks": ["network.pod_nodes=2", "network.oversubscription=8", "network.bandwidth=20Gbit/s", "prefill.nodes=3"],
    "cached": ["routing.prefill=prefix", "prefill.nodes=2", "traffic.arrivals.kind=gamma", "traffic.arrivals.cv=3"],
    "drafts": ["decode.accept=[0.8, 0.5]", "decode.kv_policy=grow", "decode.kv_tokens=30000"],
    "ranks": ["decode.tp=1", "decode.dp=8", "decode.ep=8"],
    "mixed": ["serving=colocated", "colocated.chunked=true"],
    "death": ["faults.0.kind=kill", "faults.0.at=4s", "faults.0.role=decode", "faults.0.node=1",
              "faults.1.kind=restart", "faults.1.at=8s", "faults.1.role=decode", "faults.1.node=1"],
}


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Sim(unittest.TestCase):
    maxDiff = None

    def sim(self, directory, *words):
        (directory / "same.yaml").write_text(BASE, encoding="utf-8")
        result = subprocess.run([HALAGE_SIM, *words], cwd=directory, capture_output=True, timeout=120,
                                check=False)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return result.stdout

    def run_once(self, keys):
        """Digests of all that one run writes."""
        words = [word for key in keys for word in ("-s", key)]
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            text = self.sim(directory, "run", "same.yaml", "--quiet", *words, "--json=j", "--csv=c",
                            "--series=s", "--trace-out=t")
            files = {"text": text, "json": (directory / "j").read_bytes(),
                     "csv": (directory / "c").read_bytes(), "series": (directory / "s").read_bytes(),
                     "trace": (directory / "t").read_bytes()}
        return {kind: digest(data) for kind, data in files.items()}

    def sweep(self, jobs):
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            self.sim(directory, "sweep", "same.yaml", "--quiet", "--out=out", f"--jobs={jobs}")
            return {kind: digest((directory / "out" / f"sweep.{kind}").read_bytes()) for kind in ("tsv", "json")}

    def test_all(self):
        found = {}
        for case, keys in CASES.items():
            with self.subTest(case):
                found[case] = self.run_once(keys)
                self.assertEqual(self.run_once(keys), found[case])
        found["sweep"] = self.sweep(1)
        self.assertEqual(self.sweep(2), found["sweep"])
        lines = "".join(f"{case}\t{kind}\t{value}\n" for case, kinds in found.items()
                        for kind, value in kinds.items())
        if UPDATE:
            GOLDEN.write_text(lines, encoding="ascii")
        self.assertEqual(lines.splitlines(), GOLDEN.read_text(encoding="ascii").splitlines())


if __name__ == "__main__":
    unittest.main(verbosity=2)
