"""The simulator against a real run.

`halage demo` moves KV pages between four network namespaces shaped to 200 Mbit/s, once from one
prefill node to three decode nodes, once from three to one (incast). Its hand-overs, from submit to
READY at the decode node, are compared with those of a simulation of the same cluster: the same
arrivals and lengths, step times of that run, and NIC constants that a minimal loop of bare libfabric
measured over the same links. Nothing is fitted on hand-overs.

    test_reality.py [--report FILE] [--runs N] [--case NAME] [--keep DIRECTORY]

Status 77 (skipped) where there are no namespaces, or no tbf.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import typing

import netns

BIN = pathlib.Path(os.environ["HALAGE_BIN_DIR"])
SKIPPED = 77
NICE = -15
LOAD_MAX = 3.0  # processes that would run, on two processors: wait for less, a while
LOAD_WAIT_S = 10

# The model: much KV for little to compute, so that the network and not the processor is measured.
LAYERS, KV_HEADS, HIDDEN, HEAD_DIM = 64, 16, 8, 16
FLOAT_BYTES = 4
PAGE_TOKENS = 32
CONTEXT_TOKENS = 512  # NODE_CONTEXT_TOKENS
POOL_TOKENS = 10 * CONTEXT_TOKENS
CHUNK_TOKENS = 128
OUTPUT_TOKENS = 2
WINDOW = 64  # pieces under way to one peer: struct hlg_ofi_config
PIECE_BYTES = KV_HEADS * PAGE_TOKENS * HEAD_DIM * FLOAT_BYTES

REQUESTS = 30
LEAST_MS = 100
CONTROL = 0.75  # of the bandwidth: with so much less the comparison must fail
BURST = 3  # requests that come together: each shares a link, and no percentile lies on a step
SPREAD_MS = 150  # within which they come
GAP_MS = 600  # mean time between requests: 0.39 of the narrowest link, and each burst mostly alone


class Case(typing.NamedTuple):
    prefill: int  # nodes
    decode: int
    bound: float


CASES = {
    "1:3": Case(prefill=1, decode=3, bound=0.10),
    "3:1": Case(prefill=3, decode=1, bound=0.15),  # an incast
}


def median(values):
    return statistics.median(values)


def percentile(values, share):
    """Nearest rank, as the programs have it."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def stamp(ns):
    return f"2024-01-01 {ns // 3600_000_000_000:02}:{ns // 60_000_000_000 % 60:02}:" \
           f"{ns // 1_000_000_000 % 60:02}.{ns % 1_000_000_000:09}"


def write_trace(path, rows):
    """rows: (nanoseconds, prompt tokens)."""
    with open(path, "w") as out:
        out.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for at, tokens in rows:
            out.write(f"{stamp(at)},{tokens},{OUTPUT_TOKENS}\n")


def make_requests(seed):
    """One page or two each, few tokens in them; gaps between bursts of half to one and a half of the mean."""
    draw = random.Random(seed)
    at = 0
    rows = []
    while len(rows) < REQUESTS:
        for time_ns in sorted(at + int(SPREAD_MS * 1e6 * draw.random()) for _ in range(BURST)):
            rows.append((time_ns, draw.choice([2, 5, 9, 13, 33, 35]) + 1))
        at += int(BURST * GAP_MS * 1e6 * draw.uniform(0.5, 1.5))
    return rows


def wait_for_quiet():
    due = time.monotonic() + LOAD_WAIT_S
    while os.getloadavg()[0] > LOAD_MAX and time.monotonic() < due:
        time.sleep(1)


def go_first():
    """What is measured goes before whatever else this machine does: TCP's buffers hold some milliseconds of
    such a link, and a sender that wakes later leaves it idle. Where the kernel groups processes by session,
    it is the group that has a rank. Without the right to it, it does without."""
    os.setsid()
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
        pathlib.Path("/proc/self/autogroup").write_text(str(NICE))
    except OSError:
        pass


def run_program(*words, timeout=120):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=timeout, preexec_fn=go_first)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def measure_nic(hosts):
    return json.loads(run_program(BIN / "halage-nic-loop", hosts.places([0]), hosts.places([3]),
                                  PIECE_BYTES))


def run_demo(hosts, case, directory, seed):
    trace = directory / "demo.csv"
    result = directory / "demo.json"
    write_trace(trace, make_requests(seed))
    run_program(BIN / "halage", "demo", f"--prefill-nodes={CASES[case].prefill}",
                f"--decode-nodes={CASES[case].decode}",
                f"--netns={hosts.places(range(4))}", f"--layers={LAYERS}",
                f"--kv-heads={KV_HEADS}", f"--hidden={HIDDEN}", f"--page-tokens={PAGE_TOKENS}",
                f"--chunk-tokens={CHUNK_TOKENS}", "--source-tp=1", f"--requests={REQUESTS}",
                f"--trace={trace}", "--arrivals=trace", "--detail", f"--json={result}")
    return json.loads(result.read_text())


def write_steps(path, steps):
    """Mean time of each kind and size of step; of decode steps, the mean context too."""
    sizes = {}
    for step in steps:
        kind = step["kind"]
        count = step["tokens"] if kind == "prefill" else step["sequences"]
        context = round(step["context"]) if kind == "prefill" else 0
        sizes.setdefault((kind, count, context), []).append(step)
    with open(path, "w") as out:
        out.write("kind\ttokens\tcontext\ttime_us\n")
        for (kind, count, context), found in sorted(sizes.items()):
            time_us = statistics.mean(step["ended_ns"] - step["begun_ns"] for step in found) / 1e3
            out.write(f"{kind}\t{count}\t{context}\t{time_us:.3f}\n")


def scenario_text(case, nic):
    # Two bytes a value are the widest that a scenario has: twice the head's values are its bytes.
    engine = f"""
  gpu: H200
  tp: 1
  dp: 1
  ep: 1
  engine: none
  weights: bf16
  kv: bf16
  table: steps.tsv
  kv_tokens: {POOL_TOKENS}
  page_tokens: {PAGE_TOKENS}
  arrangement: HND
  requests_max: 512
  ingest: 0ns
  dispatch: 0ns"""
    return f"""schema: 1
name: reality
question: "Does the simulator say what a real cluster does?"
serving: disaggregated
model:
  name: tinylm
  attention: gqa
  weights: bf16
  layers: {LAYERS}
  hidden: {HIDDEN}
  heads: {4 * KV_HEADS}
  kv_heads: {KV_HEADS}
  head_dim: {HEAD_DIM * FLOAT_BYTES // 2}
  q_lora_rank: 0
  kv_lora_rank: 0
  qk_nope_head_dim: 0
  qk_rope_head_dim: 0
  v_head_dim: 0
  dense_layers: {LAYERS}
  dense_inter: {2 * HIDDEN}
  experts: 0
  topk: 0
  shared_experts: 0
  moe_inter: 0
  vocab: 512
  tied: false
  mtp_layers: 0
  max_context: {CONTEXT_TOKENS}
  window_layers: 0
  window_tokens: 0
prefill:
  nodes: {CASES[case].prefill}{engine}
  budget_tokens: {CHUNK_TOKENS}
  chunked: true
  prefix_cache: false
  forwards: 1
  layerwise: true
decode:
  nodes: {CASES[case].decode}{engine}
  sequences_max: 64
  kv_policy: reserve
  accept: []
  last_token: true
network:
  nic: plain
  bandwidth: {nic['bandwidth_bytes_s']}B/s
  line_rate: 25000000B/s
  operation: {nic['operation_ps']}ps
  latency: {nic['latency_ns']}ns
  pieces_max: {WINDOW}
  background: 0
  busy_factor: 1
  nics_per_gpu: 1
  fold: never
  pod_nodes: 0
  message: {nic['message_ns']}ns
  fence_domains: 1024
  context: {HIDDEN * FLOAT_BYTES}B
  page_flows: false
routing:
  prefill: round-robin
  decode: round-robin
traffic:
  source: trace
  trace:
    format: azure
    file: arrivals.csv
    requests: all
    speed: 1
measure:
  warmup: 0s
  warmup_requests: 0
  window: all
"""


def simulate(case, nic, real, directory):
    """Rows of the simulation, by request."""
    detail = real["detail"]
    requests = detail["requests"]
    write_steps(directory / "steps.tsv", detail["steps"])
    first = requests[0]["submitted_ns"]
    write_trace(directory / "arrivals.csv",
                [(r["submitted_ns"] - first, r["prompt_tokens"]) for r in requests])
    (directory / "scenario.yaml").write_text(scenario_text(case, nic))
    lines = run_program(BIN / "halage-simulate", directory / "scenario.yaml").splitlines()
    names = lines[0].split("\t")
    rows = [dict(zip(names, line.split("\t"))) for line in lines[1:]]
    (directory / "simulated.json").write_text(json.dumps(rows, indent=1))
    return sorted(rows, key=lambda row: int(row["request"]))


def compare(case, nic, real, directory):
    """Hand-overs of one run, measured and simulated, in ms."""
    requests = real["detail"]["requests"]
    rows = simulate(case, nic, real, directory)
    if real["verified"] != REQUESTS or len(rows) != REQUESTS:
        raise RuntimeError(f"{case}: {real['verified']} of {REQUESTS} verified, "
                           f"{len(rows)} simulated")
    for request, row in zip(requests, rows):
        nodes = (request["prefill_node"], request["decode_node"])
        if nodes != (int(row["prefill_node"]), int(row["decode_node"])):
            raise RuntimeError(f"{case}: request {request['number']} ran on nodes {nodes} and was "
                               f"simulated on others")
        if request["bytes"] != int(row["bytes"]):
            raise RuntimeError(f"{case}: request {request['number']} moved {request['bytes']} "
                               f"bytes, simulated {row['bytes']}")
    measured = [(r["ready_ns"] - r["submitted_ns"]) / 1e6 for r in requests]
    simulated = [(int(r["ready"]) - int(r["arrived"])) / 1e6 for r in rows]
    return measured, simulated


def run_once(hosts, case, index, directory):
    """One row of the table."""
    wait_for_quiet()
    begun = time.monotonic()
    real = run_demo(hosts, case, directory, seed=index + 1)
    nic = json.loads((directory.parent / "nic.json").read_text())
    slower = dict(nic, bandwidth_bytes_s=round(nic["bandwidth_bytes_s"] * CONTROL))
    _, control = compare(case, slower, real, directory)
    measured, simulated = compare(case, nic, real, directory)
    if min(measured) < LEAST_MS:
        raise RuntimeError(f"{case}: a hand-over of {min(measured):.1f} ms; at least {LEAST_MS}")
    row = {"measured": [percentile(measured, share) for share in (50, 90)],
           "simulated": [percentile(simulated, share) for share in (50, 90)],
           "control": [percentile(control, share) for share in (50, 90)],
           "load": os.getloadavg()[0],
           "apart": median([abs(s / m - 1) for m, s in zip(measured, simulated)])}
    print(f"{case} run {index + 1}: measured p50 {row['measured'][0]:.1f} p90 "
          f"{row['measured'][1]:.1f} ms; simulated {row['simulated'][0]:.1f} "
          f"{row['simulated'][1]:.1f} ms; request by request {100 * row['apart']:.1f} % apart "
          f"(median); load {row['load']:.1f}; {time.monotonic() - begun:.0f} s", flush=True)
    return row


def verdict(case, rows):
    """Medians over the runs, and the error of each percentile."""
    bound = CASES[case].bound
    lines = []
    for index, name in enumerate(("p50", "p90")):
        measured = median([row["measured"][index] for row in rows])
        simulated = median([row["simulated"][index] for row in rows])
        control = median([row["control"][index] for row in rows])
        lines.append({"case": case, "percentile": name, "measured": measured,
                      "simulated": simulated, "error": simulated / measured - 1, "bound": bound,
                      "control": control / measured - 1})
    return lines


def table(lines):
    text = ["| prefill : decode | percentile | measured ms | simulated ms | error | bound | error "
            f"with a link of {CONTROL:.2f} |",
            "|---|---|---|---|---|---|---|"]
    for line in lines:
        text.append(f"| {line['case']} | {line['percentile']} | {line['measured']:.1f} | "
                    f"{line['simulated']:.1f} | {100 * line['error']:+.1f} % | "
                    f"{100 * line['bound']:.0f} % | {100 * line['control']:+.1f} % |")
    return "\n".join(text)


def nic_text(nic):
    return (f"bandwidth {nic['bandwidth_bytes_s'] / 1e6:.2f} MB/s, operation "
            f"{nic['operation_ps'] / 1e6:.1f} us, write {nic['latency_ns'] / 1e3:.1f} us, message "
            f"{nic['message_ns'] / 1e3:.1f} us")


def run_all(hosts, options, root):
    nics = []
    for _ in range(3):
        wait_for_quiet()
        nics.append(measure_nic(hosts))
    nic = {key: round(median([one[key] for one in nics])) for key in nics[0]}
    (root / "nic.json").write_text(json.dumps(nic))
    print(f"minimal loop: {nic_text(nic)}", flush=True)
    rows = {case: [] for case in options.case or CASES}
    for index in range(options.runs):
        for case in rows:  # in turn, so that an hour's load is shared by all
            directory = root / f"{case.replace(':', '-')}.{index + 1}"
            directory.mkdir(exist_ok=True)
            rows[case].append(run_once(hosts, case, index, directory))
    return nic, [line for case, found in rows.items() for line in verdict(case, found)]


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", help="write the table into this file")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--keep", help="keep all files of the runs in this directory")
    return parser.parse_args()


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of what drops the hosts
    hosts = netns.Hosts(4)
    if not hosts.made:
        hosts.drop()
        print(f"skipped: shaped network namespaces cannot be made here: {hosts.reason}")
        return SKIPPED
    try:
        with tempfile.TemporaryDirectory() as scratch:
            root = pathlib.Path(options.keep or scratch)
            root.mkdir(exist_ok=True)
            nic, lines = run_all(hosts, options, root)
    finally:
        hosts.drop()
    print(table(lines))
    if options.report:
        text = pathlib.Path(options.report).read_text()
        begin, end = "<!-- table -->", "<!-- end -->"
        head, rest = text.split(begin)
        tail = rest.split(end)[1]
        pathlib.Path(options.report).write_text(
            f"{head}{begin}\nMinimal loop: {nic_text(nic)}.\n\n{table(lines)}\n{end}{tail}")
    wrong = [line for line in lines if abs(line["error"]) > line["bound"]]
    for line in wrong:
        print(f"{line['case']} {line['percentile']}: {100 * line['error']:+.1f} %, bound "
              f"{100 * line['bound']:.0f} %")
    blind = [line for line in lines if abs(line["control"]) <= line["bound"]]
    for line in blind:
        print(f"{line['case']} {line['percentile']}: a link of {CONTROL:.2f} of its bandwidth is not "
              "found out")
    return 1 if wrong or blind else 0


if __name__ == "__main__":
    sys.exit(main())
