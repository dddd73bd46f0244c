#!/usr/bin/env python3
"""The handshake of docs/protocol.md, from its words alone and in another language, gives its example."""
import hashlib
import os
import pathlib
import re
import struct
import sys

P = 2**255 - 19


def x25519(secret, point):
    """RFC 7748, section 5."""
    scalar = bytearray(secret)
    scalar[0] &= 248
    scalar[31] = scalar[31] & 127 | 64
    k = int.from_bytes(scalar, "little")
    u = int.from_bytes(point, "little") & (2**255 - 1)
    x2, z2, x3, z3, swap = 1, 0, u, 1, 0
    for t in reversed(range(255)):
        bit = k >> t & 1
        if swap ^ bit:
            x2, z2, x3, z3 = x3, z3, x2, z2
        swap = bit
        a, b = x2 + z2, x2 - z2
        aa, bb = a * a, b * b
        e = aa - bb
        da, cb = (x3 - z3) * a, (x3 + z3) * b
        x3, z3 = (da + cb) ** 2 % P, u * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def chacha20_block(key, counter, nonce):
    """RFC 8439, section 2.3."""
    def quarter(s, a, b, c, d):
        for one, two, three, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[one] = s[one] + s[two] & 0xFFFFFFFF
            x = s[three] ^ s[one]
            s[three] = (x << by | x >> (32 - by)) & 0xFFFFFFFF

    start = list(struct.unpack("<4I", b"expand 32-byte k") + struct.unpack("<8I", key)
                 + (counter,) + struct.unpack("<3I", nonce))
    s = start[:]
    for _ in range(10):
        for i in range(4):
            quarter(s, i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(s, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(s, start)))


def poly1305(key, text):
    """RFC 8439, section 2.5."""
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    sum_ = 0
    for at in range(0, len(text), 16):
        sum_ = (sum_ + int.from_bytes(text[at:at + 16] + b"\1", "little")) * r % (2**130 - 5)
    return ((sum_ + int.from_bytes(key[16:], "little")) % 2**128).to_bytes(16, "little")


def seal(key, count, frame):
    header = struct.pack("<IHH", 4 + len(frame) + 16, 1, 0x102)
    nonce = bytes(4) + struct.pack("<Q", count)
    stream = b"".join(chacha20_block(key, 1 + i, nonce) for i in range(len(frame) // 64 + 1))
    text = bytes(a ^ b for a, b in zip(frame, stream))

    def padded(b):
        return b + bytes(-len(b) % 16)

    tag = poly1305(chacha20_block(key, 0, nonce)[:32],
                   padded(header) + padded(text) + struct.pack("<QQ", len(header), len(text)))
    return header + text + tag


def greet(key, role, random, secret, node, incarnation):
    body = (struct.pack("<IHHI", 120, 1, 0x101, role) + random
            + x25519(secret, bytes([9]) + bytes(31)) + struct.pack("<QQ", node, incarnation))
    return body + hashlib.blake2b(b"halage greeting\0" + body, digest_size=32, key=key).digest()


def main():
    root = pathlib.Path(os.environ.get("HALAGE_SOURCE_DIR", "."))
    page = (root / "docs/protocol.md").read_text()
    found = {name: bytes.fromhex(body)
             for name, body in re.findall(r"```sealed (.*)\n([0-9a-f\s]+)```", page)}
    key = b"k" * 32
    drawn = bytes(range(128))
    dialling = greet(key, 1, drawn[:32], drawn[32:64], 0xABCD, 3)
    accepting = greet(key, 0, drawn[64:96], drawn[96:], 0x1234, 9)
    shared = x25519(drawn[96:], dialling[44:76])
    assert shared == x25519(drawn[32:64], accepting[44:76])
    keys = hashlib.blake2b(b"halage keys" + bytes(5) + dialling + accepting + shared,
                           digest_size=64, key=key).digest()
    heartbeat = bytes([4, 0, 0, 0, 1, 0, 9, 0])
    wanted = {
        "dialling greets": dialling,
        "accepting greets and proves": accepting + seal(keys[32:], 0, b""),
        "dialling proves": seal(keys[:32], 0, b""),
        "HEARTBEAT of the dialling side": seal(keys[:32], 1, heartbeat),
        "HEARTBEAT of the accepting side": seal(keys[32:], 1, heartbeat),
    }
    wrong = [name for name in wanted if found.get(name) != wanted[name]]
    for name in wrong:
        print(f"'{name}' of docs/protocol.md is not {wanted[name].hex(' ')}")
    return 1 if wrong or len(found) != len(wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
