#!/usr/bin/env python3
"""Pairs of settings: every two values of every two factors meet in at least one demo of
covering_array.tsv, as far as the two sides can be planned at all; each demo must be verified. The
combinations of model, heads and sharding that cannot be planned must all be refused.

usage: covering_array.py --check | --refusals | --run | --generate
  --check     the file covers all pairs, with plannable rows only
  --refusals  each combination that cannot be planned ends with status 3 and the reason
  --run       run the rows
  --generate  print a new array, the same on every machine
"""

import collections
import itertools
import pathlib
import sys

FILE = pathlib.Path(__file__).with_name("covering_array.tsv")
ROWS_MAX = 80
REQUESTS = 12

# source TP : target TP : pools of a decode node
SHARDINGS = ["1:1:1", "4:4:1", "4:2:1", "2:4:1", "4:1:1", "1:4:1", "8:2:1", "3:2:1", "8:1:8"]
FACTORS = {
    "model": ["gqa", "mla"],
    "layout": ["hnd", "nhd"],
    "sharding": SHARDINGS,
    "kv_heads": ["2", "4", "6", "8"],
    "page_tokens": ["1", "16", "64"],
    "chunk_tokens": ["1", "7", "64", "unlimited"],
    "provider": ["net", "tcp;ofi_rxm"],
    "sources": ["1", "2"],
}
NAMES = list(FACTORS)
MLA_QUERY_HEADS = 8


def is_plannable(row):
    """By the rules of README and docs, not by the planner: heads and ranks divide one another."""
    source, target, pools = map(int, row["sharding"].split(":"))
    if source % int(row["sources"]) != 0:
        return False
    if row["model"] == "mla":
        return MLA_QUERY_HEADS % source == 0 and MLA_QUERY_HEADS % target == 0
    heads = int(row["kv_heads"])
    if pools > 1:
        return heads % source == 0 or source % heads == 0
    return all(heads % tp == 0 or tp % heads == 0 for tp in (source, target))


def pairs_of(row):
    return {((a, row[a]), (b, row[b])) for a, b in itertools.combinations(NAMES, 2)}


def all_rows():
    for values in itertools.product(*FACTORS.values()):
        row = dict(zip(NAMES, values))
        if is_plannable(row):
            yield row


def generate():
    """Greedy: always the row that covers the most pairs that are still open; of equal ones, that
    whose values were used least; of these, the first."""
    rows = [(row, pairs_of(row)) for row in all_rows()]
    still_open = set().union(*(pairs for _, pairs in rows))
    used = collections.Counter()
    chosen = []
    while still_open:
        row, pairs = max(
            rows, key=lambda r: (len(r[1] & still_open), -sum(used[item] for item in r[0].items()))
        )
        still_open -= pairs
        used.update(row.items())
        chosen.append(row)
    return chosen


def read():
    lines = FILE.read_text(encoding="utf-8").splitlines()
    if lines[0].split("\t") != NAMES:
        sys.exit(f"{FILE}:1: the factors are {NAMES}")
    return [dict(zip(NAMES, line.split("\t"))) for line in lines[1:]]


def check():
    rows = read()
    for number, row in enumerate(rows, 2):
        for name in NAMES:
            if row[name] not in FACTORS[name]:
                sys.exit(f"{FILE}:{number}: {name} '{row[name]}'")
        if not is_plannable(row):
            sys.exit(f"{FILE}:{number}: cannot be planned")
    wanted = set().union(*map(pairs_of, all_rows()))
    missing = wanted - set().union(*map(pairs_of, rows))
    if missing:
        sys.exit(f"{len(missing)} pairs are not covered, such as {sorted(missing)[0]}")
    if len(rows) > ROWS_MAX:
        sys.exit(f"{len(rows)} rows, at most {ROWS_MAX}")
    print(f"{len(rows)} rows cover {len(wanted)} pairs")


def options_of(row):
    source, target, pools = row["sharding"].split(":")
    return {
        "source_tp": source, "target_tp": target, "target_dp": pools, "decode_nodes": 1,
        **{name: row[name] for name in NAMES if name != "sharding"},
    }


def refusals():
    import demo

    failed = 0
    count = 0
    for model, heads, sharding in itertools.product(
        FACTORS["model"], FACTORS["kv_heads"], SHARDINGS
    ):
        row = {name: values[0] for name, values in FACTORS.items()}
        row.update(model=model, kv_heads=heads, sharding=sharding)
        if is_plannable(row):
            continue
        result = demo.run(requests=REQUESTS, **options_of(row))
        count += 1
        if result.status != demo.INFEASIBLE or "must divide" not in result.err:
            print(f"{model} heads {heads} sharding {sharding}: not refused: {result}")
            failed += 1
    print(f"{count} combinations, {failed} not refused")
    return 1 if failed else 0


def run():
    import demo

    failed = 0
    for number, row in enumerate(read(), 2):
        result = demo.run(requests=REQUESTS, seed=number, timeout=120, **options_of(row))
        values = result.json or {}
        good = (
            result.status == demo.DONE
            and values.get("verified") == REQUESTS
            and values["pieces_counted"] == values["pieces_expected"]
            and values["provider"] == row["provider"]
        )
        print(f"{'ok    ' if good else 'FAILED'} {result.seconds:5.1f} s", *row.values(), flush=True)
        if not good:
            print(result)
            failed += 1
    print(f"{failed} failed")
    return 1 if failed else 0


def main(words):
    if words == ["--check"]:
        check()
    elif words == ["--refusals"]:
        return refusals()
    elif words == ["--run"]:
        check()
        return run()
    elif words == ["--generate"]:
        print(*("\t".join(row) for row in [NAMES] + [r.values() for r in generate()]), sep="\n")
    else:
        sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
