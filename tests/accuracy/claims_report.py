"""The section that reports/claims.md opens with, from the rows of reports/claims.tsv."""

import textwrap

import claims_verdicts as v

END = "<!-- Above: tests/accuracy/claims.py --report. Below: by hand. -->"

ENGINES = {"sglang": "SGLang", "trtllm": "TensorRT-LLM"}


def prose(*pieces, indent=""):
    """One paragraph, or a bullet with its indent, as lines. "~" is a space that no line ends at."""
    lines = textwrap.wrap(
        " ".join(pieces),
        width=118,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("~", " ") for line in lines]


def share(verdicts):
    """How many hold of all, and of how many it is open."""
    verdicts = list(verdicts)
    held = verdicts.count(v.HOLDS)
    text = f"{held} of {len(verdicts)} ({100 * held / max(1, len(verdicts)):.0f} %)"
    still_open = verdicts.count(v.OPEN)
    return text + (f", open in {still_open}" if still_open else "")


def table(heading, rows):
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    return lines + ["| " + " | ".join(str(field) for field in row) + " |" for row in rows]


def column(grid, claim):
    return [cell[0][claim] for cell in grid.values()]


def letters(verdict, names):
    text = "".join(letter for claim, letter in names.items() if verdict[claim] == v.HOLDS)
    maybe = "".join(letter for claim, letter in names.items() if verdict[claim] == v.OPEN)
    return (text + (f"({maybe})" if maybe else "")) or "-"


def values(grid, position):
    return sorted({cell[position] for cell in grid})


def where(grid, claim, names):
    """In which values of each coordinate a claim holds."""
    cells = [cell for cell, content in grid.items() if content[0][claim] == v.HOLDS]
    if not cells:
        return "nowhere"
    parts = []
    for position, (name, tell) in enumerate(names):
        here = sorted({cell[position] for cell in cells})
        if len(here) < len(values(grid, position)):
            parts.append(f"{name} " + ", ".join(tell(value) for value in here))
    return "; ".join(parts) if parts else "each value of each coordinate has cells"


def number(value):
    return f"{value:.0f}"


R1_NAMES = [
    ("engine", lambda name: ENGINES[name]),
    ("draft tokens", number),
    ("prompts of", number),
    ("outputs of", number),
]


# ---- R1 ----


def r1_predicates():
    names = v.R1_CLAIMS
    return [
        *prose(
            "A run is 2000 requests, the first 200 not measured; equal GPUs (32), equal lengths, 3 requests/s for",
            "either cluster. A claim **holds** in a cell when the whole 95 % interval of its mean lies within its",
            "bounds, and is **open** when the interval lies across one. Open cells do not count as held.",
        ),
        "",
        *table(
            ["letter", "claim", "article"],
            [
                ["M", f"{names['mixed']} (mean of 1 / TPOT)", "du mal à dépasser régulièrement 50 TPS"],
                ["D", f"{names['decode']} (the same)", "supérieur à 90 TPS, 1 QPS par nœud de décodeur"],
                ["P", f"{names['prefill']}, and no queue grows", "un seul nœud de pré-remplissage"],
                ["T", f"{names['ttft']} against co-located nodes, neither overloaded", "environ 100 ms"],
            ],
        ),
        "",
        *prose(
            "T is the difference of the two mean TTFTs, for that is what the article compares: what its users came to",
            "wait longer than before. Beside it, as *parts*, the same bounds for what a co-located engine does not",
            "have: page wait, dispatch, exposed transfer, signal, wait for a step and the first step, less what the",
            "co-located nodes have of these.",
        ),
    ]


def r1_shares(grid):
    names = {**{claim: f"{letter}: {v.R1_CLAIMS[claim]}" for claim, letter in v.R1_LETTERS.items()}}
    names["joint_speed"] = "M, D and P together"
    names["joint_apart"] = "D, P and T together"
    names["joint"] = "**M, D, P and T together**"
    names["parts"] = "*parts* of the TTFT within the bounds of T"
    names["joint_parts"] = "M, D, P and *parts* together"
    names["gaps"] = (
        f"interruptions: co-located users have {v.GAPS_MIN:g} gap of 100 ms or more each, others none"
    )
    return table(
        ["claim", "holds in", "only with"],
        [
            [name, share(column(grid, claim)), where(grid, claim, R1_NAMES)]
            for claim, name in names.items()
        ],
    )


def r1_map(grid):
    outputs = values(grid, 3)
    rows = []
    for engine in values(grid, 0):
        for drafts in values(grid, 1):
            for prompt in values(grid, 2):
                cells = []
                for output in outputs:
                    verdict, apart, mixed = grid[engine, drafts, prompt, output]
                    cells.append(
                        f"{letters(verdict, v.R1_LETTERS)}: {mixed['tps']:.0f} / {apart['tps']:.0f}, "
                        f"{v.added(apart, mixed)[0]:+.0f}"
                    )
                rows.append([ENGINES[engine], f"{drafts:.0f}", f"{prompt:.0f}", *cells])
    return table(["engine", "drafts", "prompt", *[f"{output:.0f} out" for output in outputs]], rows)


def middle_and_worst(numbers):
    ordered = sorted(numbers)
    return ordered[len(ordered) // 2], ordered[-1]


def r1_intervals(grid):
    good = [(apart, mixed) for verdict, apart, mixed in grid.values() if verdict["prefill"] == v.HOLDS]
    apart = middle_and_worst(100 * row["tps_half"] / row["tps"] for row, _ in good)
    mixed = middle_and_worst(100 * row["tps_half"] / row["tps"] for _, row in good)
    near = [pair for pair in good if v.added(*pair)[0] < 2 * v.ADDED_MS[1]]
    added = middle_and_worst(v.added(*pair)[1] for pair in near)
    return prose(
        f"Half of a 95 % interval, in the middle and at worst, where P holds: {apart[0]:.1f} and {apart[1]:.1f} % of the",
        f"speed apart, {mixed[0]:.1f} and {mixed[1]:.1f} % of the speed co-located; {added[0]:.0f} and {added[1]:.0f} ms of",
        f"T where it is below {2 * v.ADDED_MS[1]:g} ms.",
    )


def r1_other_readings(rows):
    claims = ["mixed", "decode", "prefill", "ttft", "joint_speed", "joint"]
    return table(
        ["reading", "M", "D", "P", "T", "M D P", "M D P T"],
        [
            [name, *[share(column(grid, claim)) for claim in claims]]
            for name, grid in other_readings(rows)
        ],
    )


def gain(grid):
    """The cell with the greatest speed apart over speed co-located, of those that P holds in."""
    good = [cell for cell, content in grid.items() if content[0]["prefill"] == v.HOLDS]
    return max(good, key=lambda cell: grid[cell][1]["tps"] / grid[cell][2]["tps"])


def gain_line(what, grid):
    cell = gain(grid)
    _, apart, mixed = grid[cell]
    speeds = f"{mixed['tps']:.0f} against {apart['tps']:.0f} tokens/s"
    place = ", ".join(f"{name} {tell(cell[i])}" for i, (name, tell) in enumerate(R1_NAMES))
    return prose(
        f"- {what}: at most {apart['tps'] / mixed['tps']:.2f} ({speeds}; {place})", indent="  "
    )


def r1_distance(rows):
    base = v.r1(rows)
    good = [
        row
        for verdict, row, _ in base.values()
        if verdict["prefill"] == v.HOLDS and row["limit"] == "none"
    ]
    slower = sum(mixed["tps"] >= apart["tps"] for _, apart, mixed in base.values())
    parts = [row["handover"] for row in good if row["ttft"] < 1000]
    exposed = [row["exposed"] for row in good]
    return [
        *prose(
            f"In {slower} of {len(base)} cells co-located users are as fast or faster: at equal GPUs four nodes share the",
            "sequences that three have apart. The article's figures are a ratio of 1.6 and more (90 over 55). Where the",
            "prefill node keeps up, the ratio is",
        ),
        "",
        *gain_line("at 3 requests/s for both", base),
        *gain_line("with 1 request/s for each co-located node", v.r1(rows, deployment="r1-mixed-4")),
        "",
        *prose(
            f"The parts of a hand-over are {min(parts):.0f} to {max(parts):.0f} ms of the mean TTFT where that is",
            f"below a second, exposed transfer at most {max(exposed):.2f} ms of it: most of T is the queue of the one",
            "prefill node, which has the prompts of four.",
        ),
    ]


# ---- Controls ----


def control_row(name, base, controls, claim):
    held = [cell for cell, content in base.items() if content[0][claim] == v.HOLDS]
    fields = []
    survives = True
    for grid in controls.values():
        cells = [cell for cell in held if cell in grid]
        still = sum(grid[cell][0][claim] == v.HOLDS for cell in cells)
        fields.append(f"{still} of {len(cells)}" if cells else "-")
        survives = survives and (not cells or 2 * still >= len(cells))
    if not held:
        return [name, 0, *fields, "never held"]
    return [name, len(held), *fields, "**not discriminating**" if survives else "discriminating"]


def control_table(base, controls, names):
    return table(
        ["claim", "held in", *controls, "verdict"],
        [control_row(name, base, controls, claim) for claim, name in names.items()],
    )


CONTROL_TEXT = prose(
    "Of the cells in which a claim holds, those in which it holds still when something is taken away that it should",
    "rest on. A control breaks a claim when fewer than half of its cells are left; a claim that none breaks says",
    "nothing for the model: **not discriminating**.",
)


# ---- DP ----

DP_NAMES = [
    ("engine", lambda name: ENGINES[name]),
    ("draft tokens", number),
    ("prompts of", number),
    ("outputs of", number),
    ("prefill nodes", number),
]


def dp_shares(grid):
    names = {claim: f"{letter}: {v.DP_CLAIMS[claim]}" for claim, letter in v.DP_LETTERS.items()}
    names["joint"] = "**S, L and P together**"
    return table(
        ["claim", "holds in", "only with"],
        [
            [name, share(column(grid, claim)), where(grid, claim, DP_NAMES)]
            for claim, name in names.items()
        ],
    )


def dp_map(grid):
    rows = []
    outputs = values(grid, 3)
    for engine in values(grid, 0):
        for drafts in values(grid, 1):
            for prompt in values(grid, 2):
                cells = []
                for output in outputs:
                    verdict, row = grid[engine, drafts, prompt, output, max(values(grid, 4))]
                    told = f"{row['tps']:.1f}, {row['batch'] / 8:.0f}"
                    cells.append(f"{letters(verdict, v.DP_LETTERS)}: {told}")
                rows.append([ENGINES[engine], f"{drafts:.0f}", f"{prompt:.0f}", *cells])
    return table(["engine", "drafts", "prompt", *[f"{output:.0f} out" for output in outputs]], rows)


# ---- Qwen3-Coder ----


QWEN_TEXT = prose(
    "The article says \"environ 3\", and neither rates nor latencies. So: the rate that one prefill node and n",
    f"decode nodes serve with a mean TPOT at a limit and the prefill node at most {100 * v.BUSY_MAX:.0f} % busy, prompts",
    "of 4096 tokens; straight lines between the grid's rates, and its last one, 6/s, where no limit is reached. A",
    "split is best when that rate, divided by the 1 + n nodes, is. The claim holds where 1:3 has at least",
    f"{100 * v.SPLIT_SHARE_MIN:.0f} % of the best.",
)


def qwen_table(rates_table):
    rows = []
    for (output, limit), rates in rates_table.items():
        best, three = v.best_split(rates)
        verdict = "nothing serves" if best is None else f"1:{best}, 1:3 reaches {100 * three:.0f} %"
        held = v.qwen_verdicts({0: rates})[0] == v.HOLDS
        rows.append(
            [
                f"{output:.0f}",
                f"{limit:g} ms",
                *[f"{rates[split]:.2f}" for split in sorted(rates)],
                verdict,
                "holds" if held else "fails",
            ]
        )
    splits = sorted(next(iter(rates_table.values())))
    return table(["output", "TPOT", *[f"1:{split}" for split in splits], "best a node", "claim"], rows)


def qwen_controls(rows):
    base = v.qwen_verdicts(v.qwen(rows))
    wrap = {cell: ({"split": verdict},) for cell, verdict in base.items()}
    controls = {}
    for name, control in (("roofline", "roofline"), ("NIC 10 times slower", "nic/10")):
        verdicts = v.qwen_verdicts(v.qwen(rows, control))
        controls[name] = {cell: ({"split": verdict},) for cell, verdict in verdicts.items()}
    return control_table(wrap, controls, {"split": "1:3 is best, or within 5 % of it"})


def pieces_table(pieces):
    rows = []
    for source, target in sorted({key[1:] for key in pieces}, reverse=True):
        hnd, nhd = pieces["HND", source, target], pieces["NHD", source, target]
        rows.append([f"TP {source} to TP {target}", f"{hnd:,}", f"{nhd:,}", f"{nhd / hnd:g}"])
    return table(["ranks", "HND", "NHD", "NHD / HND"], rows)


# ---- The whole ----


def other_readings(rows):
    return [
        ("as above", v.r1(rows)),
        ("co-located at 4 requests/s: 1 for each node", v.r1(rows, deployment="r1-mixed-4")),
        ("co-located, steps of 2048 tokens", v.r1(rows, mixed="2048")),
        ("co-located, prompts not cut: decode stands still", v.r1(rows, mixed="whole")),
    ]


def r1_verdict(rows):
    readings = [column(grid, "joint").count(v.HOLDS) for _, grid in other_readings(rows)]
    base = v.r1(rows)
    if readings[0] == 0:
        text = "**Not jointly reproduced**: in no cell of the grid do all four claims hold"
    else:
        text = f"**Jointly reproduced in {readings[0]} of {len(base)} cells**"
    rest = max(readings[1:])
    return prose(
        f"- R1, 1 : 3 against co-located nodes. {text},",
        "nor under the other readings below." if rest == 0 else f"in up to {rest} under the other readings below.",
        f"One by one they hold: co-located nodes at or below {v.MIXED_TPS_MAX:g} tokens/s in",
        f"{share(column(base, 'mixed'))}; decode nodes above {v.DECODE_TPS_MIN:g} in {share(column(base, 'decode'))};",
        f"one prefill node is enough in {share(column(base, 'prefill'))}; about 100 ms more TTFT in",
        f"{share(column(base, 'ttft'))}. Without the first, the other three hold in",
        f"{share(column(base, 'joint_apart'))}.",
        indent="  ",
    )


def verdict_lines(rows, pieces):
    dp_grid = v.dp(rows)
    split = list(v.qwen_verdicts(v.qwen(rows)).values())
    best = {v.best_split(rates)[0] for rates in v.qwen(rows).values()} - {None}
    fewer = pieces["NHD", 4, 8] // pieces["HND", 4, 8]
    return [
        *r1_verdict(rows),
        *prose(
            "- R1, DP decode: about 50 tokens/s at 1 request/s for each of 8 ranks,",
            "**reproduced in part**:" if v.HOLDS in column(dp_grid, "joint") else "**not reproduced**:",
            f"{share(column(dp_grid, 'joint'))}; only with {where(dp_grid, 'joint', DP_NAMES)}.",
            indent="  ",
        ),
        *prose(
            "- Qwen3-Coder: three decode nodes are the best for one prefill node, or within 5 % of it, in",
            f"{share(split)} pairs of output and TPOT; the best goes from 1:{min(best)} to 1:{max(best)} with these two.",
            indent="  ",
        ),
        *prose(
            f"- HND: between equal ranks it saves nothing; between TP 4 and TP 8 it makes {fewer} times fewer writes",
            "than NHD.",
            indent="  ",
        ),
    ]


def section(lines):
    rows = v.read(lines)
    pieces = v.pieces(lines)
    base = v.r1(rows)
    r1_names = {claim: f"{letter}: {v.R1_CLAIMS[claim]}" for claim, letter in v.R1_LETTERS.items()}
    r1_names.update(joint_speed="M, D and P", joint="M, D, P and T", gaps="interruptions")
    dp_names = {claim: f"{letter}: {v.DP_CLAIMS[claim]}" for claim, letter in v.DP_LETTERS.items()}
    dp_names["joint"] = "S, L and P"
    parts = [
        ["# Claims of the article, simulated"],
        prose(
            "Do the deployments that the article describes do in the simulator what it says of them? Over all that it",
            "leaves open: the grids of `scenarios/article/`. Figures of each run are in `claims.tsv`; both are made by",
            "`python3~tests/accuracy/claims.py~--write` (four minutes of CPU) and tested by `claims` (every run) and",
            "`claims-corner`.",
        ),
        [lines[0].strip("# \n") + "."],
        ["## Verdicts"],
        verdict_lines(rows, pieces),
        ["## R1: one prefill node and three decode nodes, against four co-located ones"],
        r1_predicates(),
        r1_shares(base),
        prose(
            "Where: letters of the claims that hold (in brackets: open): tokens/s of a co-located user / of a user of",
            "the decode nodes, milliseconds that the mean TTFT grows by. Seconds: prefill or KV is overloaded.",
        ),
        r1_map(base),
        r1_intervals(base),
        ["Other readings of what the article leaves open:"],
        r1_other_readings(rows),
        r1_distance(rows),
        ["### Negative controls"],
        CONTROL_TEXT,
        control_table(base, v.r1_controls(rows), r1_names),
        ["## R1: eight DP ranks of one decode node"],
        dp_shares(v.dp(rows)),
        ["With four prefill nodes: letters, tokens/s of a user, sequences of a rank:"],
        dp_map(v.dp(rows)),
        prose(
            "Controls, as above; with four prefill nodes, but for the one without MTP, whose cells are the grid's own.",
            "The article says nothing of chunks here.",
        ),
        control_table(v.dp(rows), v.dp_controls(rows), dp_names),
        ["## Qwen3-Coder: decode nodes for one prefill node"],
        QWEN_TEXT,
        qwen_table(v.qwen(rows)),
        qwen_controls(rows),
        ["Writes for the KV of one prompt of 4096 tokens, pages of 64, all ranks (plans of the messenger itself):"],
        pieces_table(pieces),
        [END],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"
