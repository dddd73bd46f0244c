#!/usr/bin/env python3
"""Print "passed failed skipped" of a JUnit report written by ctest."""

import sys
import xml.etree.ElementTree


def main():
    try:
        suite = xml.etree.ElementTree.parse(sys.argv[1]).getroot()
    except (IndexError, OSError, xml.etree.ElementTree.ParseError) as error:
        sys.exit(f"tools/count_tests.py: {error}")
    passed = failed = skipped = 0
    for case in suite.iter("testcase"):
        status = case.get("status")
        reason = case.find("skipped")
        if status == "run":
            passed += 1
        elif status == "disabled" or (
            reason is not None and reason.get("message", "").startswith("SKIP_")
        ):
            skipped += 1
        else:
            failed += 1  # failed, or could not be run at all
    print(passed, failed, skipped)


main()
