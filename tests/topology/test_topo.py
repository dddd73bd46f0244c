#!/usr/bin/env python3
"""`halage topo` against tables that were written by hand from what the vendors say (expected/, each with its source):
of machines written down for the project (machines.py), and of machines captured by others, where HALAGE_DATA names
them. Then what a user gets wrong."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import machines

HERE = pathlib.Path(__file__).resolve().parent
HALAGE = pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage"
DATA = os.environ.get("HALAGE_DATA")
FAKE_CUDA = os.environ.get("FAKE_CUDA_DIR")
CAPTURED = pathlib.Path(DATA) / "topologies" if DATA else None
COLUMNS = ["index", "busid", "numa", "nics", "as_near", "link", "cores"]


def read_expected(path):
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert lines[0].split("\t") == COLUMNS, path
    return [line.split("\t") for line in lines[1:]]


def row(gpu):
    """A GPU of the JSON as a row of a table."""
    own = gpu["own_nics"]
    nics = gpu["nics"]
    assert nics[: len(own)] == own, gpu
    words = [gpu["index"], gpu["busid"], "null" if gpu["numa"] is None else gpu["numa"], " ".join(own) or "-",
             " ".join(nics[len(own):]) or "-", gpu["link"] or "-", gpu["cores"]]
    return [str(word) for word in words]


def read_cores(text):
    cores = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores |= set(range(int(first), int(last or first) + 1))
    return cores


class Topo(unittest.TestCase):
    directory = tempfile.TemporaryDirectory()
    machines.write_all(directory.name)
    answers = {}  # of this program to what it was asked before; files of `directory` do not change

    def file(self, name):
        return f"{self.directory.name}/{name}.xml"

    def topo(self, *words, **environment):
        clean = {name: value for name, value in os.environ.items() if not name.endswith("_VISIBLE_DEVICES")}
        return subprocess.run([HALAGE, "topo", *words], capture_output=True, text=True, timeout=30, check=False,
                              cwd=self.directory.name, env=clean | environment)

    def both(self, *words, **environment):
        """The JSON, and the table."""
        key = (words, tuple(sorted(environment.items())))
        if key not in self.answers:
            result = self.topo(*words, "--json", **environment)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.answers[key] = (result.stdout, result.stderr)
        text, table = self.answers[key]
        return json.loads(text), table

    def json(self, *words, **environment):
        return self.both(*words, **environment)[0]

    def expect_error(self, sentence, *words):
        result = self.topo(*words)
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        self.assertRegex(result.stderr, rf"\Ahalage topo: {sentence}\n\Z")

    def expect_table(self, table, xml):
        found = self.json("--xml", str(xml))
        self.assertEqual([row(gpu) for gpu in found["gpus"]], read_expected(table), table)
        return found


class Machines(Topo):
    def test_every_gpu_has_the_nics_that_the_vendor_says(self):
        tables = sorted((HERE / "expected").glob("*.tsv"))
        self.assertEqual([table.stem for table in tables], sorted(make.__name__ for make in machines.MACHINES))
        for table in tables:
            with self.subTest(table.stem):
                self.expect_table(table, self.file(table.stem))

    def test_a_wrong_row_is_noticed(self):
        """The comparison above can fail: each column of a table is changed in turn."""
        rows = read_expected(HERE / "expected" / "p5en.tsv")
        found = [row(gpu) for gpu in self.json("--xml", self.file("p5en"))["gpus"]]
        self.assertEqual(found, rows)
        for index in range(len(COLUMNS)):
            rows[3][index] += "0"
            self.assertNotEqual(found, rows)
            rows[3][index] = rows[3][index][:-1]

    def test_no_nic_is_anybodys_twice_where_they_suffice(self):
        for name in ("p5", "p5en", "dgx_h100", "nested", "unknown_place"):
            own = [nic for gpu in self.json("--xml", self.file(name))["gpus"] for nic in gpu["own_nics"]]
            self.assertEqual(len(own), len(set(own)), name)
        found = self.json("--xml", self.file("dgx_h100"))
        spare = [nic["name"] for nic in found["nics"] if nic["gpus"] == 0]
        self.assertEqual(spare, ["mlx5_1", "mlx5_2", "mlx5_7", "mlx5_8"])

    def test_own_cores_are_a_share_of_those_near(self):
        for name in ("p5", "p5en", "dgx_h100", "no_nic", "workstation"):
            taken = set()
            sizes = set()
            for gpu in self.json("--xml", self.file(name))["gpus"]:
                own = read_cores(gpu["own_cores"])
                self.assertLessEqual(own, read_cores(gpu["cores"]), name)
                self.assertFalse(own & taken, name)
                taken |= own
                sizes.add(len(own))
            self.assertEqual(len(sizes), 1, name)

    def test_farther_nics_follow_by_distance(self):
        gpu = self.json("--xml", self.file("dgx_h100"), "--gpu", "4")["gpus"][0]
        farther = [(nic["name"], nic["link"]) for nic in gpu["farther_nics"]]
        here = [(f"mlx5_{nic}", "same NUMA node") for nic in (7, 8, 9, 10, 11)]
        there = [(f"mlx5_{nic}", "same machine only") for nic in range(6)]
        self.assertEqual(farther, here + there)


class Captured(Topo):
    def test_captured_machines(self):
        tables = {table.stem: table for table in (HERE / "expected" / "captured").glob("*.tsv")}
        gpus = 0
        for xml in sorted(CAPTURED.glob("*.xml")):
            name = xml.name.removesuffix(".xml").removesuffix(".hwloc")
            with self.subTest(xml.name):
                if "nccl" in name:
                    self.expect_error(r"\S+: is a topology of NCCL, not of hwloc; .*", "--xml", str(xml))
                    continue
                self.assertIn(name, tables, "a file without a table")
                gpus += len(self.expect_table(tables.pop(name), xml)["gpus"])
        self.assertEqual((tables, gpus), ({}, 69))


class Output(Topo):
    def test_the_table_says_what_and_why(self):
        result = self.topo("--xml", self.file("p5en"))
        self.assertIn("GPU  bus id        NUMA  NICs                   cores\n", result.stdout)
        self.assertIn("  1  0000:5a:00.0     0  rdmap87s0 rdmap88s0    0-47,96-143\n"
                      "     same PCIe switch; as near, but for other GPUs: rdmap85s0 rdmap86s0; own cores: 12-23\n",
                      result.stdout)
        self.assertEqual(result.stderr, "")

    def test_absences_are_said(self):
        for name, sentence in (("no_nic", "this machine has no RDMA NIC: pages go over TCP"),
                               ("workstation", "this machine has no RDMA NIC: pages go over TCP"),
                               ("no_gpu", "this machine has no NVIDIA GPU"),
                               ("no_driver", r"NIC 0000:4f:00\.0 has no RDMA device: load its driver .*")):
            found, table = self.both("--xml", self.file(name))
            self.assertRegex(table, rf"(?m)^note: {sentence}$")
            self.assertRegex("\n".join(found["notes"]), sentence)
        gpu = self.json("--xml", self.file("no_nic"))["gpus"][0]
        self.assertEqual((gpu["nics"], gpu["why"]), ([], "no NIC: this machine has no RDMA NIC"))
        self.assertIn("NIC mlx5_1, NUMA node 0: its ports are down\n",
                      self.both("--xml", self.file("workstation_rdma"))[1])

    def test_json_goes_where_it_is_sent(self):
        words = ["--xml", self.file("nested"), "--json"]
        plain = self.topo(*words)
        for form in (["-"], []):
            result = self.topo(*words, *form)
            self.assertEqual((result.stdout, result.returncode), (plain.stdout, 0))
            self.assertIn("GPU  bus id", result.stderr)
        for form in (["--json", "out.json"], ["--json=out.json"]):
            result = self.topo(*words[:-1], *form)
            self.assertIn("GPU  bus id", result.stdout)
            written = pathlib.Path(self.directory.name, "out.json")
            self.assertEqual(written.read_text(encoding="utf-8"), plain.stdout)
            written.unlink()
        self.assertEqual(list(json.loads(plain.stdout)["gpus"][0])[:5], ["index", "busid", "numa", "nics", "cores"])

    def test_this_machine_can_be_looked_at(self):
        found = self.json()
        for gpu in found["gpus"]:
            self.assertRegex(gpu["busid"], r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
        if not found["gpus"]:
            self.assertIn("this machine has no NVIDIA GPU", found["notes"])


class Choice(Topo):
    def seen(self, **environment):
        return [gpu["busid"][5:7] for gpu in self.json("--xml", self.file("p5"), **environment)["gpus"]]

    def test_visible_gpus_are_those_that_cuda_sees(self):
        everything = ["53", "64", "75", "86", "97", "a8", "b9", "ca"]
        for cuda, nvidia, expected in (
            (None, None, everything),
            ("3,1", None, ["86", "64"]),
            ("3,9,1", None, ["86"]),  # what follows a number that there is not is invisible
            ("", None, []),
            ("NoDevFiles", None, []),
            ("-1", None, []),
            ("-1,3", None, []),
            ("3,-1,1", None, ["86"]),
            ("0:1", None, []),
            ("2,2", None, ["75"]),
            ("0000:A8:00.0", None, ["a8"]),
            (None, "all", everything),
            (None, "void", everything),
            (None, "none", []),
            (None, "5,2", ["75", "a8"]),  # a container counts them by bus id again
            ("1,0", "7,2,5", ["a8", "75"]),
            ("2", "5,2", []),
            (None, "5:1,2:0,5:0", ["75", "a8"]),  # parts of GPUs (MIG), as the container runtime numbers them
            ("GPU-12345678", None, everything),  # UUIDs that nobody knows: said, and all are shown
            ("MIG-12345678-0000-0000-0000-000000000001", None, everything),  # does not say of which GPU it is a part
        ):
            environment = {"CUDA_VISIBLE_DEVICES": cuda} if cuda is not None else {}
            environment |= {"NVIDIA_VISIBLE_DEVICES": nvidia} if nvidia is not None else {}
            self.assertEqual(self.seen(**environment), expected, environment)
        found = self.json("--xml", self.file("p5"), CUDA_VISIBLE_DEVICES="3,1")
        self.assertEqual([(gpu["index"], gpu["machine_index"]) for gpu in found["gpus"]], [(0, 3), (1, 1)])
        self.assertEqual(found["notes"], ["2 of the 8 GPUs are visible (CUDA_VISIBLE_DEVICES)"])
        for cuda, nvidia, notes in (
            ("-1", None, ["0 of the 8 GPUs are visible (CUDA_VISIBLE_DEVICES)"]),
            ("", "all", ["0 of the 8 GPUs are visible (CUDA_VISIBLE_DEVICES)"]),
            ("7", None, ["1 of the 8 GPUs is visible (CUDA_VISIBLE_DEVICES)"]),
            ("1,0", "2,4", ["2 of the 8 GPUs are visible (NVIDIA_VISIBLE_DEVICES)"]),
            ("1", "2,4", ["1 of the 8 GPUs is visible (NVIDIA_ and CUDA_VISIBLE_DEVICES)"]),
            ("0,x", None, ["CUDA_VISIBLE_DEVICES: 'x' is no GPU here: those after it are not visible, either",
                           "1 of the 8 GPUs is visible (CUDA_VISIBLE_DEVICES)"]),
            ("MIG-1", None, ["CUDA_VISIBLE_DEVICES names 'MIG-1', and nothing tells which GPU that is: all are shown"]),
            ("\udcff\n", None, ["CUDA_VISIBLE_DEVICES: '?' is no GPU here: those after it are not visible, either",
                                "0 of the 8 GPUs are visible (CUDA_VISIBLE_DEVICES)"]),
        ):
            environment = {"CUDA_VISIBLE_DEVICES": cuda} | ({"NVIDIA_VISIBLE_DEVICES": nvidia} if nvidia else {})
            self.assertEqual(self.json("--xml", self.file("p5"), **environment)["notes"], notes)
        self.assertEqual(len(self.json("--xml", self.file("p5"), "--all", CUDA_VISIBLE_DEVICES="3")["gpus"]), 8)

    def test_what_is_hidden_keeps_its_share(self):
        gpu = self.json("--xml", self.file("p5en"), CUDA_VISIBLE_DEVICES="1")["gpus"][0]
        self.assertEqual(gpu["own_nics"], ["rdmap87s0", "rdmap88s0"])

    def test_uuids_name_gpus_where_they_are_known(self):
        name = self.file("workstation_rdma")
        found = self.json("--xml", name, "--gpu", "GPU-0a1b")
        self.assertEqual([gpu["busid"] for gpu in found["gpus"]], ["0000:61:00.0"])
        found = self.json("--xml", name, CUDA_VISIBLE_DEVICES="GPU-0A1B2C3D")
        self.assertEqual([gpu["busid"] for gpu in found["gpus"]], ["0000:61:00.0"])
        found = self.json("--xml", name, CUDA_VISIBLE_DEVICES="MIG-GPU-0a1b2c3d-0000-0000-0000-000000000001/1/0")
        self.assertEqual([gpu["busid"] for gpu in found["gpus"]], ["0000:61:00.0"])

    def test_one_gpu_by_each_of_its_names(self):
        for word in ("3", "0000:86:00.0", "86:00.0", "00000000:86:00.0"):
            found = self.json("--xml", self.file("p5"), "--gpu", word)["gpus"]
            self.assertEqual([gpu["index"] for gpu in found], [3], word)

    def test_nics_can_be_chosen(self):
        name = self.file("dgx_h100")
        found = self.json("--xml", name, "--nics", "mlx5_1,0000:dc:00.0")["gpus"]
        self.assertEqual([gpu["nics"] for gpu in found], [["mlx5_1"]] * 4 + [["mlx5_11"]] * 4)
        self.assertEqual(found[7]["link"], "same PCIe switch")
        self.assertIn("NIC mlx5_0, NUMA node 0: left out\n", self.topo("--xml", name, "--nics", "mlx5_1").stdout)


class Placement(Topo):
    """A demo whose nodes are placed: hwloc is told of a machine with a NIC that has a core which this process has, too
    (HWLOC_XMLFILE and HWLOC_THISSYSTEM are hwloc's own)."""

    def demo(self, *words, **environment):
        return subprocess.run([HALAGE, "demo", "--requests", "1", "--decode-nodes", "1", "--verbose", *words],
                              capture_output=True, text=True, timeout=60, check=False, env=os.environ | environment)

    def write(self, name, core, *devices):
        """A machine with one core of this process, and devices at one switch."""
        near = machines.host("10-70", machines.switch("0000:10:00.0", "11-70", *devices))
        xml = pathlib.Path(self.directory.name) / name
        xml.write_text(machines.machine("This", machines.Package([core], None, near)), encoding="utf-8")
        return {"HWLOC_XMLFILE": str(xml), "HWLOC_THISSYSTEM": "1"}

    def test_auto_is_near_the_nic_and_read_back(self):
        """Two GPUs, four NICs, all of them by the name of loopback, so that the nodes really run: two rails a lane."""
        core = min(os.sched_getaffinity(0))
        this = self.write("this.xml", core, *[machines.gpu(f"0000:1{slot}:00.0") for slot in (1, 2)],
                          *[machines.nic(f"0000:1{slot}:00.0", "lo") for slot in (3, 4, 5, 6)])
        result = self.demo("--cores", "auto", "--nics", "auto", "--provider", "tcp", **this)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        said = result.stdout + result.stderr
        for node in ("prefill node", "decode node 1"):
            self.assertRegex(said, rf"{node}: cores: {core}(, memory of .*)?: near lo, NUMA node 0\n")
            self.assertRegex(said, rf"{node}: info: placement cores {core} memory_node (0|-1)\n")
            self.assertIn(f"{node}: lane 0, GPU 0000:11:00.0: lo,lo (same PCIe switch)\n", said)
        self.assertIn("prefill node: lane 1, GPU 0000:12:00.0: lo,lo (same PCIe switch)\n", said)
        self.assertRegex(said, r"started role prefill provider \w+ lanes 2 rails 2 port")

    def prefill(self, *words, until=("listening on",), **environment):
        """Starts `halage node prefill`; returns it and what it said until all of `until` was, in whatever order."""
        node = subprocess.Popen([HALAGE, "node", "prefill", "--listen", "127.0.0.1:0", "--provider", "tcp", *words],
                                stderr=subprocess.PIPE, text=True, env=os.environ | environment)
        self.addCleanup(node.stderr.close)
        self.addCleanup(node.wait, 30)
        self.addCleanup(node.kill)
        said = ""
        while not all(part in said for part in until):
            line = node.stderr.readline()
            self.assertTrue(line, said)
            said += line
        return node, said

    def test_a_node_runs_where_it_was_placed(self):
        """What the kernel says of each thread of `halage node`: the messenger's and the provider's are on the core, the
        one that started them is back where it was. The second of two source nodes is on the second GPU."""
        before = os.sched_getaffinity(0)
        core = max(before)
        this = self.write("node.xml", core, machines.gpu("0000:11:00.0"), machines.gpu("0000:12:00.0"),
                          machines.nic("0000:13:00.0", "lo"))
        for words in (["--cores", "auto", "--nics", "auto"], ["--cores", str(core)]):
            node, said = self.prefill("--source", "2/2", "--verbose", *words, **this,
                                      until=("listening on", "info: placement"))
            tasks = pathlib.Path(f"/proc/{node.pid}/task")
            where = {int(task.name): read_cores(re.search(r"^Cpus_allowed_list:\t(.*)$", (task / "status").read_text(),
                                                          re.M).group(1)) for task in tasks.iterdir()}
            self.assertEqual(where.pop(node.pid), before, said)
            self.assertGreaterEqual(len(where), 1)
            self.assertEqual(set(map(frozenset, where.values())), {frozenset({core})}, said)
            self.assertRegex(said, rf"(?m)^halage node prefill: cores: {core}(, memory of .*)?: ")
            self.assertRegex(said, rf"(?m)^halage node prefill: info: placement cores {core} memory_node (0|-1)$")
            self.assertEqual({line.split(": ")[0] for line in said.splitlines()}, {"halage node prefill"})
            if "auto" in words:
                self.assertIn("lane 0, GPU 0000:12:00.0: lo (same PCIe switch)\n", said)

    def test_nics_that_the_provider_does_not_open_are_not_chosen(self):
        this = self.write("other.xml", min(os.sched_getaffinity(0)), machines.gpu("0000:11:00.0"),
                          machines.nic("0000:13:00.0", "mlx5_0"))
        said = self.prefill("--nics", "auto", **this)[1]
        self.assertIn("halage node prefill: nics: all: the provider opens none of the RDMA NICs\n", said)

    @unittest.skipUnless(FAKE_CUDA, "no double of libcuda was built")
    def test_memory_of_gpus_says_which_gpu_a_lane_is_on(self):
        """The double's GPUs are at 1b and 43; the machine has another one before them, which CUDA does not see."""
        this = self.write("cuda.xml", min(os.sched_getaffinity(0)), machines.nic("0000:44:00.0", "lo"),
                          *[machines.gpu(f"0000:{bus}:00.0") for bus in ("1a", "1b", "43")])
        this |= {"LD_LIBRARY_PATH": FAKE_CUDA}
        for words, environment, gpus in (
            (["--device", "1"], {}, ("0000:43:00.0",) * 2),
            ([], {"CUDA_VISIBLE_DEVICES": "1,0"}, ("0000:43:00.0", "0000:1b:00.0")),
            (["--device", "2"], {"FAKE_CUDA_DEVICES": "3"}, (None,) * 2),
        ):
            result = self.demo("--nics", "auto", "--provider", "tcp", "--memory", "cuda", "--staged", *words,
                               **this, **environment)
            said = result.stdout + result.stderr
            self.assertEqual(result.returncode, 0, said)
            for lane, gpu in enumerate(gpus):
                told = f"lane {lane}, GPU {gpu}: lo (same PCIe switch)\n" if gpu else \
                    f"nobody knows what is near to the GPU of lane {lane}: there is no GPU '0000:52:00.0': there are 0 "
                self.assertIn(f"prefill node: {told}", said)

    def test_auto_without_anything_to_be_near_to_says_so(self):
        xml = pathlib.Path(self.directory.name) / "bare.xml"
        xml.write_text(machines.machine("Bare", machines.Package([0], None)), encoding="utf-8")
        result = self.demo("--cores", "auto", "--provider", "tcp", "--nics", "auto", HWLOC_XMLFILE=str(xml),
                           HWLOC_THISSYSTEM="1")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("cores: any: there is no RDMA NIC and no GPU to be near to\n", result.stdout + result.stderr)
        self.assertIn("nics: all: there is no GPU to choose them by\n", result.stdout + result.stderr)

    def test_cores_and_nics_that_there_are_not(self):
        for words, sentence in (
            (["--cores", "0-"], "--cores: '0-': write auto, or a list as 0-3,8"),
            (["--cores", "1023"], "--cores: cores '1023': this process may use only "),
            (["--provider", "tcp", "--nics", "lo,mlx5_9"], "there is no NIC 'mlx5_9' of provider "),
            (["--provider", "tcp", "--nics", "lo,"], "there is no NIC '' of provider "),
        ):
            result = subprocess.run([HALAGE, "node", "prefill", "--listen", "127.0.0.1:0", *words],
                                    capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(result.returncode, 2, (words, result.stderr))
            self.assertIn(sentence, result.stderr)


class BadInput(Topo):
    def write(self, name, text):
        path = pathlib.Path(self.directory.name) / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    def test_files(self):
        good = pathlib.Path(self.file("no_nic")).read_text(encoding="utf-8")
        lstopo = "give a file that lstopo wrote"
        for text, sentence in (
            ("", f"is empty; {lstopo}"),
            ("GPU 0 is here\n", f"is not XML; {lstopo}.*"),
            (bytes(range(256)), f"is not XML; {lstopo}.*"),
            ("<!-- without an end", f"is not XML; {lstopo}.*"),
            ("<?xml version='1.0'?><html></html>", f"is XML, but not hwloc's; {lstopo}"),
            ("<system version=\"1\"></system>", f"is a topology of NCCL, not of hwloc; {lstopo}"),
            (good.replace('topology version="2.0"', 'topology version="3.0"'),
             "is of hwloc 3, this program has hwloc 2: write the file with an older lstopo, or build with a newer "
             "hwloc"),
            (good[: len(good) // 2], "hwloc cannot make sense of it: .*"),
            (good.replace('type="NUMANode"', 'type="Nonsense"'), "hwloc cannot make sense of it: .*"),
        ):
            name = self.write("bad.xml", text)
            self.expect_error(f"{re.escape(name)}: {sentence}", "--xml", name)
        self.expect_error("/nowhere.xml: cannot be read: No such file or directory", "--xml", "/nowhere.xml")
        self.expect_error("/: cannot be read: Is a directory", "--xml", "/")
        os.mkfifo(pipe := self.write("bad.xml", "") + ".pipe")
        self.expect_error(f"{re.escape(pipe)}: is a pipe or a device, and hwloc reads more than once; {lstopo}", "--xml",
                          pipe)

    def test_names_of_any_bytes_are_told_in_json_too(self):
        good = pathlib.Path(self.file("nested")).read_bytes()
        self.assertEqual(good.count(b'"mlx5_0"'), 1)
        for name, told in ((b"mlx5\xff0", "mlx5?0"), (b"m&#10;0", "m?0"), ("m\u00e9".encode(), "m??")):
            result = self.topo("--xml", self.write("names.xml", good.replace(b'"mlx5_0"', b'"' + name + b'"')), "--json")
            if result.returncode == 2:  # hwloc with libxml refuses what is no UTF-8
                self.assertIn("hwloc cannot make sense of it", result.stderr)
                continue
            self.assertEqual([gpu["own_nics"] for gpu in json.loads(result.stdout)["gpus"]], [[told], ["mlx5_1"]])

    def test_what_kills_hwloc_is_a_sentence(self):
        """hwloc 2.9 dies of some files; a file that is changed at random never ends this program by a signal."""
        good = pathlib.Path(self.file("nested")).read_bytes()
        ended = set()
        for seed in range(12):
            place = seed * 2654435761 % (len(good) - 8)
            bad = good[:place] + bytes([seed * 37 % 256]) * 3 + good[place + 3:]
            result = self.topo("--xml", self.write("bad.xml", bad))
            self.assertIn(result.returncode, (0, 2), seed)
            self.assertLessEqual(result.stderr.count("\n"), 1, seed)
            ended.add(result.returncode)
        self.assertEqual(ended, {0, 2})

    def test_gpus_and_nics_that_there_are_not(self):
        xml = ["--xml", self.file("p5")]
        for word in ("8", "0000:00:00.0", "GPU-"):
            self.expect_error(rf"--gpu: there is no GPU '{word}': there are 0 to 7: 0000:53:00\.0 .* 0000:ca:00\.0",
                              *xml, f"--gpu={word}")
        self.expect_error("--gpu: there is no GPU '1': there is only 0: 0000:53:00.0", "--xml", self.file("no_driver"),
                          "--gpu", "1")
        self.expect_error("--gpu: there is no GPU '0': this machine has no NVIDIA GPU", "--xml", self.file("no_gpu"),
                          "--gpu", "0")
        self.expect_error("there is no NIC 'mlx5_3': there are rdmap79s0 .* rdmap201s0", *xml, "--nics", "mlx5_3")
        self.expect_error("there is no NIC 'mlx5_0': this machine has no RDMA NIC", "--xml", self.file("no_nic"),
                          "--nics", "mlx5_0")
        for text in (",", "rdmap79s0,", "x" * 500):
            self.expect_error("NICs '.*': write names with commas between, as mlx5_0,mlx5_3", *xml, f"--nics={text}")

    def test_options(self):
        self.expect_error(r"unknown option '--gpus'; valid: --xml --gpu --nics --all --json --help --version", "--gpus")
        self.expect_error("unknown argument 'x'; there are only options, see --help", "x")
        self.expect_error("option '--xml' needs a value: FILE", "--xml")
        for option, value in (("--xml", "FILE"), ("--gpu", "GPU"), ("--nics", "LIST"), ("--json", "FILE")):
            self.expect_error(f"option '{option}' needs a value: {value}", f"{option}=")
        self.expect_error("option '--nics' needs a value: LIST", "--nics", "")
        xml = self.file("p5")
        self.expect_error(".*: is also the input .*", "--xml", xml, "--json", xml)
        self.expect_error("--json: /nowhere/x: cannot be opened: .*", "--xml", xml, "--json", "/nowhere/x")


if sys.argv[1:] == ["Captured"] and (CAPTURED is None or not CAPTURED.is_dir()):
    print("skipped: HALAGE_DATA names no folder with topologies")
    sys.exit(77)
unittest.main()
