"""What the article says of its deployments, as predicates over the rows of reports/claims.tsv.

A verdict on a cell of a grid is one of HOLDS, FAILS, OPEN: open where the 95 % interval of a mean lies on
both sides of a bound. Shares count HOLDS alone, so that what is open never counts for the article.
"""

import csv
import math

HOLDS, FAILS, OPEN = "holds", "fails", "open"

MIXED_TPS_MAX = 55.0  # "avait du mal à dépasser régulièrement 50 TPS", and a tenth
DECODE_TPS_MIN = 90.0  # "un débit supérieur à 90 TPS"
BUSY_MAX = 0.9  # "un seul nœud de pré-remplissage pouvait maintenir des tailles de lot constantes"
ADDED_MS = (50.0, 150.0)  # "une pénalité d'environ 100 ms pour le TTFT de chaque requête"
GAPS_MIN = 1.0  # "interruptions fréquentes du pré-remplissage de l'ordre de centaines de millisecondes"
DP_TPS = (40.0, 55.0)  # "TPS était légèrement inférieur à environ 50"
SPLIT_SHARE_MIN = 0.95  # "environ 3 nœuds de décodeurs à un seul nœud de pré-remplissage"
SPLIT = 3
TPOT_LIMITS_MS = (15.0, 20.0, 25.0, 30.0)  # ours: the article has none for Qwen3-Coder

TEXTS = {"deployment", "control", "engine", "limit"}


def read(lines):
    """Rows of a TSV without its comments, numbers as numbers."""
    rows = []
    for row in csv.DictReader((line for line in lines if not line.startswith("#")), delimiter="\t"):
        rows.append({key: value if key in TEXTS else float(value) for key, value in row.items()})
    return rows


def pieces(lines):
    """{(arrangement, prefill TP, decode TP): pieces of one prompt}."""
    table = {}
    for line in lines:
        if line.startswith("# pieces\t"):
            _, arrangement, source, target, count = line.rstrip("\n").split("\t")
            table[arrangement, int(source), int(target)] = int(count)
    return table


def within(low, high, bounds):
    """Whether an interval lies in the bounds."""
    if low >= bounds[0] and high <= bounds[1]:
        return HOLDS
    return FAILS if high < bounds[0] or low > bounds[1] else OPEN


def both(verdicts):
    """All hold; or one fails; or it is open."""
    verdicts = list(verdicts)
    if FAILS in verdicts:
        return FAILS
    return OPEN if OPEN in verdicts else HOLDS


def index(rows, deployment, control, keys):
    return {
        tuple(row[key] for key in keys): row
        for row in rows
        if row["deployment"] == deployment and row["control"] == control
    }


# ---- R1, 1 prefill node and 3 decode nodes, against 4 co-located ones ----

R1_KEYS = ("engine", "drafts", "prompt", "output")
R1_CLAIMS = {
    "mixed": f"a co-located user has at most {MIXED_TPS_MAX:g} tokens/s",
    "decode": f"a user of the decode nodes has more than {DECODE_TPS_MIN:g} tokens/s",
    "prefill": f"the one prefill node computes less than {100 * BUSY_MAX:.0f} % of the time",
    "ttft": f"the mean TTFT grows by {ADDED_MS[0]:g} to {ADDED_MS[1]:g} ms",
}
R1_LETTERS = {"mixed": "M", "decode": "D", "prefill": "P", "ttft": "T"}


def speed(row, bounds):
    return within(row["tps"] - row["tps_half"], row["tps"] + row["tps_half"], bounds)


def keeps_up(row):
    good = row["busy"] < BUSY_MAX and row["late"] == 0
    return HOLDS if good else FAILS


def added(apart, mixed):
    """Growth of the mean TTFT, and half of its interval, as of two runs that know nothing of each other."""
    return apart["ttft"] - mixed["ttft"], math.hypot(apart["ttft_half"], mixed["ttft_half"])


def ttft(apart, mixed):
    if apart["late"] or mixed["late"]:
        return FAILS
    mean, half = added(apart, mixed)
    return within(mean - half, mean + half, ADDED_MS)


def handover(apart, mixed):
    """The same of the parts that a co-located engine does not have."""
    mean = apart["handover"] - mixed["handover"]
    return within(mean, mean, ADDED_MS)


def r1_cell(apart, mixed):
    verdict = {
        "mixed": speed(mixed, (0.0, MIXED_TPS_MAX)),
        "decode": speed(apart, (DECODE_TPS_MIN, math.inf)),
        "prefill": keeps_up(apart),
        "ttft": ttft(apart, mixed),
    }
    verdict["joint"] = both(verdict[claim] for claim in R1_CLAIMS)
    verdict["parts"] = handover(apart, mixed)
    rest = [verdict[claim] for claim in ("mixed", "decode", "prefill")]
    verdict["joint_parts"] = both([*rest, verdict["parts"]])
    verdict["joint_speed"] = both(rest)
    verdict["joint_apart"] = both(verdict[claim] for claim in ("decode", "prefill", "ttft"))
    verdict["gaps"] = HOLDS if mixed["gaps"] >= GAPS_MIN and apart["gaps"] < 0.01 else FAILS
    return verdict


def r1(rows, apart="none", mixed="none", deployment="r1-mixed"):
    """{cell: (verdicts, row apart, row mixed)} with these controls on either side."""
    nodes_apart = index(rows, "r1", apart, R1_KEYS)
    nodes_mixed = index(rows, deployment, mixed, R1_KEYS)
    return {
        cell: (r1_cell(row, nodes_mixed[cell]), row, nodes_mixed[cell])
        for cell, row in nodes_apart.items()
        if cell in nodes_mixed
    }


def without_drafts(grid):
    """Each cell with what the grid has for it without MTP."""
    return {cell: grid[cell[0], 0.0, *cell[2:]] for cell in grid if (cell[0], 0.0, *cell[2:]) in grid}


def r1_controls(rows):
    return {
        "roofline": r1(rows, "roofline", "roofline"),
        "NIC 10 times slower": r1(rows, "nic/10", "none"),
        "no MTP": without_drafts(r1(rows)),
        "no chunks": r1(rows, "none", "whole"),
    }


# ---- R1, DP decode ----

# "les instances pouvaient gérer une charge de 1 QPS par rang"
DP_KEYS = ("engine", "drafts", "prompt", "output", "prefill")
DP_CLAIMS = {
    "speed": f"a user has {DP_TPS[0]:g} to {DP_TPS[1]:g} tokens/s",
    "load": "8 requests/s: no queue grows, and neither pages nor slots of the decode node are full",
    "prefill": f"the prefill nodes compute less than {100 * BUSY_MAX:.0f} % of the time",
}
DP_LETTERS = {"speed": "S", "load": "L", "prefill": "P"}


def dp(rows, control="none"):
    grid = {}
    for cell, row in index(rows, "dp", control, DP_KEYS).items():
        verdict = {
            "speed": speed(row, DP_TPS),
            "load": FAILS if row["late"] or row["limit"].startswith("decode") else HOLDS,
            "prefill": keeps_up(row),
        }
        verdict["joint"] = both(verdict.values())
        grid[cell] = (verdict, row)
    return grid


def dp_controls(rows):
    return {
        "roofline": dp(rows, "roofline"),
        "NIC 10 times slower": dp(rows, "nic/10"),
        "no MTP": without_drafts(dp(rows)),
    }


# ---- Qwen3-Coder ----


def crossing(points, limit):
    """Where the broken line through points (x, y), from below, first passes the limit; the last x if it does
    not; 0 if it begins above."""
    if points[0][1] > limit:
        return 0.0
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if y1 > limit:
            return x0 + (x1 - x0) * (limit - y0) / (y1 - y0)
    return points[-1][0]


def qwen(rows, control="none"):
    """{(output, TPOT limit): {decode nodes: requests/s that 1 + n nodes serve}}."""
    table = {}
    mine = [r for r in rows if r["deployment"] == "qwen" and r["control"] == control]
    outputs = sorted({row["output"] for row in mine})
    splits = sorted({row["decode"] for row in mine})
    for output in outputs:
        for limit in TPOT_LIMITS_MS:
            rates = {}
            for split in splits:
                line = sorted(
                    (r["rate"], math.inf if r["late"] else r["tpot"], r["busy"])
                    for r in mine
                    if r["output"] == output and r["decode"] == split
                )
                if not line:
                    continue
                finite = [(x, y if math.isfinite(y) else 2 * limit) for x, y, _ in line]
                busy = [(x, z) for x, _, z in line]
                rates[int(split)] = min(crossing(finite, limit), crossing(busy, BUSY_MAX))
            table[output, limit] = rates
    return table


def best_split(rates):
    """(best split, share of its rate a node that three decode nodes reach); None where nothing serves."""
    per_node = {split: rate / (1 + split) for split, rate in rates.items()}
    best = max(per_node, key=lambda split: (per_node[split], -split))
    if per_node[best] == 0:
        return None, 0.0
    return best, per_node.get(SPLIT, 0.0) / per_node[best]


def qwen_verdicts(table):
    return {
        cell: HOLDS if best_split(rates)[1] >= SPLIT_SHARE_MIN else FAILS
        for cell, rates in table.items()
    }
