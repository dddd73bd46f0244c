"""verbs;ofi_rxm really run: the transport suite and `halage demo` over soft-RoCE, in a virtual machine.

An emulated machine (QEMU, no acceleration) boots Debian's kernel with the module rdma_rxe, which makes an RDMA
device of a network interface, and runs the programs of this build. Correctness only: it is some hundred times
slower than a device.

    run.py [--keep DIRECTORY] [--only NAME]...

Status 77 (skipped) where QEMU, busybox or the kernel's package is missing. The kernel is kept in $HALAGE_CACHE, or
build/cache.
"""

import argparse
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

import initramfs
import judge

BIN = pathlib.Path(os.environ["HALAGE_BIN_DIR"])
SOURCE = pathlib.Path(os.environ["HALAGE_SOURCE_DIR"])
CACHE = pathlib.Path(os.environ.get("HALAGE_CACHE", SOURCE / "build" / "cache"))
SKIPPED = 77
NODE = "10.0.0.1"
SLOWNESS = 10  # this machine against a real one
BOOT_S = 240
MEMORY_MIB = 2048
ENVIRONMENT = f"HALAGE_TEST_NODE={NODE} HALAGE_TEST_SLOWNESS={SLOWNESS} HALAGE_TEST_LOG=1"
SUITE = f"env {ENVIRONMENT} test-conformance-verbs"
DEMO = f"halage demo --provider 'verbs;ofi_rxm' --advertise {NODE} --insecure --layers 2 --lease-ms 120000"

JOBS = [
    judge.Job("device", 60, "rdma link", must_print=(r"link rxe0/1 state ACTIVE",)),
    judge.Job("conformance", 600, SUITE, suite_tests=30),
    # A check that fails in there fails out here.
    judge.Job("control", 60, f"{SUITE.replace(NODE, '10.0.0.2')} capabilities_are_plausible", must_fail=True),
    # Thrice: connecting took more than the 2 s of stall_ns on a machine that gets little processor. What is wrong or
    # crashes is so whenever it comes.
    judge.Job("demo", 600, f'sh -c "for try in 1 2 3; do {DEMO} --requests 4 --decode-nodes 1 && exit; done; exit 1"',
              must_print=(r"provider +verbs;ofi_rxm\n", r"4 verified, 0 mismatched, 0 failed",
                          r"(\d+) pieces counted, \1 expected"),
              must_not_print=(r"[1-9]\d* mismatched", r"killed by signal|[Aa]ssertion|Segmentation fault|Aborted")),
]
PROGRAMS = ["test-conformance-verbs", "halage", "halage-prefill", "halage-decode"]


def boot(work, place):
    """Boot and run all jobs. Returns what came over the serial line, also of a machine that had to be stopped."""
    limit = BOOT_S + sum(job.seconds for job in JOBS)
    # no_timer_check: a kernel that gets no processor for a while takes its timer for broken, and panics.
    words = [
        initramfs.which("qemu-system-x86_64", "qemu-system-x86"), "-accel", "tcg,thread=multi", "-cpu", "max",
        "-smp", "2", "-m", str(MEMORY_MIB), "-nographic", "-no-reboot", "-net", "none", "-nodefaults",
        "-serial", "stdio", "-kernel", str(next(place.glob("boot/vmlinuz-*"))), "-initrd", str(work / "initramfs.gz"),
        "-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check",
    ]
    with open(work / "serial.log", "wb") as serial:
        try:
            subprocess.run(words, stdin=subprocess.DEVNULL, stdout=serial, stderr=subprocess.STDOUT, timeout=limit,
                           check=False)
        except subprocess.TimeoutExpired:
            print(f"rxe: the machine was stopped after {limit} s")
    return (work / "serial.log").read_text(errors="replace")


def run(work, jobs):
    if platform.machine() != "x86_64":
        raise initramfs.Missing(f"the recipe is for x86_64, and this is {platform.machine()}")
    initramfs.which("qemu-system-x86_64", "qemu-system-x86")
    initramfs.which("busybox", "busybox-static")
    initramfs.rxe_driver()
    place = initramfs.kernel(CACHE)
    programs = [str(BIN / name) for name in PROGRAMS]
    initramfs.build(work / "initramfs.gz", place, programs, NODE, judge.script(jobs))
    text = boot(work, place)
    faults = judge.judge(jobs, text)
    if faults:
        print(text.replace("\r", ""))
    return 1 if faults else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=pathlib.Path, help="leave archive and serial line there")
    parser.add_argument("--only", action="append", choices=[job.name for job in JOBS],
                        help="run this job alone; may be given again")
    options = parser.parse_args()
    jobs = [job for job in JOBS if options.only is None or job.name in options.only]
    try:
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            return run(options.keep, jobs)
        with tempfile.TemporaryDirectory() as work:
            return run(pathlib.Path(work), jobs)
    except initramfs.Missing as missing:
        print(f"rxe: skipped: {missing}")
        return SKIPPED


if __name__ == "__main__":
    sys.exit(main())
