#!/usr/bin/env python3
"""Real failures: processes of `halage node` that are killed, stopped and woken, restarted at the same address,
and joined by bad links. After each run: every token right, nothing late in a page that nobody asked for, no
hang, nothing left behind.

  real.py --list               the scenarios, numbered
  real.py --run N[,N...|N-N]   some of them, one after the other
  real.py --select quick|full  those of a tier of the tests
"""

import argparse
import sys
import time
import traceback

import links
import scenarios
import sources
from hosts import Skip
from world import Failure, World

PROVIDERS = ("net", "tcp;ofi_rxm")

# What each tier runs: every kind once in the full one.
TIERS = {
    "quick": [("kill-prefill", "tcp;ofi_rxm", "write,10"), ("restart-decode", "net", "writing,10"),
              ("zombie-prefill", "net", "first_posted,6"), ("broken-link", "net", "both"),
              ("stuck-prefill", "net", "writing,5"), ("kill-beside-sleeper", "tcp;ofi_rxm", "write,2")],
    "full": [("kill-prefill", "net", "first_posted,1"), ("kill-decode", "net", "imm,20"),
             ("kill-decode", "tcp;ofi_rxm", "whole,6"), ("zombie-prefill", "tcp;ofi_rxm", "writing,10"),
             ("zombie-decode", "net", "first_piece,1"), ("restart-prefill", "net", "accepted,2"),
             ("restart-decode", "tcp;ofi_rxm", "write,10"), ("kill-prefill-rank", "net", "write,10"),
             ("kill-decode-rank", "net", "first_piece,1"), ("zombie-prefill-rank", "net", "first_posted,1"),
             ("zombie-decode-rank", "net", "whole,3"), ("stuck-prefill", "tcp;ofi_rxm", "close,1"),
             ("few-pages", "net", "both"), ("bad-link", "net", "rate+drop=5"),
             ("bad-link", "net", "delay=20"), ("broken-link", "tcp;ofi_rxm", "ab"),
             ("vanished-prefill", "net", "write,12"), ("vanished-decode", "net", "write,12"),
             ("kill-source", "net", "writing,10"), ("zombie-source", "net", "first_posted,1"),
             ("kill-beside-zombie", "tcp;ofi_rxm", "writing,10"),
             ("kill-beside-sleeper", "net", "first_posted,1"),
             ("restart-decode-of-two", "net", "writing,10"), ("drain-source", "net", "100"),
             ("crash-decode", "net", "whole,2"), ("crash-decode", "tcp;ofi_rxm", "imm,5"),
             ("crash-decode", "tcp;ofi_rxm", "close,1")],
}
SKIPPED = 77


def table():
    """[(name, provider, step, function)], in an order that never changes but by growing."""
    rows = []
    for name, (function, steps) in {**scenarios.LOCAL, **links.LINKS, **sources.SOURCES,
                                    **scenarios.LATER}.items():
        for step in steps:
            rows += [(name, provider, step, function) for provider in PROVIDERS]
    return rows


def run(number, row, verbose):
    """Returns (verdict, seconds, text)."""
    name, provider, step, function = row
    begun = time.monotonic()
    world = World(provider, seed=1 + number)
    verdict, text = "passed", ""
    try:
        function(world, step)
        if verbose:
            text = world.logs()
    except Failure as failure:
        verdict, text = "failed", str(failure)
    except Skip as skip:
        verdict, text = "skipped", str(skip)
    except Exception:  # a fault of this program: told like any other
        verdict, text = "failed", traceback.format_exc() + world.logs()
    except KeyboardInterrupt:
        world.close()
        raise
    try:
        world.close()
    except Failure as failure:
        verdict, text = "failed", f"{text}\n{failure}"
    return verdict, time.monotonic() - begun, text


def numbers(text, count):
    chosen = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        chosen += range(int(first), int(last or first) + 1)
    if not chosen or min(chosen) < 1 or max(chosen) > count:
        raise ValueError
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--run", metavar="N")
    parser.add_argument("--select", choices=TIERS)
    parser.add_argument("--verbose", action="store_true", help="what the nodes said, of good runs too")
    arguments = parser.parse_args()
    rows = table()
    if arguments.list:
        for number, (name, provider, step, _) in enumerate(rows, 1):
            print(f"{number}\t{name}\t{provider}\t{step}")
        return 0
    if arguments.select:
        chosen = [1 + next(i for i, row in enumerate(rows) if row[:3] == wanted)
                  for wanted in TIERS[arguments.select]]
        return play(rows, chosen, arguments.verbose)
    try:
        chosen = numbers(arguments.run or "", len(rows))
    except ValueError:
        parser.error(f"--run: '{arguments.run}': write numbers from 1 to {len(rows)}, as in 1,5-9")
    return play(rows, chosen, arguments.verbose)


def play(rows, chosen, verbose):
    bad = skipped = 0
    for number in chosen:
        verdict, seconds, text = run(number, rows[number - 1], verbose)
        print(f"{number}\t{' '.join(rows[number - 1][:3])}\t{seconds:.1f} s\t{verdict}", flush=True)
        if text:
            print(text, flush=True)
        bad += verdict == "failed"
        skipped += verdict == "skipped"
    if bad:
        return 1
    return SKIPPED if skipped == len(chosen) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
