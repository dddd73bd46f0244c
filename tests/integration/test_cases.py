#!/usr/bin/env python3
"""docs/cases.md names tests: all of them exist, and so does what it names within them.

In the column "test" a name outside of parentheses is one of ctest's (`*` stands for any), or one that a
CMakeLists.txt adds where its libraries are. A name in parentheses is a function, fault, story or scenario in the files
of the test before it. Says which names do not exist, and in which row; then shows that it would notice one.
"""

import fnmatch
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = {  # of a test, by the beginning of its name; else test_NAME.*
    "conformance-": "tests/conformance/*.c",
    "failure-matrix": "tests/failure/*.tsv",
    "failure-stories": "tests/failure/stories_*.c",
    "fault": "tests/unit/test_fault*.c",
    "lobby": "tests/unit/test_lobby.c",
    "metrics": "tests/unit/test_messenger_metrics.c",
    "ofi": "tests/conformance/test_ofi.c",
    "real-": "tests/real/*.py",
    "replica": "tests/property/test_replica.c",
}
PLAIN = re.compile(r"none|the same|as [A-I]-\d\d")
IDS = {
    "trap": [str(i) for i in range(1, 31)],
    "id": ["D" + i for i in "1 2 3 4 6 7 9 10 11 13 14 16 17 18 19".split()],
    "A": "01 02 03 04 05 06 07 08 09 10 11 14 15 17 19 20 21 22",
    "B": "01 02 03 05 07 08 09 10 11 12 13 14 15 16 17 18 19",
    "C": "01 02 04 05 06 07 09 10 12 13 14 15 16 17 18 19 20 21 22 23 24",
    "D": "01 03 04 06 07 08 09 10 11 12 13",
    "E": "01 02 03 04 05 06 07 08 10 11 12 13 14",
    "F": "01 02 03 05 06 08 09 10 11 13 14 15 16 17",
    "H": "01 03 04 05 06 07 08",
    "I": "01 02 03 06 07 08",
}


def rows(text):
    """Yield (id, column "test", outcome) of each row of each table."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and cells[0] not in ("trap", "id", "case") and set(cells[0]) != set("-"):
            yield (*cells, "", "", "")[:4]


def ctest_names(build):
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True)
    names = {test["name"] for test in json.loads(shown.stdout)["tests"]}
    for path in ROOT.glob("**/CMakeLists.txt"):
        if build not in str(path):
            names.update(re.findall(r"\bNAME ([\w-]+)", path.read_text()))
            names.update(re.findall(r"halage_add_demo_test\(([\w-]+)", path.read_text()))
    return names


def words_of(test):
    """All words of the files of a test."""
    begins = [begin for begin in FILES if test.startswith(begin)]
    pattern = FILES[begins[0]] if begins else f"tests/**/test_{test.replace('-', '_')}.*"
    text = " ".join(path.read_text() for path in ROOT.glob(pattern))
    return set(re.findall(r"[A-Za-z_][\w-]*", text))


def wrong_in(row, names):
    """Yield a sentence for each name of a row that does not exist."""
    case, what, tests, outcome = row
    if not what or not outcome:
        yield f"{case}: a row has four columns"
    if "`" not in tests and not PLAIN.fullmatch(tests):
        yield f"{case}: names no test, and does not say none"
    for name, within in re.findall(r"`([^`]+)`(?: \(([^)]*)\))?", tests):
        if not any(fnmatch.fnmatchcase(known, name) for known in names):
            yield f"{case}: ctest knows no test {name}"
        for inner in re.findall(r"`([^`]+)`", within):
            if inner not in words_of(name):
                yield f"{case}: the files of {name} have no {inner}"


def main():
    found = list(rows((ROOT / "docs/cases.md").read_text()))
    names = ctest_names(sys.argv[1])
    wrong = [sentence for row in found for sentence in wrong_in(row, names)]
    wanted = IDS["trap"] + IDS["id"] + [f"{g}-{i}" for g in "ABCDEFHI" for i in IDS[g].split()]
    listed = [row[0] for row in found]
    wrong += [f"{case}: has no row" for case in wanted if case not in listed]
    wrong += [f"{case}: is not known, or has two rows" for case in set(listed) if listed.count(case) != wanted.count(case)]
    planted = ("X-01", "what", "`no-such-test` (`no_such_function`)", "outcome"), ("X-02", "what", "soon", "outcome")
    if sum(len(list(wrong_in(row, names))) for row in planted) != 3:
        wrong.append("names that do not exist are not noticed")
    for sentence in wrong:
        print(f"docs/cases.md: {sentence}")
    print(f"{len(found)} cases, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
