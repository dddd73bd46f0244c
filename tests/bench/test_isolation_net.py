#!/usr/bin/env python3
"""What a dead and what a silent decode node cost the others, in real processes over `net`: one prefill node, eight
decode nodes that ask as fast as they are served. Requests that became READY are read from each node's /metrics: in a
while with all eight alive, in one with one of them killed, in one with another stopped. Prints each as a share of the
first. Only that the others are served on is asserted: here all nodes share the cores, so a dead one leaves the others
more. The bound of 95 % is tested in virtual time (`isolation`)."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request

BIN = pathlib.Path(os.environ.get("HALAGE_BIN_DIR") or pathlib.Path(__file__).resolve().parents[2] / "build/dev/bin")
NODES = 8
SECONDS = 3.0
SMALL = ["--layers=1", "--hidden=16", "--kv-heads=2", "--provider=net", "--metrics=0", "--lease-ms=1000"]
READY = re.compile(r'^halage_requests_total\{side="decode",status="completed"\} (\d+)$', re.M)


def start(*words):
    return subprocess.Popen([BIN / "halage", "node", *words, *SMALL], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def wait_for(process, pattern):
    for line in process.stdout:
        found = re.search(pattern, line)
        if found:
            return found.group(1)
    sys.exit(f"a node ended before it said {pattern!r}: status {process.wait()}")


def ready_of(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        return int(READY.search(reply.read().decode()).group(1))


def measure(ports):
    """READY requests a second of each node, over a while."""
    begin, before = time.monotonic(), [ready_of(port) for port in ports]
    time.sleep(SECONDS)
    after, seconds = [ready_of(port) for port in ports], time.monotonic() - begin
    return [(b - a) / seconds for a, b in zip(before, after)]


def run(processes):
    processes.append(start("prefill", "--listen=127.0.0.1:0"))
    port = wait_for(processes[0], r"listening on .*port (\d+)")
    processes += [start("decode", f"--connect=127.0.0.1:{port}", "--requests=1000000", "--in-flight=4")
                  for _ in range(NODES)]
    ports = [wait_for(process, r"metrics at http://127\.0\.0\.1:(\d+)/") for process in processes[1:]]
    deadline = time.monotonic() + 30
    while min(ready_of(port) for port in ports) < 20:
        if time.monotonic() > deadline:
            sys.exit("not all decode nodes were served within 30 s")
        time.sleep(0.2)
    whole = measure(ports)
    rows = [("all eight alive", whole, sum(whole[2:]))]
    processes[1].kill()
    rows.append(("one killed", measure(ports[1:]), None))
    os.kill(processes[2].pid, signal.SIGSTOP)
    rows.append(("another stopped", measure(ports[2:]), None))
    base = rows[0][2]
    for what, rates, _ in rows:
        others = rates[-(NODES - 2):]  # the six that nothing happens to
        print(f"{what:16} {sum(others):8.0f} requests/s of the six others, {100 * sum(others) / base:6.1f} %, "
              f"least served {min(others):.0f}")
        if min(others) == 0:
            sys.exit(f"with {what} some node was not served")
    return 0


def main():
    processes = []
    try:
        return run(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
