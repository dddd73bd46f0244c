"""Two hosts: a prefill and a decode node in network namespaces of this test's own, joined by a veth
pair. Their endpoints must bind to addresses that lead to each other, never to loopback. Skipped
(status 77) where namespaces cannot be made."""

import os
import pathlib
import signal
import subprocess
import sys
import time

HALAGE = pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage"
TAG = f"hlg{os.getpid()}"
PREFILL, DECODE = f"{TAG}p", f"{TAG}d"
ADDRESS = {PREFILL: "10.77.0.1", DECODE: "10.77.0.2"}
SKIPPED = 77


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True).returncode == 0


def make_hosts():
    made = all(ip("netns", "add", name) for name in ADDRESS)
    made = made and ip("link", "add", f"{TAG}0", "netns", PREFILL, "type", "veth",
                       "peer", "name", f"{TAG}1", "netns", DECODE)
    for device, name in ((f"{TAG}0", PREFILL), (f"{TAG}1", DECODE)):
        made = made and ip("-n", name, "addr", "add", f"{ADDRESS[name]}/24", "dev", device)
        made = made and ip("-n", name, "link", "set", device, "up")
        made = made and ip("-n", name, "link", "set", "lo", "up")
    return made


def drop_hosts():
    for name in ADDRESS:
        ip("netns", "del", name)


def start(name, *words):
    return subprocess.Popen(["ip", "netns", "exec", name, HALAGE, "node", *words],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def pair(provider):
    """Both nodes; returns what each printed, and the decode side's status."""
    listen = f"{ADDRESS[PREFILL]}:7700"
    prefill = start(PREFILL, "prefill", f"--listen={listen}", f"--provider={provider}")
    lines = []
    for line in prefill.stdout:
        lines.append(line)
        if "listening" in line:
            break
    decode = start(DECODE, "decode", f"--connect={listen}", f"--provider={provider}",
                   "--requests=20")
    try:
        out, _ = decode.communicate(timeout=60)
    finally:
        prefill.send_signal(signal.SIGINT)
        rest, _ = prefill.communicate(timeout=20)
    return out, "".join(lines) + rest, decode.returncode


def main():
    if not make_hosts():
        drop_hosts()
        print("network namespaces cannot be made here")
        return SKIPPED
    try:
        for provider in ("net", "tcp;ofi_rxm"):
            begun = time.monotonic()
            out, log, status = pair(provider)
            if status != 0 or "20 verified" not in out:
                print(f"{provider}: status {status}\n{out}\n{log}")
                return 1
            print(f"{provider}: 20 verified over two hosts, {time.monotonic() - begun:.1f} s")
        anywhere = subprocess.run([HALAGE, "node", "prefill", "--listen=:0"], timeout=20,
                                  capture_output=True, text=True)
        if anywhere.returncode != 2 or "--advertise" not in anywhere.stderr + anywhere.stdout:
            print(f"--listen :0 without --advertise: status {anywhere.returncode}, "
                  f"{anywhere.stderr}")
            return 1
    finally:
        drop_hosts()
    return 0


if __name__ == "__main__":
    sys.exit(main())
