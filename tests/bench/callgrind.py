"""Instructions that functions of this project take, by callgrind."""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

TREE = re.compile(r"/(src|include|transports|tests)/")


def parse(path):
    """Own instructions by (file, function), and those of calls into other files, by the same keys."""
    own = collections.Counter()
    calls = collections.Counter()
    names = {}
    kind = file = function = target = None
    called = False
    target_file = None
    foreign = False  # the call goes into libfabric, which has no file names

    def name(text):
        match = re.match(r"\((\d+)\)(?: (.*))?$", text)
        if not match:
            return text
        if match[2] is not None:
            names[(kind, match[1])] = match[2]
        return names[(kind, match[1])]

    for line in path.read_text().splitlines():
        if re.match(r"[+\-*\d]", line):
            cost = int(line.split()[1])
            if called:
                calls[(file, function, target_file, target)] += cost
                called = False
                target_file = None
                foreign = False
            else:
                own[(file, function)] += cost
            continue
        key, _, value = line.partition("=")
        if key in ("fl", "fi", "fe"):
            kind = "file"
            inlined = name(value)
            if key == "fl":  # the function's own; the others are of what is inlined into it
                file = inlined
                target_file = None
        elif key == "fn":
            kind = "fn"
            function = name(value)
            target_file = None
        elif key in ("cfi", "cfl"):
            kind = "file"
            target_file = name(value)
        elif key == "cfn":
            kind = "fn"
            target = name(value)
        elif key in ("ob", "cob"):
            kind = "ob"
            used = name(value)
            if key == "cob":
                foreign = "libfabric" in used
        elif key == "calls":
            called = True
            if foreign:
                target_file = "libfabric"
            elif target_file is None:
                target_file = file
    return own, calls


def run(words, toggle, ours, over=None):
    """Runs a program. Returns what it prints, and instructions by function, of those files that `ours` finds and
    of what they call outside the tree, while function `toggle` runs; of each part that ends with function `over`,
    where one is named."""
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory) / "callgrind.out"
        result = subprocess.run(
            ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect={toggle}",
             f"--callgrind-out-file={out}", "--compress-pos=no", *([f"--dump-after={over}"] if over else []),
             *map(str, words)],
            capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"{words[0]}: {result.stdout}{result.stderr}")
        if over is None:
            return result.stdout, sum_up(out, ours)
        parts = len(list(pathlib.Path(directory).glob("callgrind.out.*")))
        return result.stdout, [sum_up(f"{out}.{i + 1}", ours) for i in range(parts)]


def sum_up(path, ours):
    own, calls = parse(pathlib.Path(path))
    total = collections.Counter()
    for (file, function), cost in own.items():
        if ours.search(file):
            total[function] += cost
    for (file, function, target_file, target), cost in calls.items():
        if ours.search(file) and not TREE.search(target_file) and "libfabric" not in target_file:
            total[target] += cost
    return total
