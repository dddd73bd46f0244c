"""Run `halage demo` and look at what it says. For the tests beside this file."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

BIN = pathlib.Path(os.environ["HALAGE_BIN_DIR"])
HALAGE = BIN / "halage"

# What the demo's own text calls its ends.
DONE, FAILED, BAD_INPUT, INFEASIBLE, INTERRUPTED = 0, 1, 2, 3, 130


class Result:
    """How a demo ended: status, JSON (None: not written), and both streams as text."""

    def __init__(self, status, values, out, err, seconds):
        self.status, self.json, self.out, self.err = status, values, out, err
        self.seconds = seconds

    def __str__(self):
        return f"status {self.status}, {self.seconds:.1f} s\n{self.out}\n{self.err}"


def native_tcp():
    """libfabric's name for its own endpoint over TCP: net before 1.18, tcp since. Either can be asked for."""
    line = subprocess.run([HALAGE, "doctor"], capture_output=True, text=True, timeout=60, check=False).stdout
    version = re.search(r" libfabric +version (\d+)\.(\d+),", line)
    return "net" if tuple(map(int, version.groups())) < (1, 18) else "tcp"


def options(**values):
    """source_tp=2 as --source-tp=2."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


class Demo:
    """A demo under way, in a directory of its own."""

    def __init__(self, *words, command=("demo",), **values):
        self.directory = tempfile.TemporaryDirectory()
        self.json = pathlib.Path(self.directory.name) / "result.json"
        self.begun = time.monotonic()
        wanted = [] if command[-1] == "prefill" else [f"--json={self.json}"]
        self.process = subprocess.Popen(
            [HALAGE, *command, *wanted, *options(**values), *words],
            cwd=self.directory.name, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )

    def finish(self, timeout=60):
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"no end within {timeout} s\n{out}\n{err}") from None
        seconds = time.monotonic() - self.begun
        values = json.loads(self.json.read_text()) if self.json.exists() else None
        self.directory.cleanup()
        return Result(self.process.returncode, values, out, err, seconds)

    def descendants(self):
        """Process ids below the demo, each with its command line."""
        found, parents = {}, [self.process.pid]
        while parents:
            parent = parents.pop()
            try:
                children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text()
            except FileNotFoundError:
                continue
            for child in map(int, children.split()):
                try:
                    found[child] = pathlib.Path(f"/proc/{child}/cmdline").read_text()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                parents.append(child)
        return found

    def find(self, text, rank=False, timeout=20):
        """The process whose command line has `text`: a node, or one of its ranks."""
        due = time.monotonic() + timeout
        while time.monotonic() < due:
            nodes = {p for p, line in self.descendants().items() if text in line}
            leaders = [p for p in nodes if parent_of(p) == self.process.pid]
            ranks = [p for p in nodes if parent_of(p) in leaders]
            if leaders and ranks:
                return ranks[0] if rank else leaders[0]
            time.sleep(0.01)
        raise AssertionError(f"no process with '{text}'")

    def wait_line(self, text, timeout=20):
        """Read stdout up to a line that has `text`; it is gone from finish() then."""
        due = time.monotonic() + timeout
        while time.monotonic() < due:
            line = self.process.stdout.readline()
            if text in line or line == "":
                return line
        raise AssertionError(f"no line with '{text}'")

    def signal(self, number):
        os.kill(self.process.pid, number)

    def interrupt(self):
        self.signal(signal.SIGINT)


def parent_of(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[1])


def alive(pids):
    """Those of the processes that still run; a zombie does not."""
    running = []
    for pid in pids:
        try:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if stat.rpartition(")")[2].split()[0] != "Z":
            running.append(pid)
    return running


def run(*words, timeout=60, **values):
    return Demo(*words, **values).finish(timeout)


def expect_verified(test, result, requests):
    """All requests verified, and all numbers consistent."""
    test.assertEqual(result.status, DONE, result)
    values = result.json
    test.assertEqual(values["requests"], requests, result)
    test.assertEqual(values["verified"], requests, result)
    test.assertEqual(values["completed"], requests, result)
    test.assertEqual(values["mismatched"] + values["failed"], 0, result)
    test.assertEqual(values["pieces_counted"], values["pieces_expected"], result)
    test.assertEqual(values["writes"], values["pieces_counted"], result)
    test.assertEqual(values["constant_outputs"], 0, result)
    test.assertGreater(values["kv_bytes"], 0, result)
