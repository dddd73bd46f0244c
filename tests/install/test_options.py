#!/usr/bin/env python3
"""Every combination of the optional parts is configured afresh, built and runs.

One build tree is configured anew for each combination, in an order in which one option changes at a time, so that only
what that option touches is built again; no optimisation. pkg-config is a wrapper that notes what it is asked
for, and hides modules: what is OFF must not be asked for, what is ON and hidden must be refused by name, what is AUTO
and hidden must be left out.
usage: test_options.py SOURCES [TEST ...]
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

MODULES = {"OFI": "libfabric", "HWLOC": "hwloc", "SIMGRID": "simgrid", "METRICS_HTTP": "libmicrohttpd"}
PACKAGES = {"OFI": "libfabric-dev", "HWLOC": "libhwloc-dev", "SIMGRID": "libsimgrid-dev",
            "METRICS_HTTP": "libmicrohttpd-dev"}
# The most expensive to build again last: the last one changes once.
OPTIONS = ["CUDA", "HWLOC", "OFI", "SIMGRID"]
WRAPPER = """#!/bin/sh
echo "$*" >>"$HALAGE_ASKED"
for word in $HALAGE_HIDDEN; do
    case " $* " in *" $word"*) exit 1 ;; esac
done
exec pkg-config "$@"
"""


def gray(bits):
    """0 .. 2^bits - 1 in an order in which neighbours differ in one bit, the low ones most often."""
    return [i ^ i >> 1 for i in range(1 << bits)]


class Options(unittest.TestCase):
    sources = None
    work = None

    @classmethod
    def setUpClass(cls):
        cls.asked = cls.work / "asked"
        wrapper = cls.work / "pkg-config"
        wrapper.write_text(WRAPPER)
        wrapper.chmod(0o755)

    def run_command(self, *words, hidden=""):
        self.asked.write_text("")
        environment = dict(os.environ, PKG_CONFIG=str(self.work / "pkg-config"), HALAGE_HIDDEN=hidden,
                           HALAGE_ASKED=str(self.asked))
        return subprocess.run([str(w) for w in words], capture_output=True, text=True, env=environment)

    def configure(self, tree, hidden="", **options):
        words = [f"-DHALAGE_{name}={value}" for name, value in options.items()]
        (self.work / tree / "CMakeCache.txt").unlink(missing_ok=True)
        return self.run_command("cmake", "-G", "Ninja", "-S", self.sources, "-B", self.work / tree,
                                "-DHALAGE_TESTS=OFF", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_C_FLAGS=-O0 -Wno-format-truncation",
                                "-DCMAKE_CXX_FLAGS=-O0", *words, hidden=hidden)

    def test_combinations(self):
        built = 0
        for bits in gray(len(OPTIONS)):
            chosen = {name: "ON" if bits >> i & 1 else "OFF" for i, name in enumerate(OPTIONS)}
            with self.subTest(**chosen):
                begin = time.monotonic()
                done = self.configure("tree", **chosen)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                for name, module in MODULES.items():
                    if chosen.get(name) == "OFF":
                        self.assertNotIn(module, self.asked.read_text(), f"{name}=OFF is looked for")
                configured = time.monotonic()
                done = self.run_command("cmake", "--build", self.work / "tree")
                self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr)
                self.check_programs(chosen)
                built += 1
                print(f"options: {' '.join(f'{n}={v}' for n, v in chosen.items())}: configured "
                      f"{configured - begin:.1f} s, built {time.monotonic() - configured:.1f} s", flush=True)
        self.assertEqual(built, 16)

    def check_programs(self, chosen):
        """Each program runs, needs no library of a part that is OFF, and says what it has not."""
        bin_ = self.work / "tree" / "bin"
        libraries = {"OFI": "libfabric", "SIMGRID": "libsimgrid", "HWLOC": "libhwloc"}
        for program in ("halage", "halage-prefill", "halage-decode", "halage-sim"):
            done = subprocess.run([bin_ / program, "--version"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, f"{program}: {done.stderr}")
            needed = subprocess.run(["readelf", "-d", bin_ / program], capture_output=True, text=True).stdout
            for name, library in libraries.items():
                if chosen[name] == "OFF":
                    self.assertNotIn(library, needed, program)
            self.assertNotIn("libcuda", needed, program)
        demo = [bin_ / "halage", "demo", "--requests=2", "--decode-nodes=1"]
        if chosen["OFI"] == "ON":
            self.expect(demo, 0, "2 verified")
        else:
            self.expect(demo, 2, "built without libfabric; install it and configure with -DHALAGE_OFI=ON")
            self.expect([bin_ / "halage", "perf", "run", "--local"], 1, "built without libfabric; install it")
        topo = [bin_ / "halage", "topo"]
        if chosen["HWLOC"] == "ON":
            self.expect(topo, 0, "")
        else:
            self.expect(topo, 1, "built without hwloc; install it and configure with -DHALAGE_HWLOC=ON")
        simulate = [bin_ / "halage-sim", "check", self.sources / "scenarios" / "article" / "r1-1p3d.yaml"]
        if chosen["SIMGRID"] == "ON":
            self.expect(simulate, 0, "")
        else:
            self.expect(simulate, 1, "built without SimGrid; install it and configure with -DHALAGE_SIMGRID=ON")

    def expect(self, command, status, words):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertIn(words, done.stdout + done.stderr)
        if status != 0:
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_hidden(self):
        """What pkg-config does not know is refused when it is ON, and left out when it is AUTO."""
        hidden = " ".join(MODULES.values())
        for name, module in MODULES.items():
            done = self.configure("hidden", hidden=hidden, **{name: "ON"})
            self.assertNotEqual(done.returncode, 0)
            text = " ".join(done.stderr.split())
            self.assertIn(f"HALAGE_{name}=ON needs {module}", text)
            self.assertIn(f"install {PACKAGES[name]}, or configure with -DHALAGE_{name}=OFF", text)
        done = self.configure("hidden", hidden=hidden)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name, module in MODULES.items():
            self.assertIn(f"-- HALAGE_{name}: OFF, {module}", done.stdout)
            self.assertIn(f"is not found; to have it, install {PACKAGES[name]}", done.stdout)

    def test_bad_choice(self):
        done = self.configure("bad", OFI="maybe")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("HALAGE_OFI=maybe: must be AUTO, ON or OFF", " ".join(done.stderr.split()))
        done = self.configure("bad", MESSENGER="OFF")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("HALAGE_PROGRAMS=ON needs the messenger", " ".join(done.stderr.split()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources")
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    Options.sources = pathlib.Path(arguments.sources).resolve()
    Options.work = pathlib.Path(tempfile.mkdtemp(prefix="halage-options-"))
    try:
        unittest.main(argv=[sys.argv[0], *arguments.tests])
    finally:
        shutil.rmtree(Options.work)


if __name__ == "__main__":
    main()
