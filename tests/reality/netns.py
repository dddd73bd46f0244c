"""Hosts for a test: network namespaces, each with one link to a bridge in one more. Both ends of each
link are shaped, so that a host's way out and its way in have the same limit."""

import os
import shutil
import subprocess

RATE = "200mbit"
BURST = "32k"
QUEUE = "50ms"


class Hosts:
    """`count` hosts 0.. with names and addresses; made in __init__, dropped by drop()."""

    def __init__(self, count):
        tag = f"hlr{os.getpid()}"
        self.names = [f"{tag}n{i}" for i in range(count)]
        self.addresses = [f"10.78.0.{i + 1}" for i in range(count)]
        self.bridge = f"{tag}b"
        self.reason = ""
        self.made = self._make()

    def _run(self, *words):
        if self.reason:
            return
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            self.reason = f"'{' '.join(words)}': {done.stderr.strip()}"

    def _limit(self, name, device):
        self._run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", device, "root", "tbf",
                  "rate", RATE, "burst", BURST, "latency", QUEUE)

    def _make(self):
        for program in ("ip", "tc"):
            if shutil.which(program) is None:
                self.reason = f"no program '{program}'"
                return False
        self._run("ip", "netns", "add", self.bridge)
        self._run("ip", "-n", self.bridge, "link", "add", "bridge0", "type", "bridge")
        self._run("ip", "-n", self.bridge, "link", "set", "bridge0", "up")
        for index, (name, address) in enumerate(zip(self.names, self.addresses)):
            port = f"port{index}"
            self._run("ip", "netns", "add", name)
            self._run("ip", "link", "add", "link0", "netns", name, "type", "veth", "peer", "name",
                      port, "netns", self.bridge)
            self._run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "link0")
            self._run("ip", "-n", name, "link", "set", "lo", "up")
            self._run("ip", "-n", name, "link", "set", "link0", "up")
            self._run("ip", "-n", self.bridge, "link", "set", port, "master", "bridge0", "up")
            self._limit(name, "link0")
            self._limit(self.bridge, port)
        return not self.reason

    def places(self, order):
        """For --netns: the hosts in this order."""
        return ",".join(f"{self.names[i]}={self.addresses[i]}" for i in order)

    def drop(self):
        for name in [*self.names, self.bridge]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
