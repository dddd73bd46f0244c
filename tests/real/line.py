#!/usr/bin/env python3
"""A line between two network namespaces that a test can spoil: two TUN devices and this process between them.

  line.py NETNS_A ADDRESS_A NETNS_B ADDRESS_B

Takes commands, a line each, on stdin, and answers each with a line:
  delay MS          of every packet from now on, each way
  cut ab|ba|both    packets that way vanish: a half-open link, or none
  heal              they no longer do
Ends with its stdin."""

import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 1, 0x1000, 0x40000000
PACKET = 65535


def enter(netns):
    with open(f"/run/netns/{netns}", encoding="ascii") as handle:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(handle.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {netns}")


def open_end(netns, address):
    enter(netns)
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", b"line0", IFF_TUN | IFF_NO_PI))
    for words in (f"addr add {address}/24 dev line0", "link set line0 mtu 9000 up txqueuelen 4000",
                  "link set lo up"):
        subprocess.run(["ip", *words.split()], check=True)
    return end


class Line:
    def __init__(self, ends):
        self.ends = ends
        self.delay, self.cut = 0.0, set()
        self.waiting, self.number = [], 0  # heap of (due, number, to, packet)

    def command(self, words):
        if words[0] == "delay":
            self.delay = float(words[1]) / 1000
        elif words[0] == "cut":
            self.cut = {"ab": {0}, "ba": {1}, "both": {0, 1}}[words[1]]
        elif words[0] == "heal":
            self.cut = set()
        print("done", flush=True)

    def take(self, side):
        """Packets that leave a side."""
        while True:
            try:
                packet = os.read(self.ends[side], PACKET)
            except BlockingIOError:
                return
            if side not in self.cut:
                self.number += 1
                heapq.heappush(self.waiting,
                               (time.monotonic() + self.delay, self.number, 1 - side, packet))

    def deliver(self):
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            _, _, to, packet = heapq.heappop(self.waiting)
            try:
                os.write(self.ends[to], packet)
            except OSError:
                pass  # as a full queue drops it

    def run(self):
        print("up", flush=True)
        pending = b""
        while True:
            limit = self.waiting[0][0] - time.monotonic() if self.waiting else None
            ready, _, _ = select.select([0, *self.ends], [], [], None if limit is None else max(0, limit))
            if 0 in ready:
                got = os.read(0, 4096)
                if not got:
                    return
                *lines, pending = (pending + got).split(b"\n")
                for line in lines:
                    self.command(line.decode().split())
            for side in (0, 1):
                if self.ends[side] in ready:
                    self.take(side)
            self.deliver()


def main():
    netns_a, address_a, netns_b, address_b = sys.argv[1:]
    Line([open_end(netns_a, address_a), open_end(netns_b, address_b)]).run()


main()
