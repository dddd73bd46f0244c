#!/usr/bin/env python3
"""Shows that the tests look: each patch in patches/ breaks one rule of the library, and some test must notice.

A patch is a unified diff below a head of `key: value` lines: `breaks` (the invariant, I1 to I8, or another rule of
docs/protocol.md), `says` (what is wrong now, in a sentence) and `tests` (the ctest names to try, in order; `storm A-B`
runs these seeds). It is applied to a copy of the sources, and its tests are built and run, one by one, until one
fails: the mutant is killed. One that no test notices survives, which is a failure of the tests; so is one that does
not apply as it stands (another line number does no harm, changed lines around it do: it might break something else) or
does not compile. The unchanged copy must pass first. `--apply` only looks whether they apply, to the sources here.

Prints a line for each mutant and writes a table (--write) of mutant, what it breaks, the test and the seconds.
Exit status: 0 all killed, 1 some survived, 2 bad input, 77 nothing to build with, 130 interrupted.
"""

import argparse
import concurrent.futures
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HEAD_KEYS = ("breaks", "says", "tests")
RULES = re.compile(r"^(I[1-8]b?|R[0-9]+|transport|codec|security|limits)$")
BUILD_SECONDS = 600
TEST_SECONDS = 40  # a mutant that hangs is noticed too
LONG_TEST_SECONDS = 120
LONG_TESTS = re.compile(r"^(storm \d+-\d+|failure-matrix|plan-exhaustive)$")


class BadInput(Exception):
    pass


@dataclass
class Mutant:
    name: str
    path: Path
    breaks: str
    says: str
    tests: list


@dataclass
class Verdict:
    mutant: Mutant
    killer: str  # test, or "" for a survivor
    seconds: float
    trouble: str  # why it could not be judged, or ""


def read_mutant(path):
    head = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("--- "):
            break
        if not line.strip():
            continue
        key, colon, value = line.partition(": ")
        if not colon or key not in HEAD_KEYS:
            raise BadInput(f"{path}:{number}: want one of {', '.join(HEAD_KEYS)} and a value, not {line!r}")
        head[key] = value.strip()
    for key in HEAD_KEYS:
        if not head.get(key):
            raise BadInput(f"{path}: `{key}` is missing in its head")
    if not RULES.match(head["breaks"]):
        raise BadInput(f"{path}: breaks {head['breaks']!r}: want an invariant such as I1, or transport, codec, "
                       "security, limits")
    tests = [test.strip() for test in head["tests"].split(",")]
    return Mutant(path.stem, path, head["breaks"], head["says"], tests)


def read_mutants(names):
    mutants = [read_mutant(path) for path in sorted((HERE / "patches").glob("*.patch"))]
    if names:
        known = {mutant.name for mutant in mutants}
        for name in names:
            if name not in known:
                raise BadInput(f"no mutant {name}: there are {', '.join(sorted(known))}")
        mutants = [mutant for mutant in mutants if mutant.name in names]
    if not mutants:
        raise BadInput(f"no patches in {HERE / 'patches'}")
    return mutants


def call(arguments, seconds, where=None):
    """Status and output; -1 when it ran out of time. The whole process group goes with it."""
    process = subprocess.Popen(arguments, cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return -1, output
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise


class Copy:
    """A copy of the sources with a build of its own, used by one mutant at a time."""

    def __init__(self, where):
        self.source = where / "source"
        self.build = where / "build"
        self.commands = {}

    def prepare(self):
        self.source.mkdir(parents=True, exist_ok=True)
        files = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                               check=True, capture_output=True).stdout.split(b"\0")
        kept = set()
        for name in filter(None, map(os.fsdecode, files)):
            origin, copy = ROOT / name, self.source / name
            if not origin.is_file():
                continue
            kept.add(copy)
            if copy.is_file() and copy.read_bytes() == origin.read_bytes():
                continue  # keeps its time, so that what was built stays
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(origin, copy)
            shutil.copymode(origin, copy)
        for path in self.source.rglob("*"):
            if path.is_file() and path not in kept:
                path.unlink()
        status, output = call(["cmake", "-S", self.source, "-B", self.build, "-G", "Ninja", "-DCMAKE_C_COMPILER=gcc",
                               "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1",
                               "-DHALAGE_WERROR=OFF"],
                              BUILD_SECONDS)
        if status != 0:
            raise BadInput(f"the copy in {self.source} cannot be configured:\n{output}")
        for path in self.build.rglob("CTestTestfile.cmake"):
            for name, words in re.findall(r"^add_test\(\[=\[(.+?)\]=\] (.*)\)$", path.read_text(), re.MULTILINE):
                self.commands[name] = re.findall(r'"([^"]*)"', words)

    def command(self, test):
        if test.startswith("storm "):
            return [str(self.build / "bin" / "halage-storm"), "--seeds", test.split()[1]]
        if test not in self.commands:
            raise BadInput(f"no test {test} in this build")
        return self.commands[test]

    def targets(self, tests):
        names = {Path(word).name for test in tests for word in self.command(test)
                 if Path(word).parent == self.build / "bin"}
        return sorted(names)

    def make(self, tests):
        targets = self.targets(tests)
        return call(["ninja", "-C", self.build, "-j", "1", *targets], BUILD_SECONDS) if targets else (0, "")

    def run(self, test):
        environment = ["env", f"HALAGE_SOURCE_DIR={self.source}", f"HALAGE_BIN_DIR={self.build / 'bin'}",
                       f"LD_LIBRARY_PATH={self.build / 'fake_cuda'}"]  # the double of libcuda, for tests that need it
        seconds = LONG_TEST_SECONDS if LONG_TESTS.match(test) else TEST_SECONDS
        return call(environment + self.command(test), seconds, self.build)


def apply(mutant, source, *options):
    """Why a patch does not fit the sources, or ""."""
    status, output = call(["patch", "--batch", "--no-backup-if-mismatch", "--fuzz=0", *options, "-p1", "-d", source,
                           "-i", mutant.path], 60)
    return f"does not apply: {output.strip().splitlines()[-1]}" if status != 0 else ""


def check_apply(mutants):
    misfits = [(mutant, misfit) for mutant in mutants if (misfit := apply(mutant, ROOT, "--dry-run"))]
    for mutant, misfit in misfits:
        print(f"{mutant.name}: {misfit}: make it again from the sources as they are")
    print(f"{len(mutants) - len(misfits)} apply, {len(misfits)} not")
    return 1 if misfits else 0


def judge(copy, mutant):
    begin = time.monotonic()

    def verdict(killer, trouble=""):
        return Verdict(mutant, killer, time.monotonic() - begin, trouble)

    touched = re.findall(r"^\+\+\+ b/(\S+)", mutant.path.read_text(), re.MULTILINE)
    before = {name: (copy.source / name).read_bytes() for name in touched if (copy.source / name).is_file()}
    try:
        misfit = apply(mutant, copy.source)
        if misfit:
            return verdict("", misfit)
        for test in mutant.tests:  # each is built when it is its turn: most mutants die by the first
            status, output = copy.make([test])
            if status != 0:
                errors = [line for line in output.splitlines() if "error" in line] or ["no word why"]
                return verdict("", f"does not build: {errors[0]}")
            status, _ = copy.run(test)
            if status not in (0, 77):
                return verdict(test)
        return verdict("")
    finally:
        for name, content in before.items():
            (copy.source / name).write_bytes(content)
        for reject in copy.source.rglob("*.rej"):
            reject.unlink()


def widest(tests):
    """Of storms that begin with one seed only the longest: it runs the others' seeds too."""
    limits = {}
    for test in tests:
        begin, _, limit = test.removeprefix("storm ").partition("-")
        key = ("storm", begin) if test.startswith("storm ") else (test, "")
        limits[key] = max(limits.get(key, 0), int(limit) if key[0] == "storm" else 0)
    return sorted(f"storm {key[1]}-{limit}" if limit else key[0] for key, limit in limits.items())


def check_unchanged(copies, mutants):
    tests = widest({test for mutant in mutants for test in mutant.tests})

    def check(number):
        copy, mine = copies[number], tests[number::len(copies)]
        status, output = copy.make(mine)
        if status != 0:
            raise BadInput(f"the unchanged sources do not build:\n{output}")
        for test in mine:
            status, output = copy.run(test)
            if status not in (0, 77):
                raise BadInput(f"test {test} fails on the unchanged sources, so it cannot judge:\n{output[-2000:]}")

    with concurrent.futures.ThreadPoolExecutor(len(copies)) as pool:
        list(pool.map(check, range(len(copies))))


def judge_all(copies, mutants):
    idle = queue.SimpleQueue()
    for copy in copies:
        idle.put(copy)

    def one(mutant):
        copy = idle.get()
        try:
            return judge(copy, mutant)
        finally:
            idle.put(copy)

    with concurrent.futures.ThreadPoolExecutor(len(copies)) as pool:
        for number, verdict in enumerate(pool.map(one, mutants), 1):
            what = verdict.trouble or (f"killed by {verdict.killer}" if verdict.killer else "SURVIVED")
            print(f"[{number}/{len(mutants)}] {verdict.mutant.name} ({verdict.mutant.breaks}): {what}, "
                  f"{verdict.seconds:.1f} s", flush=True)
            yield verdict


def write_table(path, verdicts):
    rows = ["# tests/mutants/run.py --write: each mutant, what it breaks, the test that notices, seconds with its build",
            "mutant\tbreaks\tsays\ttest\tseconds"]
    rows += [f"{v.mutant.name}\t{v.mutant.breaks}\t{v.mutant.says}\t{v.killer or '-'}\t{v.seconds:.1f}"
             for v in verdicts]
    path.write_text("\n".join(rows) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help="by name; all when none is given")
    parser.add_argument("--list", action="store_true", help="print them and what they break")
    parser.add_argument("--apply", action="store_true", help="only look whether they apply to the sources here")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "mutants", help="copies (default build/mutants)")
    parser.add_argument("--jobs", type=int, default=2, help="copies at work at a time (default 2)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table there")
    options = parser.parse_args()
    if not 1 <= options.jobs <= 64:
        raise BadInput(f"--jobs {options.jobs}: want 1..64")
    mutants = read_mutants(options.mutants)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name}\t{mutant.breaks}\t{mutant.says}")
        return 0
    for tool in ("patch",) if options.apply else ("cmake", "ninja", "gcc", "patch", "git"):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is not installed")
            return 77
    if options.apply:
        return check_apply(mutants)
    copies = [Copy(options.work / str(i)) for i in range(min(options.jobs, len(mutants)))]
    for copy in copies:
        copy.prepare()
    check_unchanged(copies, mutants)
    verdicts = list(judge_all(copies, mutants))
    if options.write:
        write_table(options.write, verdicts)
    killed = sum(1 for verdict in verdicts if verdict.killer)
    print(f"{killed} killed, {len(verdicts) - killed} not")
    return 0 if killed == len(verdicts) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BadInput as error:
        print(f"tests/mutants/run.py: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
