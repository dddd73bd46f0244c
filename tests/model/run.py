#!/usr/bin/env python3
"""Check a Promela model, whole and with each of its guards removed.

usage: run.py MODEL            (handover or counter)
Prints for each configuration the states explored and "errors: 0"; for each guard removed the counterexample as
lines that say who did what. Fails when a whole model has an error, or a removed guard none.
Exit status: 0 as it should be, 1 not, 2 bad options, 77 when spin or gcc is not installed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
MEMORY_MB_MAX = 450  # of one search; two go at a time
SECONDS_MAX = 240

ONE = ["SOURCES=1", "FAULTS=2"]
FEW = ["SOURCES=1", "FAULTS=1"]
TWO = ["SOURCES=2", "FAULTS=0"]
PIECES = ["SOURCES=1", "FAULTS=1", "PIECES=2", "REQUESTS=1"]

MODELS = {
    "handover": {
        "whole": [ONE, TWO, FEW + ["ACKNOWLEDGED"], PIECES + ["ACKNOWLEDGED"],
                  TWO + ["REQUESTS=1", "ACKNOWLEDGED"], FEW + ["ACKNOWLEDGED", "SAYS_PLACED"]],
        # Either of two guards is enough here; the other one's removal is below.
        "still whole": [ONE + ["FENCED_OF_OLD_SESSION"]],
        "guards": [
            ("pages are returned at the first FENCED of two", TWO + ["FIRST_FENCED_IS_ENOUGH"]),
            ("FENCED is said while writes are outstanding", FEW + ["FENCED_WHILE_OUTSTANDING"]),
            ("FENCED is said though a write failed", FEW + ["FENCED_THOUGH_FAILED"]),
            ("FENCED of acknowledged writes is believed uncounted", FEW + ["ACKNOWLEDGED", "FENCED_UNCOUNTED"]),
            ("FENCED that awaits nothing is believed though writes are merely acknowledged",
             FEW + ["ACKNOWLEDGED", "SAYS_PLACED", "NOTHING_BELIEVED"]),
            ("CANCEL of a request that was SENT is answered as if nothing were on its way",
             FEW + ["ACKNOWLEDGED", "FORGOTTEN_UNCOUNTED"]),
            ("endpoints stay open when a session ends", FEW + ["NO_DOMAIN_CLOSE"]),
            ("immediates of any generation are counted", FEW + ["NO_GENERATION"]),
            ("CANCEL of a forgotten request of an older session is answered FENCED, and that is heeded",
             ONE + ["FENCED_OF_OLD_SESSION", "HEED_ANY_SESSION"]),
            ("the old session survives a new HELLO", FEW + ["OLD_SESSION_SURVIVES"]),
            ("REJECT is said after a write", FEW + ["REJECT_AFTER_WRITE"]),
            ("requests are told apart without the incarnation", FEW + ["NO_INCARNATION"]),
        ],
    },
    "counter": {
        "whole": [[]],
        "still whole": [],
        "guards": [
            ("a forward is aborted after a newer one stamped", ["ABORT_LATE"]),
            ("a chunk is announced after its forward stamped", ["CHUNK_LATE"]),
            ("values of forwards that were not announced count", ["UNANNOUNCED_COUNTS"]),
            ("commands are handled before values are taken out of their queue", ["COMMANDS_FIRST"]),
        ],
    },
}


def command(words, directory):
    return subprocess.run(words, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          timeout=SECONDS_MAX, text=True).stdout


def explore(model, macros, directory, shortest):
    """(errors, states, spin's words) of an exhaustive search, or of one for a short way to an error."""
    defines = ["-D" + macro for macro in macros + (["BREADTH_FIRST"] if shortest else [])]
    text = command(["spin", *defines, "-DQUIET", "-a", model], directory)
    # Breadth first finds the shortest counterexample; depth first takes less memory.
    text += command(["gcc", "-O0" if shortest else "-O2", "-w", "-DSAFETY", f"-DMEMLIM={MEMORY_MB_MAX}",
                     *(["-DBFS"] if shortest else ["-DNOREDUCE"]), "-o", "pan", "pan.c"], directory)
    if not os.path.exists(os.path.join(directory, "pan")):
        return None, 0, text
    text += command(["./pan", "-m20000", "-w22"], directory)
    os.remove(os.path.join(directory, "pan"))
    errors = re.search(r"errors: (\d+)", text)
    states = re.search(r"(\d+(?:\.\d+)?(?:e\+\d+)?) states, stored", text)
    whole = errors is not None and states is not None and not re.search("MEMLIM bound|depth too small", text)
    return (int(errors[1]) if errors and (whole or int(errors[1]) > 0) else None,
            int(float(states[1])) if states else 0, text)


def name_of(macros):
    return " ".join(macros) if macros else "as it is"


def check_whole(model, macros, directory):
    errors, states, text = explore(model, macros, directory, False)
    if errors != 0:
        return False, f"{text}\n{model} ({name_of(macros)}): " + (
            "not explored" if errors is None else f"errors: {errors}")
    return True, f"{model} ({name_of(macros)}): {states} states, errors: 0"


def check_guard(model, guard, macros, directory):
    errors, states, text = explore(model, macros, directory, True)
    if not errors:
        return False, f"{text}\nwithout the guard ({guard}): no counterexample in {states} states"
    # The trail is of the model that says nothing; a printf is one step as a skip is, so that it fits this one too.
    trail = command(["spin", *["-D" + macro for macro in macros + ["BREADTH_FIRST"]], "-t", model], directory)
    story = [line.strip() for line in trail.splitlines() if re.match(r"\s{6,}\S", line)]
    lines = [f"without the guard ({guard}): counterexample after {states} states"]
    lines += ["    " + line for index, line in enumerate(story) if index == 0 or line != story[index - 1]]
    return True, "\n".join(lines)


def check(job):
    model, guard, macros = job
    with tempfile.TemporaryDirectory() as directory:
        shutil.copyfile(os.path.join(HERE, model), os.path.join(directory, model))
        return check_guard(model, guard, macros, directory) if guard else check_whole(model, macros, directory)


def main():
    if len(sys.argv) == 2 and sys.argv[1] in ["-h", "--help"]:
        print(__doc__, end="")
        return 0
    if len(sys.argv) != 2 or sys.argv[1] not in MODELS:
        print("run.py: want one model, of: " + " ".join(MODELS) + " (see --help)", file=sys.stderr)
        return 2
    for program in ["spin", "gcc"]:
        if shutil.which(program) is None:
            print(f"run.py: {program} is not installed: tools/setup")
            return 77
    name = sys.argv[1]
    checks = MODELS[name]
    jobs = [(name + ".pml", None, macros) for macros in checks["whole"] + checks["still whole"]]
    jobs += [(name + ".pml", guard, macros) for guard, macros in checks["guards"]]
    good = []
    with ThreadPoolExecutor(2) as pool:
        for well, words in pool.map(check, jobs):
            print(words, flush=True)
            good.append(well)
    print(f"{name}: {sum(good)} of {len(good)} checks as they should be")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
