#!/usr/bin/env python3
"""Check C files against the house rules of docs/STYLE.md that no compiler checks.

usage: tools/house_rules.py FILE ...   (paths from the root of the sources)
Prints "file:line: what is wrong" and exits 1 if a rule is broken.
"""

import re
import sys

FUNCTION_LINES_MAX = 70

BANNED = "strcpy|strcat|sprintf|gets|atoi|rand|time|usleep|alloca"
BANNED_IN_CORE = "malloc|calloc|realloc|aligned_alloc|free"

TOKEN = re.compile(
    r"/\*.*?\*/|//[^\n]*"  # comments
    r'|"(?:\\.|[^"\\\n])*"'  # strings
    r"|'(?:\\.|[^'\\\n])*'",  # characters
    re.DOTALL,
)


def blank(match):
    """Spaces in place of comments and literals; the lines stay where they are."""
    return re.sub(r"[^\n]", " ", match.group())


def calls(names, line):
    """Names called in the line; a member (`clock->time(`) is not a call of the function."""
    return re.findall(rf"(?<![\w.])(?<!->)({names})\s*\(", line)


def function_lengths(lines):
    """Yield (index of the first line, lines) of each function, by the braces in column 0."""
    begin = None
    for index, line in enumerate(lines):
        if line.rstrip() == "{":
            begin = index
            while begin > 0 and not re.search(r"^\s*$|^#|[;}]\s*$", lines[begin - 1]):
                begin -= 1
        elif line.startswith("}") and begin is not None:
            yield begin, index - begin + 1
            begin = None


def check(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    lines = TOKEN.sub(blank, text).split("\n")
    in_core = path.startswith("src/core/")
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if re.search(r"\b(TODO|FIXME|XXX)\b", line) and not re.search(r"#\d+", line):
            found.append((number, "TODO without an issue number"))
    for number, line in enumerate(lines, 1):
        for name in calls(BANNED, line):
            found.append((number, f"{name}() is banned"))
        for name in calls(BANNED_IN_CORE, line) if in_core else []:
            found.append((number, f"{name}() in the core"))
        if in_core and re.search(r"\bdouble\b", line):
            found.append((number, "double in the core"))
    for begin, length in function_lengths(lines):
        if length > FUNCTION_LINES_MAX:
            found.append((begin + 1, f"function of {length} lines, at most {FUNCTION_LINES_MAX}"))
    for number, what in sorted(found):
        print(f"{path}:{number}: {what}")
    return len(found)


def main():
    sys.exit(1 if sum(check(path) for path in sys.argv[1:]) else 0)


main()
