#!/usr/bin/env python3
"""docs/cases.md names tests: all of them exist, and so does what it names within them. docs/testing.md has one row for
each test, and none for others.

In the column "test" a name outside of parentheses is one of ctest's (`*` stands for any), or one that a
CMakeLists.txt adds where its libraries are. A name in parentheses is a function, fault, story or scenario in the files
of the test before it. Says which names do not exist, and in which row; then shows that it would notice one.
In docs/testing.md `-x` after a name is that name with another end, and NAME stands for any end.
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
    "ofi-": "tests/unit/test_ofi_*.c",
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


def built_names(build):
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True)
    return {test["name"] for test in json.loads(shown.stdout)["tests"]}


def ctest_names(build):
    names = built_names(build)
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


def described(text, names):
    """Yield what each row of the tables of tests describes: a name of `names`, or what it says where that is none."""
    inside = False
    for line in text.splitlines():
        inside = line.startswith("| test | proves |") or inside and line.startswith("|")
        listed = re.findall(r"`([\w-]+)`", line.split(" | ")[0]) if inside else []
        for name in listed:
            ends = [m.start() for m in re.finditer("-", listed[0])] if name.startswith("-") else []
            wholes = [listed[0][:end] + name for end in reversed(ends)] + [name]
            many = [known for known in names if name.endswith("-NAME") and known.startswith(name[:-4])]
            yield from many or [next((whole for whole in wholes if whole in names), name)]


def wrong_rows(text, names, built):
    """Yield a sentence for each test of docs/testing.md that has not exactly one row, or does not exist."""
    listed = list(described(text, names))
    for name in sorted(set(listed) | built):
        if name not in names:
            yield f"ctest knows no test {name}"
        elif listed.count(name) != 1:
            yield f"{name} has {listed.count(name)} rows"


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
    wrong = [f"docs/cases.md: {sentence}" for sentence in wrong]
    wrong += [f"docs/testing.md: {sentence}"
              for sentence in wrong_rows((ROOT / "docs/testing.md").read_text(), names, built_names(sys.argv[1]))]
    planted = "| test | proves | how |\n|---|\n| `a-b`, `-c` | x |\n| `a-b`; `e` | x |\n| `s-NAME` | x |\n"
    if len(list(wrong_rows(planted, {"a-b", "a-c", "d", "s-1"}, {"a-b", "a-c", "d", "s-1"}))) != 3:
        wrong.append("docs/testing.md: rows that are twice, missing or of no test are not noticed")
    for sentence in wrong:
        print(sentence)
    print(f"{len(found)} cases, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
