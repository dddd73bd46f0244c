"""Two hosts: a prefill and a decode node in network namespaces of this test's own, joined by a veth
pair. Their endpoints must bind to addresses that lead to each other, never to loopback. Skipped
(status 77) where namespaces cannot be made."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
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


def make_key(directory):
    path = pathlib.Path(directory) / "key"
    path.touch(mode=0o600)
    path.write_bytes(subprocess.run([HALAGE, "key"], check=True, capture_output=True).stdout)
    return path


def pair(provider, *trust):
    """Both nodes; returns what each printed, and the decode side's status."""
    listen = f"{ADDRESS[PREFILL]}:7700"
    prefill = start(PREFILL, "prefill", f"--listen={listen}", f"--provider={provider}", *trust)
    lines = []
    for line in prefill.stdout:
        lines.append(line)
        if "listening" in line:
            break
    decode = start(DECODE, "decode", f"--connect={listen}", f"--provider={provider}",
                   "--requests=20", *trust)
    try:
        out, _ = decode.communicate(timeout=60)
    finally:
        prefill.send_signal(signal.SIGINT)
        rest, _ = prefill.communicate(timeout=20)
    return out, "".join(lines) + rest, decode.returncode


def refused_without_a_key():
    """Neither side starts on an address that other hosts reach."""
    listen = f"{ADDRESS[PREFILL]}:7700"
    for name, *words in ((PREFILL, "prefill", f"--listen={listen}"),
                         (DECODE, "decode", f"--connect={listen}")):
        node = start(name, *words, "--provider=net")
        out, _ = node.communicate(timeout=30)
        if node.returncode != 2 or "not on loopback" not in out and "is not loopback" not in out \
                or "--key-file" not in out or "--insecure" not in out:
            print(f"{words} without a key: status {node.returncode}, {out}")
            return False
    return True


def main():
    with tempfile.TemporaryDirectory() as directory:
        return run(make_key(directory))


def run(key):
    if not make_hosts():
        drop_hosts()
        print("network namespaces cannot be made here")
        return SKIPPED
    try:
        if not refused_without_a_key():
            return 1
        for provider, trust in (("net", f"--key-file={key}"), ("tcp;ofi_rxm", f"--key-file={key}"),
                                ("net", "--insecure")):
            begun = time.monotonic()
            out, log, status = pair(provider, trust)
            if status != 0 or "20 verified" not in out:
                print(f"{provider}: status {status}\n{out}\n{log}")
                return 1
            print(f"{provider} {trust.split('=')[0]}: 20 verified over two hosts, {time.monotonic() - begun:.1f} s")
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
