#!/usr/bin/env python3
"""Claims of the article: run them and write reports/claims.tsv and reports/claims.md, or check that both
are what the programs make.

claims.py --write    run every cell (minutes), write both
claims.py --report   write reports/claims.md from reports/claims.tsv
claims.py --full     run every cell and compare both
claims.py --corner   run the corner and compare its rows; compare reports/claims.md with the TSV

HALAGE_BIN_DIR: where halage-claims is. What stands below the mark in reports/claims.md is kept."""

import difflib
import os
import pathlib
import subprocess
import sys

import claims_report

ROOT = pathlib.Path(__file__).resolve().parents[2]
TSV = ROOT / "reports/claims.tsv"
REPORT = ROOT / "reports/claims.md"


def run(*words):
    folder = pathlib.Path(os.environ.get("HALAGE_BIN_DIR", ROOT / "build/release/bin"))
    command = [folder / "halage-claims", *words, "scenarios/article"]
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    return result.stdout


def whole_report(table):
    text = claims_report.section(table.splitlines(keepends=True))
    old = REPORT.read_text(encoding="utf-8") if REPORT.exists() else ""
    _, mark, rest = old.partition(claims_report.END + "\n")
    return text + (rest if mark else "")


def differ(name, expected, made):
    pair = expected.splitlines(), made.splitlines()
    lines = list(difflib.unified_diff(*pair, name, "made", lineterm="", n=0))
    print("\n".join(lines[:40]))
    return bool(lines)


def check_report(table):
    return differ("reports/claims.md", REPORT.read_text(encoding="utf-8"), whole_report(table))


def check_corner():
    table = TSV.read_text(encoding="utf-8")
    known = set(table.splitlines())
    corner = run("--corner").splitlines()
    lost = [line for line in corner if line not in known]
    print(f"{len(corner)} lines, {len(lost)} of them not in reports/claims.tsv")
    print("\n".join(lost[:20]))
    return bool(lost) | check_report(table)


def main():
    if sys.argv[1:] == ["--corner"]:
        return check_corner()
    if sys.argv[1:] == ["--full"]:
        table = run()
        return differ("reports/claims.tsv", TSV.read_text(encoding="utf-8"), table) | check_report(table)
    if sys.argv[1:] == ["--write"]:
        TSV.write_text(run(), encoding="utf-8")
    elif sys.argv[1:] != ["--report"]:
        print(__doc__, file=sys.stderr)
        return 2
    REPORT.write_text(whole_report(TSV.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
