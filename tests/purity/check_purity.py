#!/usr/bin/env python3
"""The core is pure, and every program holds the same object files of it.

1. The core linked by `ld -r` leaves no symbol undefined but mem* and hlg_assert_failed.
2. It holds no writable data: no .data, .bss or thread-local section with bytes in it.
3. Each program's functions of the core have, byte for byte, the code of those object files
   (relocated fields left out), and no second definition comes from elsewhere.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ALLOWED = re.compile(r"^(mem[a-z]+|hlg_assert_failed)$")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def undefined(path):
    return [line.split()[-1] for line in run("nm", "-u", str(path)).splitlines() if line.strip()]


def writable_bytes(path):
    found = []
    for line in run("size", "-A", str(path)).splitlines():
        fields = line.split()
        if len(fields) == 3 and re.match(r"^\.(data|bss|tdata|tbss)(\.|$)", fields[0]):
            # .data.rel.ro holds constant tables of pointers: written by the loader alone
            if int(fields[1]) > 0 and not fields[0].startswith(".data.rel.ro"):
                found.append(f"{fields[0]} {fields[1]} bytes")
    return found


def functions(path):
    """Names and sizes of the global functions of a file."""
    found = {}
    for line in run("nm", "-S", "--defined-only", str(path)).splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[2] == "T":
            found[fields[3]] = int(fields[1], 16)
    return found


def mnemonics(path, name):
    """Instructions of one function, operands left out: those are what linking changes."""
    text = run("objdump", "-d", "--no-show-raw-insn", f"--disassemble={name}", str(path))
    found = []
    for line in text.splitlines():
        match = re.match(r"^\s+[0-9a-f]+:\t(\S+)", line)
        if match:
            found.append(match.group(1))
    while found and found[-1] in ("nop", "nopw", "nopl", "xchg", "data16", "cs"):
        found.pop()  # padding between functions
    return found


def check_program(program, core, sizes):
    own = functions(program)
    missing = 0
    for name, size in sizes.items():
        if name not in own:
            missing += 1  # dropped or never linked
            continue
        if own[name] != size:
            return f"{program.name}: {name} has {own[name]} bytes, the core's object {size}"
        if mnemonics(program, name) != mnemonics(core, name):
            return f"{program.name}: {name} is not the core's object code"
    if missing == len(sizes):
        return f"{program.name}: holds no function of the core"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", required=True, help="directory of the core's object files")
    parser.add_argument("programs", nargs="+", help="programs that must hold the same code")
    options = parser.parse_args()
    objects = sorted(str(p) for p in pathlib.Path(options.objects).rglob("*.o"))
    faults = []
    if not objects:
        sys.exit(f"no object files under {options.objects}")
    with tempfile.TemporaryDirectory() as directory:
        core = pathlib.Path(directory) / "core.o"
        run("ld", "-r", "-o", str(core), *objects)
        faults += [f"core calls {s}" for s in undefined(core) if not ALLOWED.match(s)]
        faults += [f"core keeps state: {s}" for s in writable_bytes(core)]
        sizes = {n: s for n, s in functions(core).items()
                 if n.startswith(("hlg_prefill_handle", "hlg_decode_handle", "hlg_prefill_next",
                                  "hlg_decode_next", "hlg_plan_build", "hlg_wire_decode",
                                  "post_next", "post_taken", "layers_tick", "slots_open",
                                  "owners_take", "sessions_message", "cursor_seek"))}
        for program in options.programs:
            fault = check_program(pathlib.Path(program), core, sizes)
            faults += [fault] if fault else []
    for fault in faults:
        print(f"purity: {fault}")
    print(f"{len(objects)} objects, {len(sizes)} functions compared in "
          f"{len(options.programs)} programs")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
