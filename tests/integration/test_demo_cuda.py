#!/usr/bin/env python3
"""`halage demo --memory cuda` over a double of libcuda: pages live in memory of a GPU that the CPU cannot follow,
ranks make it, the leader imports it, and everything is verified as with host memory. Then what fails: a fault in
that memory, each driver call, and machines on which it cannot be.

Classes: Cuda (quick), Calls (each call of the driver, full), Without (a build with HALAGE_CUDA=OFF)."""

import collections
import contextlib
import ctypes
import os
import pathlib
import tempfile
import unittest
import unittest.mock

import demo

DOUBLE = os.environ.get("FAKE_CUDA_DIR", "")
SMALL = {"layers": 2, "source_tp": 1, "decode_nodes": 1, "requests": 3, "provider": "net"}


class Machine:
    """A demo on a machine with the double's GPUs, and what the double says of each of its processes at the end."""

    def __init__(self, *words, environment=(), **values):
        self.directory = tempfile.TemporaryDirectory()
        self.report = pathlib.Path(self.directory.name) / "report"
        variables = {"LD_LIBRARY_PATH": DOUBLE, "FAKE_CUDA_REPORT": str(self.report), **dict(environment)}
        with unittest.mock.patch.dict(os.environ, variables):
            self.demo = demo.Demo("--memory=cuda", *words, **{**SMALL, **values})

    def finish(self):
        result = self.demo.finish()
        self.lines = self.report.read_text().splitlines() if self.report.exists() else []
        self.directory.cleanup()
        return result

    def ends(self):
        return [line for line in self.lines if line.startswith("end ")]

    def calls(self):
        """{call: how often the process that made it most made it}."""
        found = collections.Counter()
        for line in self.lines:
            if line.startswith("call "):
                _, name, made = line.split()
                found[name] = max(found[name], int(made))
        return found


def expect_nothing_left(test, machine, result):
    for end in machine.ends():
        test.assertTrue(end.startswith("end clean "), f"{end}\n{result}")


def expect_sentence(test, result, status, *parts):
    test.assertEqual(result.status, status, result)
    for part in parts:
        test.assertIn(part, result.err, result)


class Cuda(unittest.TestCase):
    def test_everything_is_verified(self):
        """Ranks on two GPUs; on the one that is named; on the one that is visible, which each process calls 0."""
        machines = {
            "two": Machine("--staged", "--verbose", layers=4, source_tp=2, target_tp=4, requests=6,
                           environment={"FAKE_CUDA_DELAY_US": "50"}),
            "named": Machine("--staged", "--verbose", "--device=1", model="mla", chunk_tokens=7),
            "visible": Machine("--staged", "--verbose", "--guard", source_tp=2, environment={"CUDA_VISIBLE_DEVICES": "1"}),
        }
        gpus = {"two": {0, 1}, "named": {1}, "visible": {0}}
        processes = {"two": 8, "named": 4, "visible": 5}
        for name, machine in machines.items():
            result = machine.finish()
            with self.subTest(name):
                demo.expect_verified(self, result, 6 if name == "two" else 3)
                self.assertEqual((result.json["memory"], result.json["staged"]), ("cuda", True), result)
                self.assertIsNone(result.json["flush"], result)
                self.assertIn("cuda, staged through pinned host memory", result.out)
                for gpu in range(2):
                    told = f"memory of gpu {gpu} is sent through" in result.err
                    self.assertEqual(told, gpu in gpus[name], result)
                expect_nothing_left(self, machine, result)
                self.assertEqual(len(machine.ends()), processes[name], result)  # none was killed
                self.assertGreater(machine.calls()["cuMemcpyHtoDAsync"], 0)

    def test_a_fault_in_memory_of_a_gpu_is_found(self):
        """`landed-after` is one that only the decode rank sees, when it reads its pages from the GPU."""
        kinds = {
            "landed": "rank 0, layer 1, plane 1\n", "landed-after": "logits of step 0 differ",
            "context": "context differs: pool 0, rank 0\n", "early-tick": "landed bytes differ",
        }
        machines = {kind: Machine("--staged", plant=f"{kind}:1,1,0") for kind in kinds}
        for kind, machine in machines.items():
            result = machine.finish()
            with self.subTest(kind):
                expect_sentence(self, result, demo.FAILED, kinds[kind])
                self.assertGreaterEqual(result.json["mismatched"], 1, result)

    def test_a_driver_call_fails(self):
        """Each call, and more often, in class Calls."""
        sentences = {
            "cuMemCreate:1:2": "rank 0 cannot make its memory: cuMemCreate failed with error 2",
            "cuMemImportFromShareableHandle:1:1": "memory of rank 0 cannot be taken: cuMemImportFromShareableHandle",
            "cuMemHostAlloc:1:2": "bytes of pinned host memory cannot be had",
            "cuMemcpyHtoD:2:999": "forward 1 failed: rank 0: its memory of GPU 0 cannot be written",
            "cuMemcpyDtoHAsync:2:999": "copies of gpu 0 fail: cuMemcpyDtoHAsync",
            "cuMemcpyHtoDAsync:2:999": "copies of gpu 0 fail: cuMemcpyHtoDAsync",
        }
        machines = {failure: Machine("--staged", environment={"FAKE_CUDA_FAIL": failure}) for failure in sentences}
        for failure, machine in machines.items():
            result = machine.finish()
            with self.subTest(failure):
                expect_sentence(self, result, demo.FAILED, sentences[failure])
                expect_nothing_left(self, machine, result)
                self.assertGreater(len(machine.ends()), 0, result)

    def test_what_cannot_be_is_said(self):
        cases = (
            (("--staged", "--device=2"), {}, demo.FAILED, "there is no GPU 2: this process sees 2, numbered from 0"),
            ((), {}, demo.FAILED, f"provider {demo.native_tcp()} cannot reach memory of GPUs here: add --staged"),
            (("--staged",), {"FAKE_CUDA_ATTRIBUTES": "103=0"}, demo.FAILED,
             "GPU 0 cannot share memory between processes (no POSIX descriptors of it): use memory of kind host"),
            (("--staged",), {"FAKE_CUDA_FAIL": "cuMemExportToShareableHandle:1:801"}, demo.FAILED,
             "this GPU or driver cannot do it: use memory of kind host, or a newer driver"),
            (("--staged",), {"FAKE_CUDA_FAIL": "cuPointerGetAttribute:1:1"}, demo.FAILED,
             "is not mapped on any GPU: add it after cuMemMap()"),
            (("--staged",), {"FAKE_CUDA_MISSING": "cuMemMap"}, demo.FAILED, "install driver 470 or newer"),
            (("--staged",), {"FAKE_CUDA_DEVICES": "0"}, demo.FAILED, "this process sees no GPU: check nvidia-smi"),
            (("--staged", "--memory=host"), {}, demo.BAD_INPUT, "--staged: is for memory of GPUs: add --memory cuda"),
            (("--device=0", "--memory=host"), {}, demo.BAD_INPUT, "--device: is for memory of GPUs: add --memory cuda"),
            (("--flush=read", "--memory=host"), {}, demo.BAD_INPUT, "--flush: is for memory of GPUs: add --memory cuda"),
            (("--staged", "--flush=read"), {}, demo.BAD_INPUT, "--flush: is for what NICs write to GPUs themselves"),
            (("--flush=rdma",), {}, demo.BAD_INPUT, "--flush: unknown policy 'rdma'; valid: auto none cuda read"),
            (("--memory=rocm",), {}, demo.BAD_INPUT, "--memory: unknown kind 'rocm'; valid: host cuda"),
            (("--device=-1",), {}, demo.BAD_INPUT, "--device: '-1': write a whole number, 0 to "),
        )
        machines = [Machine(*words, environment=environment) for words, environment, _, _ in cases]
        for machine, (_, _, status, sentence) in zip(machines, cases):
            result = machine.finish()
            with self.subTest(sentence):
                expect_sentence(self, result, status, sentence)
                self.assertEqual(result.err.count("\n"), 1, result)
                expect_nothing_left(self, machine, result)

    def test_no_driver(self):
        with contextlib.suppress(OSError):
            ctypes.CDLL("libcuda.so.1")
            self.skipTest("this machine has a CUDA driver")
        result = Machine("--staged", environment={"LD_LIBRARY_PATH": ""}).finish()
        expect_sentence(self, result, demo.FAILED, "there is no CUDA driver here", "install NVIDIA's driver")


class Calls(unittest.TestCase):
    # Of what a driver may lack, and of what frees: the run goes on, and all is verified.
    HARMLESS = {"cuGetErrorName", "cuEventDestroy", "cuStreamDestroy", "cuMemUnmap", "cuMemAddressFree", "cuMemRelease",
                "cuMemFreeHost", "cuDevicePrimaryCtxRelease", "cuCtxPopCurrent", "cuStreamSynchronize",
                "cuMemGetHandleForAddressRange"}

    def test_each_call_fails_in_turn(self):
        good = Machine("--staged")
        demo.expect_verified(self, good.finish(), SMALL["requests"])
        for call, made in sorted(good.calls().items()):
            for turn in sorted({1, (made + 1) // 2, made}):
                with self.subTest(call=call, turn=turn):
                    machine = Machine("--staged", environment={"FAKE_CUDA_FAIL": f"{call}:{turn}:999"})
                    result = machine.finish()
                    expect_nothing_left(self, machine, result)
                    self.assertIn(result.status, (demo.DONE, demo.FAILED), result)
                    if result.status == demo.DONE:
                        demo.expect_verified(self, result, SMALL["requests"])
                        reached = max(machine.calls()[call], 0) >= turn
                        self.assertTrue(call in self.HARMLESS or not reached, result)
                    else:
                        self.assertNotEqual(result.err, "")


class Without(unittest.TestCase):
    def test_the_build_says_so(self):
        result = demo.run("--memory=cuda", "--staged", **SMALL)
        expect_sentence(self, result, demo.FAILED, "built without CUDA memory; configure with -DHALAGE_CUDA=ON")


if __name__ == "__main__":
    unittest.main()
