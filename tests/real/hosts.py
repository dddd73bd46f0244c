"""Two hosts in network namespaces of the run's own, joined by a veth pair or by a line (line.py)."""

import os
import pathlib
import shutil
import subprocess
import sys

LINE = pathlib.Path(__file__).resolve().parent / "line.py"


class Skip(Exception):
    """Why a scenario cannot be had here."""


def run(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode != 0:
        raise Skip(f"'{' '.join(map(str, words))}': {done.stderr.strip()}")


class Hosts:
    """Hosts a and b. `close()` drops them; use it as a context."""

    def __init__(self, lined):
        tag = f"hlk{os.getpid()}"
        self.a, self.b = f"{tag}a", f"{tag}b"
        self.address = {self.a: "10.79.0.1", self.b: "10.79.0.2"}
        self.line = None
        for program in ("ip", "tc", "nft"):
            if shutil.which(program) is None:
                raise Skip(f"no program '{program}'")
        try:
            for name in (self.a, self.b):
                run("ip", "netns", "add", name)
            if lined:
                self._lay_line()
            else:
                self._lay_veth()
        except Exception:
            self.close()
            raise

    def _lay_veth(self):
        run("ip", "link", "add", "link0", "netns", self.a, "type", "veth", "peer", "name", "link0",
            "netns", self.b)
        for name in (self.a, self.b):
            run("ip", "-n", name, "addr", "add", f"{self.address[name]}/24", "dev", "link0")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", "link0", "up")

    def _lay_line(self):
        if not os.path.exists("/dev/net/tun"):
            raise Skip("no /dev/net/tun")
        self.line = subprocess.Popen(
            [sys.executable, LINE, self.a, self.address[self.a], self.b, self.address[self.b]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.line.stdout.readline() != "up\n":
            raise Skip(f"no TUN line: {self.line.stderr.read().strip()[-200:]}")

    def tell(self, command):
        """A command for the line; done when this returns."""
        self.line.stdin.write(command + "\n")
        self.line.stdin.flush()
        if self.line.stdout.readline() != "done\n":
            raise RuntimeError(f"line: {command}: {self.line.stderr.read()}")

    def limit(self, rate):
        for name in (self.a, self.b):
            run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "link0", "root", "tbf",
                "rate", rate, "burst", "32k", "latency", "50ms")

    def drop(self, per_thousand):
        """Of the packets that come in, on either host."""
        rules = ("add table ip spoil; add chain ip spoil in { type filter hook input priority 0; }; "
                 f"add rule ip spoil in iifname link0 numgen random mod 1000 < {per_thousand} drop")
        for name in (self.a, self.b):
            run("ip", "netns", "exec", name, "nft", rules)

    def unplug(self, plugged):
        run("ip", "-n", self.a, "link", "set", "link0", "up" if plugged else "down")

    def close(self):
        if self.line is not None:
            self.line.stdin.close()
            self.line.wait(timeout=5)
        for name in (self.a, self.b):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
