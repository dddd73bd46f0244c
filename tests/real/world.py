"""Real nodes for a test that kills them: processes, the steps at which they stop, what they leave behind.

A node stops itself (SIGSTOP) at a step of its protocol that `--plant stop:STEP,COUNT` names. From then on it
is the test's: killed, or left asleep beyond the lease and woken."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

BIN = pathlib.Path(os.environ.get("HALAGE_BIN_DIR") or
                   pathlib.Path(__file__).resolve().parents[2] / "build/dev/bin")
HALAGE = BIN / "halage"
SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"
# What libfabric's providers leak and race on is not ours: see the files.
ENVIRONMENT = {
    **os.environ,
    "LSAN_OPTIONS": f"suppressions={SUPPORT}/lsan.supp:print_suppressions=0",
    "TSAN_OPTIONS": f"suppressions={SUPPORT}/tsan.supp:halt_on_error=0:exitcode=66",
}
LEASE = 0.6
ASLEEP = 2.5 * LEASE  # longer than any lease
LIMIT = 15.0          # of a whole run
NODES_MAX = 6         # of one run
PORTS = 20            # that a node may bind
# Sanitizers take five to ten times as long: fewer requests then, over the same time.
SANITIZED = BIN.parent.name in ("asan", "tsan")
# A small model: what is tested is the messenger, and a sanitizer makes all of it slow. Few pages, so that each is
# given to many.
MODEL = ["--layers=3", "--hidden=32", "--kv-heads=2", "--pages=80"]


class Failure(Exception):
    """What went wrong, in words."""


def expect(truth, *what):
    if not truth:
        raise Failure(" ".join(str(word) for word in what))


def state_of(pid):
    """The letter of /proc: R, S, T (stopped), Z; None when it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def alive(pid):
    return state_of(pid) not in (None, "Z", "X")


def children(pid):
    try:
        return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def descriptors(pid):
    """How many a process has open; None when it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class World:
    """What one run starts. Everything is dead after close()."""

    def __init__(self, provider, seed):
        self.provider, self.seed = provider, seed
        self.begun = time.monotonic()
        self.due = self.begun + LIMIT
        self.directory = tempfile.TemporaryDirectory()
        self.key = pathlib.Path(self.directory.name) / "key"
        self.key.touch(mode=0o600)
        self.key.write_bytes(subprocess.run([HALAGE, "key"], check=True, capture_output=True).stdout)
        self.nodes = []
        self.seen = set()  # every process that was ever found
        # What others left there may bear the number that a process of ours gets.
        self.shared_before = set(os.listdir("/dev/shm"))
        # Ports that no other run has: below the ephemeral ones, by the process number.
        self.first_port = 10000 + os.getpid() % 180 * NODES_MAX * PORTS
        self.places = {}  # number of a node: which of the ranges is its

    def ports(self, number):
        """The first of the ports of a node, that no other number shares; the same again when it is restarted."""
        place = self.places.setdefault(number, len(self.places))
        expect(place < NODES_MAX, "more than", NODES_MAX, "nodes in a run")
        return self.first_port + place * PORTS

    def left(self):
        return max(0.01, self.due - time.monotonic())

    def wait(self, what, test, limit=None):
        """Until test() is true; returns what it gave."""
        due = min(self.due, time.monotonic() + (limit or 2 * LIMIT))
        while time.monotonic() < due:
            got = test()
            if got:
                return got
            time.sleep(0.005)
        raise Failure(f"{what}: not within the time\n{self.logs()}")

    def sleep(self, seconds):
        expect(self.left() > seconds, "no time left to sleep\n", self.logs())
        time.sleep(seconds)

    def logs(self):
        """What the nodes said, and how many seconds into the run: what a run that took too long spent them on."""
        return "\n".join(f"--- {node.title}\n{node.text(timed=True)}" for node in self.nodes)

    def close(self):
        for node in self.nodes:
            self.seen |= node.processes()
        for node in self.nodes:
            node.end()
        due = time.monotonic() + 5
        while [p for p in self.seen if alive(p)] and time.monotonic() < due:
            time.sleep(0.01)
        left = [p for p in self.seen if alive(p)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.directory.cleanup()
        named = [n for n in set(os.listdir("/dev/shm")) - self.shared_before
                 if any(n.startswith(f"{p}:") for p in self.seen)]
        expect(not left, "processes are left:", left)
        expect(not named, "shared memory is left:", named)


class Node:
    """A process of ours and what it says."""

    def __init__(self, world, title, words, netns=None):
        self.world, self.title = world, title
        self.out, self.lock = [], threading.Lock()
        enter = ["ip", "netns", "exec", netns] if netns else []
        self.process = subprocess.Popen(
            [*enter, HALAGE, "node", *map(str, words)], cwd=world.directory.name,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=ENVIRONMENT)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        world.nodes.append(self)

    def _read(self):
        for line in self.process.stdout:
            with self.lock:
                self.out.append((time.monotonic() - self.world.begun, line))

    def text(self, timed=False):
        with self.lock:
            return "".join(f"{at:5.2f} {line}" if timed else line for at, line in self.out)

    def processes(self):
        found, open_ = set(), [self.process.pid]
        while open_:
            pid = open_.pop()
            found.add(pid)
            open_ += [c for c in children(pid) if c not in found]
        return found

    def leader(self):
        """The process of the node itself, 0 when it is not there."""
        return 0

    def ranks(self):
        return children(self.leader())

    def wait_stopped(self):
        self.world.wait(f"{self.title} stops at its step",
                        lambda: self.leader() and state_of(self.leader()) == "T")
        self.world.seen |= self.processes()

    def kill(self):
        """-9, ranks and all that follows from it."""
        victims = {self.leader(), *self.ranks()}
        self.world.seen |= self.processes()
        os.kill(self.leader(), signal.SIGKILL)
        self.world.wait(f"{self.title} dies", lambda: not any(alive(p) for p in victims), 5)

    def resume(self):
        os.kill(self.leader(), signal.SIGCONT)

    def wait_end(self):
        left = self.world.left()
        try:
            status = self.process.wait(timeout=left)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.title} did not end in the {left:.1f} s that were left of the run's {LIMIT:.0f} s\n"
                          f"{self.world.logs()}") from None
        self.reader.join(timeout=5)
        return status

    def end(self):
        if self.process.poll() is None:
            for pid in self.processes():
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
        self.reader.join(timeout=5)


class Prefill(Node):
    def __init__(self, world, title="prefill", port=0, number=1, stop=None, host="127.0.0.1",
                 netns=None, **options):
        """number: of the node's identity, and of its ports."""
        words = ["prefill", f"--listen={host}:{port}", f"--provider={world.provider}",
                 f"--key-file={world.key}",
                 f"--lease-ms={int(LEASE * 1000)}", f"--node-id={number}", f"--seed={world.seed}",
                 f"--data-port={world.ports(number)}", *MODEL]
        words += [f"--plant=stop:{stop}"] if stop else []
        words += [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        super().__init__(world, title, words, netns)

    def leader(self):
        return self.process.pid

    def wait_up(self):
        """Returns the port that it listens on."""
        def port():
            found = re.search(r"port (\d+)$", self.text(), re.MULTILINE)
            expect(found or self.process.poll() is None, f"{self.title} ended\n{self.text()}")
            return found and int(found.group(1))
        self.port = self.world.wait(f"{self.title} comes up", port, 10)
        return self.port

    def finish(self):
        """Ctrl-C; all its pages must be free."""
        self.world.seen |= self.processes()
        os.kill(self.leader(), signal.SIGINT)
        status = self.wait_end()
        expect(status == 130, f"{self.title} ended with status {status}\n{self.text()}")
        found = re.search(r"(\d+) of (\d+) pages free", self.text())
        expect(found and found.group(1) == found.group(2), f"{self.title}: pages lost\n{self.text()}")


class Decode(Node):
    """The decode node, with the command that feeds it and verifies what it makes."""

    def __init__(self, world, connect, title="decode", number=11, requests=30, span=1.0, stop=None,
                 netns=None, **options):
        """requests come evenly over `span` seconds."""
        self.json = pathlib.Path(world.directory.name) / f"{title}.json"
        self.requests = requests = (requests + 1) // 2 if SANITIZED else requests
        words = ["decode", f"--connect={connect}", f"--provider={world.provider}", "--redial",
                 f"--key-file={world.key}",
                 "--guard", f"--lease-ms={int(LEASE * 1000)}", f"--node-id={number}",
                 f"--data-port={world.ports(number)}", f"--requests={requests}",
                 f"--json={self.json}", f"--seed={world.seed}", "--arrivals=trace",
                 f"--trace={self._trace(world, title, requests, span)}", *MODEL]
        words += [f"--plant=stop:{stop}"] if stop else []
        words += [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        super().__init__(world, title, words, netns)

    def _trace(self, world, title, requests, span):
        path = pathlib.Path(world.directory.name) / f"{title}.csv"
        rows, draw = ["TIMESTAMP,ContextTokens,GeneratedTokens"], world.seed * 2654435761 + 12345
        for i in range(requests):
            draw = (draw * 6364136223846793005 + 1442695040888963407) % 2**64
            at = i * span / requests
            rows.append(f"2023-11-16 18:00:{at:010.7f},{2 + (draw >> 33) % 200},{1 + (draw >> 50) % 6}")
        path.write_text("\n".join(rows) + "\n")
        return path

    def leader(self):
        return next((c for c in children(self.process.pid)
                     if command_of(c).startswith("halage-decode")), 0)

    def wait_up(self):
        self.world.wait(f"{self.title} comes up", lambda: "requests  " in self.text(), 10)

    def values(self):
        expect(self.json.exists(), f"{self.title} wrote no results\n{self.text()}")
        return json.loads(self.json.read_text())

    def crashed_in_provider(self):
        """tcp;ofi_rxm of libfabric 1.17 follows a null pointer when an endpoint is closed into which a write has
        come in part (docs/transport.md). Returns whether that ended the node, and waits for its end then. Any
        other crash is none that is known, nor one that left no last word."""
        if self.world.provider != "tcp;ofi_rxm" or self.wait_end() != 1:
            return False
        text = self.text()
        # A sanitizer says it instead of the node, and ends it.
        known = (re.search(r"^halage: decode node \d+: crashed \(SIGSEGV at 0x[0-9a-f]{1,3}\) inside '(close|free)' of "
                           r"its transport;", text, re.MULTILINE) and
                 re.search(r"decode node \d+ \(process \d+\) was killed by signal 11", text)) or \
            re.search(r"Sanitizer: SEGV on unknown address 0x0*[0-9a-f]{1,3} .*\n(.*\n){0,4}    #0 .*libfabric\.so.*\n"
                      r"(    #\d+ .*libfabric\.so.*\n)*    #\d+ .* in fi_close ", text)
        if known:
            print("#  the decode node crashed inside tcp;ofi_rxm, as is known of it", flush=True)
            expect(self.values()["mismatched"] == 0, f"{self.title}: wrong tokens\n{self.text()}")
        return bool(known)

    def expect_verified(self):
        """It ends well: every token right, every page back, no byte where none was asked for."""
        status = self.wait_end()
        expect(status == 0, f"{self.title} ended with status {status}\n{self.world.logs()}")
        values = self.values()
        expect(values["verified"] == self.requests and values["failed"] == 0 and
               values["mismatched"] == 0, f"{self.title}: {values}\n{self.text()}")
        for node in values["nodes"]:
            expect(node["pages_touched"] == 0, f"{self.title}: bytes landed late\n{self.text()}")
            expect(node["pages_poisoned"] == 0 and node["pages_free"] == node["pages"],
                   f"{self.title}: pages lost: {node}\n{self.text()}")
        return values

    def expect_killed(self):
        """Its node was killed: it ends by itself, without a wrong token."""
        status = self.wait_end()
        expect(status == 1, f"{self.title} ended with status {status}\n{self.text()}")
        if self.json.exists():  # not where it was not up yet
            expect(self.values()["mismatched"] == 0, f"{self.title}: wrong tokens\n{self.text()}")

    def was_dialled_again(self):
        redials = sum(node["redials"] for node in self.values()["nodes"])
        return redials >= 1 or "it is dialled again" in self.text()

    def expect_dialled_again(self):
        """Or the scenario would show nothing."""
        expect(self.was_dialled_again(), f"there was no second session\n{self.world.logs()}")

    def expect_one_session(self):
        """All was done without a redial, which would hide that a session ended. A sanitizer can be slower than the
        lease."""
        expect(SANITIZED or not self.was_dialled_again(), f"a session ended\n{self.world.logs()}")
