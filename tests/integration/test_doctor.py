#!/usr/bin/env python3
"""`halage doctor` over small trees of /proc, /sys and /dev: two machines that are in order (EFA, ConnectX with RoCE),
on which every line says ok, then one thing changed at a time, and the line that it is about says so and gives the fix,
while no other line changes its mind."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

HALAGE = pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage"

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n"
LIMITS = ("Limit                     Soft Limit           Hard Limit           Units     \n"
          "Max file size             unlimited            unlimited            bytes     \n"
          "Max locked memory         {:<20} unlimited            bytes     \n"
          "Max address space         unlimited            unlimited            bytes     \n")
STATUS = "Name:\thalage\nCapEff:\t{}\nCpus_allowed_list:\t{}\n"
NO_CAPABILITIES = "0000000000000000"
LINES = ["gpus", "nics", "ports", "gids", "device-files", "libfabric", "gpudirect", "memlock", "numa", "capabilities",
         "governor", "iommu", "acs"]


def pci(busid, vendor, device, pci_class, numa):
    folder = f"sys/bus/pci/devices/{busid}"
    return {f"{folder}/vendor": f"0x{vendor}\n", f"{folder}/device": f"0x{device}\n",
            f"{folder}/class": f"0x{pci_class}\n", f"{folder}/numa_node": f"{numa}\n"}


def bridge(busid, first, last, control=1, readable=4096):
    """A PCI bridge above the buses first to last, whose second extended capability is ACS with this control word: 1 is
    source validation alone, 0x1d what Linux sets for an IOMMU. Who is not root may read 64 bytes."""
    config = bytearray(4096)
    config[0x19:0x1b] = bytes([first, last])
    config[0x100:0x104] = (0x14820001).to_bytes(4, "little")  # error reporting; the next is at 0x148
    config[0x104:0x10c] = bytes([0x0d, 0, 1, 0, 0, 0, 0x1d, 0])  # not ACS: what the first one holds
    config[0x148:0x150] = (0x0001000D).to_bytes(4, "little") + bytes([0x7f, 0]) + control.to_bytes(2, "little")
    folder = f"sys/bus/pci/devices/{busid}"
    return {f"{folder}/class": "0x060400\n", f"{folder}/config": bytes(config[:readable])}


def switch(upstream, control=1, readable=4096):
    """A switch with a NIC on the second bus below it, and a GPU on the sixth."""
    bus = int(upstream, 16)
    return bridge(f"0000:{bus:02x}:00.0", bus + 1, bus + 6, 0x1d) \
        | bridge(f"0000:{bus + 1:02x}:00.0", bus + 2, bus + 2, control, readable) \
        | bridge(f"0000:{bus + 1:02x}:04.0", bus + 6, bus + 6, control, readable)


def port(device, layer, state="4: ACTIVE", gids=()):
    folder = f"sys/class/infiniband/{device}/ports/1"
    files = {f"{folder}/link_layer": f"{layer}\n", f"{folder}/state": f"{state}\n"}
    for index, (gid, kind) in enumerate(gids):
        files[f"{folder}/gids/{index}"] = f"{gid}\n"
        files[f"{folder}/gid_attrs/types/{index}"] = f"{kind}\n"
    return files


LOCAL = ("fe80:0000:0000:0000:0ac0:ebff:fe01:0203", "RoCE v2")
EMPTY = ("0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2")
ROUTED = ("0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2")
ROUTED_V1 = ("0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1")

COMMON = {
    "proc/driver/nvidia/version": OPEN,
    "proc/sys/kernel/osrelease": "6.8.0-1015-aws\n",
    "proc/self/limits": LIMITS.format("unlimited"),
    "proc/self/status": STATUS.format(NO_CAPABILITIES, "0-15"),
    "proc/1/cgroup": "0::/init.scope\n",
    "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p1 ro\n",
    "sys/devices/system/node/node0/cpulist": "0-7\n",
    "sys/devices/system/node/node1/cpulist": "8-15\n",
    "sys/devices/system/node/online": "0-1\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance\n",
    "dev/nvidiactl": "", "dev/nvidia-uvm": "", "dev/infiniband/uverbs0": "", "dev/infiniband/uverbs1": "",
} | pci("0000:53:00.0", "10de", "2330", "030200", 0) | pci("0000:97:00.0", "10de", "2330", "030200", 1) \
  | pci("0000:00:1f.0", "8086", "7a04", "060100", -1) | switch("4d") | switch("91")

EFA = COMMON \
    | {"libfabric.txt": "version 1.22\ndevice efa rdmap79s0-rdm\ndevice efa rdmap147s0-rdm\ndevice tcp eth0\n"} \
    | pci("0000:4f:00.0", "1d0f", "efa1", "020000", 0) | pci("0000:93:00.0", "1d0f", "efa1", "020000", 1) \
    | port("rdmap79s0", "Unspecified") | port("rdmap147s0", "Unspecified")

ROCE = COMMON | {"dev/infiniband/rdma_cm": "",
                 "libfabric.txt": "version 1.20\ndevice verbs;ofi_rxm mlx5_0\ndevice verbs;ofi_rxm mlx5_1\n"} \
    | pci("0000:4f:00.0", "15b3", "1021", "020000", 0) | pci("0000:93:00.0", "15b3", "1021", "020000", 1) \
    | port("mlx5_0", "Ethernet", gids=(LOCAL, EMPTY, ROUTED)) | port("mlx5_1", "Ethernet", gids=(LOCAL, ROUTED))

NO_GPU = {f"sys/bus/pci/devices/0000:{bus}:00.0": None for bus in ("53", "97")}
NO_NIC = {f"sys/bus/pci/devices/0000:{bus}:00.0": None for bus in ("4f", "93")} | {"sys/class/infiniband": None}
CONTAINER = {"proc/1/cgroup": "12:devices:/kubepods/pod1/abc\n"}
IOMMU = {"sys/class/iommu/dmar0/name": "dmar0\n"}

# (what is wrong, machine, changes (None: gone), {line: (state, words found, words of the fix)})
CASES = [
    ("no gpu", EFA, NO_GPU, {"gpus": ("warn", "no NVIDIA GPU", "--gpus all"),
                             "gpudirect": ("ok", "not needed without a GPU", None)}),
    ("no driver", EFA, {"proc/driver": None}, {"gpus": ("fail", "no driver of NVIDIA", "modprobe nvidia"),
                                               "gpudirect": ("fail", "closed driver", "modprobe efa_nv_peermem")}),
    ("no gpu files", EFA, {"dev/nvidiactl": None}, {"gpus": ("fail", "2, driver 550.54.15", "nvidia-modprobe")}),
    ("no uvm", EFA, {"dev/nvidia-uvm": None}, {"gpus": ("fail", "/dev/nvidia-uvm cannot be opened", "--gpus all")}),
    ("no nic", EFA, NO_NIC, {"nics": ("warn", "pages go over TCP", "EFA interfaces"),
                             "ports": ("ok", "none", None), "device-files": ("ok", "no RDMA device", None),
                             "gpudirect": ("ok", "not needed without a NIC", None)}),
    ("efa without driver", EFA, {"sys/class/infiniband": None},
     {"nics": ("fail", "2 EFA and 0 ConnectX on the bus, and no RDMA device", "modprobe efa"),
      "ports": ("ok", "none", None), "device-files": ("ok", "no RDMA device", None)}),
    ("mlx5 without driver", ROCE, {"sys/class/infiniband": None},
     {"nics": ("fail", "0 EFA and 2 ConnectX", "modprobe mlx5_ib"), "ports": ("ok", "none", None),
      "gids": ("ok", "no RoCE port", None), "device-files": ("ok", "no RDMA device", None)}),
    ("one port down", ROCE, port("mlx5_1", "Ethernet", "1: DOWN"),
     {"ports": ("warn", "1 of 2 active; not: mlx5_1/1 (1: DOWN)", "ip link set")}),
    ("all ports down", EFA, port("rdmap79s0", "Unspecified", "1: DOWN") | port("rdmap147s0", "Unspecified", "2: INIT"),
     {"ports": ("fail", "0 of 2 active; not: rdmap79s0/1 (1: DOWN) rdmap147s0/1 (2: INIT)", "subnet manager")}),
    ("one gid local", ROCE, {"sys/class/infiniband/mlx5_1/ports/1/gids/1": None},
     {"gids": ("warn", "1 of 2 RoCE ports have a RoCE v2 GID that routes; not: mlx5_1/1", "ip address add")}),
    ("all gids local or v1", ROCE,
     {"sys/class/infiniband/mlx5_1/ports/1/gids/1": None} | port("mlx5_0", "Ethernet", gids=(LOCAL, ROUTED_V1, EMPTY)),
     {"gids": ("fail", "0 of 2", "link-local")}),
    ("infiniband needs no gid", ROCE, port("mlx5_0", "InfiniBand") | port("mlx5_1", "InfiniBand"),
     {"gids": ("ok", "no RoCE port", None)}),
    ("no verbs files", EFA, {"dev/infiniband": None}, {"device-files": ("fail", "0 of 0", "--device /dev/infiniband")}),
    ("one verbs file", EFA, {"dev/infiniband/uverbs1": None},
     {"device-files": ("warn", "the RDMA devices are 2", "--nics")}),
    ("no rdma_cm", ROCE, {"dev/infiniband/rdma_cm": None}, {"device-files": ("fail", "rdma_cm cannot", "rdma_ucm")}),
    ("old for efa", EFA, {"libfabric.txt": "version 1.21\ndevice efa rdmap79s0-rdm\n"},
     {"libfabric": ("fail", "version 1.21, providers: efa; EFA needs 1.22", "EFA installer")}),
    ("newer major", EFA, {"libfabric.txt": "version 2.1\ndevice efa rdmap79s0-rdm\n"},
     {"libfabric": ("ok", "version 2.1, providers: efa", None)}),
    ("older than any", ROCE, {"libfabric.txt": "version 1.16\ndevice verbs;ofi_rxm mlx5_0\n"},
     {"libfabric": ("fail", "version 1.16", "1.17"), "gpudirect": ("fail", "libfabric below 1.20", "nvidia-peermem")}),
    ("no efa provider", EFA, {"libfabric.txt": "version 1.22\ndevice tcp eth0\n"},
     {"libfabric": ("fail", "there are EFA NICs, and no efa", "FI_PROVIDER")}),
    ("no verbs provider", ROCE, {"libfabric.txt": "version 1.22\ndevice tcp eth0\n"},
     {"libfabric": ("fail", "no verbs;ofi_rxm", "ibverbs-providers")}),
    ("no provider", EFA, NO_NIC | {"libfabric.txt": "version 1.22\n"},
     {"libfabric": ("fail", "providers: none", "fi_info"), "nics": ("warn", "", ""), "ports": ("ok", "", None),
      "device-files": ("ok", "", None), "gpudirect": ("ok", "", None)}),
    ("libfabric not asked", EFA, {"libfabric.txt": None},
     {"libfabric": ("warn", "not asked", "libfabric.txt"), "gpudirect": ("fail", "libfabric below 1.20", "")}),
    ("closed driver", ROCE, {"proc/driver/nvidia/version": CLOSED},
     {"gpus": ("ok", "2, driver 535.129.03, closed kernel modules", None),
      "gpudirect": ("fail", "neither dma-buf (closed driver) nor nvidia_peermem", "modprobe nvidia-peermem")}),
    ("peermem", ROCE, {"proc/driver/nvidia/version": CLOSED, "sys/module/nvidia_peermem/refcnt": "0\n"},
     {"gpus": ("ok", "closed", None), "gpudirect": ("ok", "by nvidia_peermem", None)}),
    ("mlx5's peermem is not efa's", EFA,
     {"proc/driver/nvidia/version": CLOSED, "sys/module/nvidia_peermem/refcnt": "0\n"},
     {"gpus": ("ok", "closed", None), "gpudirect": ("fail", "nor efa_nv_peermem", "modprobe efa_nv_peermem")}),
    ("efa's peermem", EFA, {"proc/sys/kernel/osrelease": "5.10.0-1\n", "sys/module/efa_nv_peermem/refcnt": "0\n"},
     {"gpudirect": ("ok", "by efa_nv_peermem", None)}),
    ("old kernel", EFA, {"proc/sys/kernel/osrelease": "5.11.0\n"},
     {"gpudirect": ("fail", "kernel below 5.12", "5.12")}),
    ("memlock", EFA, {"proc/self/limits": LIMITS.format(8388608)},
     {"memlock": ("fail", "8192 KiB", "--ulimit memlock=-1")}),
    ("memlock unknown", EFA, {"proc/self/limits": None}, {"memlock": ("fail", "not known", "ulimit -l unlimited")}),
    ("memlock by capability", EFA, {"proc/self/limits": LIMITS.format(65536),
                                    "proc/self/status": STATUS.format("0000000000004000", "0-15")},
     {"memlock": ("ok", "CAP_IPC_LOCK", None)}),
    ("memlock without nic", EFA, NO_NIC | {"proc/self/limits": LIMITS.format(65536)},
     {"memlock": ("ok", "64 KiB; TCP locks none", None), "nics": ("warn", "", ""), "ports": ("ok", "", None),
      "device-files": ("ok", "", None), "gpudirect": ("ok", "", None)}),
    ("device at no node", EFA, {"sys/bus/pci/devices/0000:53:00.0/numa_node": "-1\n"},
     {"numa": ("warn", "2 nodes; GPU 0000:53:00.0 is at none of them", "--cores")}),
    ("cores of the other node", EFA, {"proc/self/status": STATUS.format(NO_CAPABILITIES, "0-7")},
     {"numa": ("warn", "NIC 0000:93:00.0 is at node 1, of which this process may use no core", "--cpuset-cpus")}),
    ("nic at the other node", EFA, {"sys/bus/pci/devices/0000:93:00.0/numa_node": "0\n"},
     {"numa": ("warn", "GPU 0000:97:00.0 is at node 1, which has no NIC", "cross the sockets")}),
    ("one node", EFA, {"sys/devices/system/node/node1": None, "sys/bus/pci/devices/0000:53:00.0/numa_node": "-1\n"},
     {"numa": ("ok", "1 node", None)}),
    ("container", EFA, CONTAINER,
     {"capabilities": ("warn", "without IPC_LOCK (locks memory beyond the limit), without SYS_NICE",
                       "--cap-add IPC_LOCK --cap-add SYS_NICE --cap-add SYS_PTRACE")}),
    ("docker's mark", EFA, {".dockerenv": ""}, {"capabilities": ("warn", "in a container", "--cap-add")}),
    ("container with some", EFA, CONTAINER | {"proc/self/status": STATUS.format("0000000000084000", "0-15")},
     {"capabilities": ("warn", "in a container, without SYS_NICE (", "--cap-add SYS_NICE"),
      "memlock": ("ok", "CAP_IPC_LOCK", None)}),
    ("container with all", EFA, CONTAINER | {"proc/self/status": STATUS.format("0000003fffffffff", "0-15")},
     {"capabilities": ("ok", "with all that are of use", None), "memlock": ("ok", "CAP_IPC_LOCK", None)}),
    ("governor", EFA, {"sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave\n"},
     {"governor": ("warn", "powersave on 1 of 2 cores", "cpupower frequency-set -g performance")}),
    ("no governor", EFA, {"sys/devices/system/cpu": None}, {"governor": ("ok", "not this system's to choose", None)}),
    ("iommu", EFA, IOMMU, {"iommu": ("warn", "translates", "iommu=pt")}),
    ("iommu passes", EFA, IOMMU | {"proc/cmdline": "ro iommu=pt\n"}, {"iommu": ("ok", "passes through", None)}),
    ("acs", EFA, switch("4d", 0x1d),
     {"acs": ("warn", "on for 2 of 4 bridges between GPU and NIC, bytes take the way through the CPU, or fail: "
                      "0000:4e:00.0 0000:4e:04.0", "setpci -s BRIDGE ECAP_ACS+6.w=0000")}),
    ("acs for completions alone", ROCE, bridge("0000:92:04.0", 0x97, 0x97, 8),
     {"acs": ("warn", "on for 1 of 4 bridges between GPU and NIC, bytes take the way through the CPU, or fail: "
                      "0000:92:04.0", "setpci")}),
    ("acs unreadable", EFA, switch("91", 0x1d, 64),
     {"acs": ("warn", "not known of 2 of 4 bridges", "as root")}),
    ("a bridge without acs", EFA, bridge("0000:4e:00.0", 0x4f, 0x4f, 0x1d, 256),
     {"acs": ("ok", "off for all 4 bridges between GPU and NIC", None)}),
    ("acs without a switch", EFA, {f"sys/bus/pci/devices/0000:{bus}:00.0": None for bus in ("4d", "91")} |
     bridge("0000:4e:00.0", 0x4f, 0x4f, 0x1d), {"acs": ("ok", "no switch with a GPU and a NIC below it", None)}),
    ("acs above both", EFA, bridge("0000:4c:00.0", 0x4d, 0x53, 0x1d),
     {"acs": ("ok", "off for all 4 bridges between GPU and NIC", None)}),
    ("iommu without gpu", EFA, IOMMU | NO_GPU, {"iommu": ("ok", "translates", None), "gpus": ("warn", "", ""),
                                                 "gpudirect": ("ok", "", None)}),
]


class Doctor(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name) / "root"

    def plant(self, files, changes):
        """Writes the tree; a file or folder that changes to None is not there."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        for name, text in (files | changes).items():
            path = self.root / name
            if text is not None and not any(path.is_relative_to(self.root / gone)
                                            for gone, what in changes.items() if what is None):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def doctor(self, *words):
        return subprocess.run([HALAGE, "doctor", *words], capture_output=True, text=True, timeout=30, check=False)

    def examine(self):
        result = self.doctor("--root", str(self.root), "--json")
        found = json.loads(result.stdout)
        states = [check["state"] for check in found["checks"]]
        self.assertEqual({state: found[state] for state in ("ok", "warn", "fail")},
                         {state: states.count(state) for state in ("ok", "warn", "fail")})
        self.assertEqual(result.returncode, 1 if "fail" in states else 0)
        self.assertEqual([check["name"] for check in found["checks"]], LINES)
        return {check["name"]: check for check in found["checks"]}

    def test_machines_in_order_are_ok(self):
        for machine, gpudirect, gids in ((EFA, "by dma-buf (kernel 6.8.0-1015-aws)", "no RoCE port, so none is needed"),
                                         (ROCE, "by dma-buf (kernel 6.8.0-1015-aws)",
                                          "2 of 2 RoCE ports have a RoCE v2 GID that routes")):
            self.plant(machine, {})
            for name, check in self.examine().items():
                self.assertEqual((check["state"], check["fix"]), ("ok", None), (name, check))
            self.assertEqual(self.examine()["gpudirect"]["found"], gpudirect)
            self.assertEqual(self.examine()["gids"]["found"], gids)

    def test_each_line_in_each_outcome(self):
        seen = set()
        for wrong, machine, changes, expected in CASES:
            with self.subTest(wrong):
                self.plant(machine, changes)
                for name, check in self.examine().items():
                    state, found, fix = expected.get(name, ("ok", "", None))
                    self.assertEqual(check["state"], state, check)
                    self.assertIn(found, check["found"])
                    if fix is None:
                        self.assertIsNone(check["fix"], check)
                    else:
                        self.assertIn(fix, check["fix"])
                    seen.add((name, check["state"]))
        expected = {(name, "ok") for name in LINES}
        expected |= {(name, "warn") for name in ("gpus", "nics", "ports", "gids", "device-files", "libfabric", "numa",
                                                 "capabilities", "governor", "iommu", "acs")}
        expected |= {(name, "fail") for name in ("gpus", "nics", "ports", "gids", "device-files", "libfabric",
                                                 "gpudirect", "memlock")}
        self.assertEqual(seen, expected)

    def test_text_has_a_line_a_check_and_the_fix_below(self):
        self.plant(EFA, {"proc/self/limits": LIMITS.format(65536)})
        result = self.doctor("--root", str(self.root) + "///")
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertIn("fail  memlock       64 KiB\n                    fix: registered pages are locked: ulimit -l",
                      result.stdout)
        self.assertIn("ok    nics          2: rdmap79s0 rdmap147s0\n", result.stdout)
        self.assertTrue(result.stdout.endswith("12 ok, 0 warn, 1 fail\n"))
        again = self.doctor("--root", str(self.root), "--json", "-")
        self.assertEqual(again.stderr, result.stdout)

    def test_an_empty_tree_and_garbage_are_judged_all_the_same(self):
        self.plant({"proc/self/x": "", "sys/x": ""}, {})
        found = self.examine()
        self.assertEqual([name for name, check in found.items() if check["state"] == "fail"], [])
        for text in ("\x00\xff%s%n" * 400, b"\xff" * 4096):
            garbage = {name: text for name in EFA if name != "libfabric.txt"}
            self.plant(garbage, {})
            found = self.examine()
            self.assertEqual(found["nics"]["state"], "ok")
            self.assertRegex(found["governor"]["found"], r"^[ -~]* on 2 of 2 cores$")
        classes = {name: "0x060400\n" for name in EFA if name.endswith("4e:00.0/class")}
        self.plant(EFA, classes | {"sys/bus/pci/devices/0000:4e:00.0/config": b"\xff" * 4096})
        self.assertEqual(self.examine()["acs"]["state"], "ok")
        self.plant(EFA, {"proc/self/status": "CapEff:", "proc/self/limits": "Max locked memory",
                         "sys/devices/system/node/node1/cpulist": "8-",
                         "proc/sys/kernel/osrelease": "Linux"})
        self.assertEqual(self.examine()["memlock"]["state"], "fail")

    def test_this_machine_is_judged(self):
        result = self.doctor("--json")
        self.assertIn(result.returncode, (0, 1), result.stderr)
        found = json.loads(result.stdout)
        self.assertEqual([check["name"] for check in found["checks"]], LINES)
        self.assertRegex({check["name"]: check for check in found["checks"]}["libfabric"]["found"],
                         r"^version \d+\.\d+, providers: \S")

    def test_bad_input(self):
        for words, line in ((["--root", "/nowhere"], "--root: /nowhere: is not a folder"),
                            (["--root", "/etc/passwd"], "--root: /etc/passwd: is not a folder"),
                            (["--root"], "option '--root' needs a value: DIR"),
                            (["--root="], "option '--root' needs a value: DIR"),
                            (["--root", ""], "option '--root' needs a value: DIR"),
                            (["x"], "unknown argument 'x'; there are only options, see --help"),
                            (["--yaml"], "unknown option '--yaml'; valid: --root --json --help --version"),
                            (["--json", "/nowhere/x"],
                             "--json: /nowhere/x: cannot be opened: No such file or directory")):
            result = self.doctor(*words)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (2, "", f"halage doctor: {line}\n"))

    def expect_refused(self, pattern):
        result = self.doctor("--root", str(self.root), "--json")
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        self.assertRegex(result.stderr, rf"\Ahalage doctor: --root: {re.escape(str(self.root))}{pattern}\n\Z")

    def test_a_root_that_holds_no_machine_is_refused(self):
        for files, missing in (({}, "proc"), ({"sys/x": ""}, "proc"), ({"proc/x": "", "sys": ""}, "sys"),
                               ({"x": ""}, "proc")):
            self.plant(files, {})
            self.expect_refused(f": holds no folder {missing}: copy a machine's /proc, /sys and /dev below it")

    def test_what_libfabric_cannot_have_said_is_refused(self):
        self.plant(EFA, {"libfabric.txt": "version 1.22\n\ndevice efa rdmap79s0-rdm\ndevice efa rdmap147s0-rdm"})
        self.assertEqual(self.examine()["libfabric"]["state"], "ok")
        for line in ("device efa", "device", "version", "version 1", "version 1.22 of AWS", "devices efa x",
                     "device efa a b", "device " + "x" * 32 + " a", "device efa " + "x" * 64, "efa rdmap79s0-rdm"):
            self.plant(EFA, {"libfabric.txt": f"version 1.22\n{line}\n"})
            self.expect_refused(rf"/libfabric\.txt: line 2: '{line[:60]}': write 'version 1\.22', or 'device PROVIDER "
                                r"NAME' as 'device efa rdmap79s0-rdm', of which there are at most 256")


unittest.main()
