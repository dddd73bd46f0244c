#!/usr/bin/env python3
"""Writes the topologies that tests need and that nobody could capture here, as hwloc would: from what the vendors say
of their machines. Sources stand beside each.

usage: machines.py DIRECTORY
"""

import pathlib
import sys
from xml.sax.saxutils import quoteattr

EFA_P5 = "1d0f:efa1"
EFA_P5EN = "1d0f:efa2"
CX7 = "15b3:1021"
CX6 = "15b3:101b"


class Writer:
    """hwloc's XML 2.0, as little of it as hwloc insists on."""

    def __init__(self, model):
        self.lines = []
        self.depth = 1
        self.number = 0
        self.model = model

    def add(self, text):
        self.lines.append("  " * self.depth + text)

    def open(self, kind, **attributes):
        self.number += 1
        words = "".join(f" {name}={quoteattr(str(value))}" for name, value in attributes.items())
        self.add(f'<object type="{kind}" gp_index="{self.number}"{words}>')
        self.depth += 1

    def close(self):
        self.depth -= 1
        self.add("</object>")

    def leaf(self, kind, **attributes):
        self.open(kind, **attributes)
        self.close()


def mask(bits):
    """A set of bits as hwloc writes it: words of 32, the highest first."""
    value = sum(1 << bit for bit in bits)
    words = []
    while value or not words:
        words.insert(0, f"0x{value & 0xFFFFFFFF:08x}")
        value >>= 32
    return ",".join(words)


def sets(cores, nodes, allowed=False):
    found = {"cpuset": mask(cores), "complete_cpuset": mask(cores), "nodeset": mask(nodes),
             "complete_nodeset": mask(nodes)}
    if allowed:
        found |= {"allowed_cpuset": mask(cores), "allowed_nodeset": mask(nodes)}
    return found


# ---- I/O. A device is a function of a writer. ----


def pci(writer, busid, pci_class, pci_id, osdev=None, kind=0, infos=()):
    """A PCI function; kinds of its OS device: 1 GPU, 2 network, 3 OpenFabrics."""
    writer.open("PCIDev", pci_busid=busid, pci_type=f"{pci_class} [{pci_id}] [{pci_id}] 00", pci_link_speed="31.5")
    if osdev:
        writer.open("OSDev", name=osdev, osdev_type=kind)
        for name, value in infos:
            writer.add(f'<info name="{name}" value="{value}"/>')
        writer.close()
    writer.close()


def gpu(busid, model="2330", uuid=None, pci_class="0302"):
    if uuid:
        return lambda w: pci(w, busid, pci_class, f"10de:{model}", f"nvml-{uuid[4:8]}", 1, [("NVIDIAUUID", uuid)])
    return lambda w: pci(w, busid, pci_class, f"10de:{model}")


def nic(busid, name, pci_id=CX7, pci_class="0207", state="4"):
    return lambda w: pci(w, busid, pci_class, pci_id, name, 3, [("Port1State", state)] if name else ())


def efa(bus, pci_id):
    """EFA's RDMA devices are called after their bus (rdma-core, rdma_rename)."""
    return nic(f"0000:{bus:02x}:00.0", f"rdmap{bus}s0", pci_id, "0200")


def ethernet(busid, name, pci_id):
    return lambda w: pci(w, busid, "0200", pci_id, name, 2)


def bridge(busid, buses, *below):
    """A PCI bridge: a root port, a port of a switch."""

    def write(writer):
        writer.open("Bridge", bridge_type="1-1", depth=1, bridge_pci=f"{busid[:4]}:[{buses}]", pci_busid=busid,
                    pci_type="0604 [1000:c030] [1000:c030] 00", pci_link_speed="31.5")
        for device in below:
            device(writer)
        writer.close()

    return write


def switch(busid, buses, *below):
    """A PCIe switch: its upstream port, and one downstream port for each device."""
    ports = [bridge(f"{busid[:-4]}{index + 1:02x}.0", buses, device) for index, device in enumerate(below)]
    return bridge(busid, buses, *ports)


def host(buses, *below, domain="0000"):
    def write(writer):
        writer.open("Bridge", bridge_type="0-1", depth=0, bridge_pci=f"{domain}:[{buses}]")
        for device in below:
            device(writer)
        writer.close()

    return write


class Package:
    """Physical cores first, then their second threads, as Linux numbers them on x86."""

    def __init__(self, cores, second, *below):
        self.cores = list(cores)
        self.second = second
        self.below = below

    def threads(self, core):
        return [core] if self.second is None else [core, core + self.second]

    def all_threads(self):
        return [thread for core in self.cores for thread in self.threads(core)]


def machine(model, *packages, below=()):
    """One NUMA node a package, numbered alike."""
    writer = Writer(model)
    everything = [thread for package in packages for thread in package.all_threads()]
    nodes = range(len(packages))
    writer.open("Machine", os_index=0, **sets(everything, nodes, allowed=True))
    writer.add(f'<info name="DMIProductName" value={quoteattr(model)}/>')
    for index, package in enumerate(packages):
        threads = package.all_threads()
        writer.open("Package", os_index=index, **sets(threads, [index]))
        writer.leaf("NUMANode", os_index=index, **sets(threads, [index]), local_memory=1 << 38)
        for core in package.cores:
            writer.open("Core", os_index=core, **sets(package.threads(core), [index]))
            for thread in package.threads(core):
                writer.leaf("PU", os_index=thread, **sets([thread], [index]))
            writer.close()
        for device in package.below:
            device(writer)
        writer.close()
    for device in below:
        device(writer)
    writer.close()
    return ('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
            '<topology version="2.0">\n' + "\n".join(writer.lines) + "\n</topology>\n")


# ---- The machines ----


def p5():
    """AWS p5.48xlarge: 8 H100, 32 EFA of 100 Gbit/s, 2 x 48 cores of AMD EPYC 7R13 (AWS, "Amazon EC2 P5 instances").
    Four EFA for each GPU behind one switch, four switches a socket, with these bus ids: aws-ofi-nccl,
    topology/p5.48xl-topo.xml; pytorch/torchtitan issue 1570 prints the same groups. The bus of a GPU is the one after
    its EFAs."""
    def group(first_bus):
        devices = [efa(first_bus + index, EFA_P5) for index in range(4)] + [gpu(f"0000:{first_bus + 4:02x}:00.0")]
        upstream = f"0000:{first_bus - 2:02x}:00.0"
        return host(f"{first_bus - 2:02x}-{first_bus + 4:02x}",
                    switch(upstream, f"{first_bus - 1:02x}-{first_bus + 4:02x}", *devices))

    return machine("p5.48xlarge",
                   Package(range(48), 96, *[group(bus) for bus in (0x4F, 0x60, 0x71, 0x82)]),
                   Package(range(48, 96), 96, *[group(bus) for bus in (0x93, 0xA4, 0xB5, 0xC6)]))


def p5en():
    """AWS p5en.48xlarge: 8 H200, 16 EFA of 200 Gbit/s, 2 x 48 cores of Intel Xeon (AWS, "Amazon EC2 P5 instances").
    NVIDIA/nccl issue 1597 prints which EFAs aws-ofi-nccl gives to which GPU: 55 56 | 57 58 | 6e 6f | 70 71 | ..., two
    GPUs and four EFAs behind one switch. Bus ids after the first two groups continue in the same step; those of GPUs
    are the two after their EFAs."""
    def group(first_bus):
        devices = [efa(first_bus + index, EFA_P5EN) for index in range(4)]
        devices += [gpu(f"0000:{first_bus + 4 + index:02x}:00.0", "2335") for index in range(2)]
        return host(f"{first_bus - 2:02x}-{first_bus + 5:02x}",
                    switch(f"0000:{first_bus - 2:02x}:00.0", f"{first_bus - 1:02x}-{first_bus + 5:02x}", *devices))

    return machine("p5en.48xlarge",
                   Package(range(48), 96, group(0x55), group(0x6E)),
                   Package(range(48, 96), 96, group(0x87), group(0xA0)))


def dgx_h100():
    """NVIDIA DGX H100: 8 H100, 8 single-port ConnectX-7 for the compute network and 2 of two ports for storage and
    management, 2 x 56 cores of Intel Xeon 8480C. RDMA names, interfaces (ibp24s0 is bus 0x18) and which GPU: DGX
    H100 User Guide, table "Network Modules". Switches, NUMA nodes and cores: `nvidia-smi topo -m` in vllm-project/vllm
    issue 6746 (PXB: by switches alone; NODE: of one NUMA node)."""
    def group(nic_bus, gpu_bus, name):
        return host(f"{nic_bus - 3:02x}-{gpu_bus:02x}",
                    switch(f"0000:{nic_bus - 2:02x}:00.0", f"{nic_bus - 1:02x}-{gpu_bus:02x}",
                           nic(f"0000:{nic_bus:02x}:00.0", name), gpu(f"0000:{gpu_bus:02x}:00.0")))

    def storage(bus, first, second):
        return host(f"{bus - 1:02x}-{bus:02x}",
                    bridge(f"0000:{bus - 1:02x}:01.0", f"{bus:02x}-{bus:02x}",
                           nic(f"0000:{bus:02x}:00.0", first), nic(f"0000:{bus:02x}:00.1", second, pci_class="0200")))

    return machine("DGXH100",
                   Package(range(56), 112, group(0x18, 0x1B, "mlx5_0"), storage(0x29, "mlx5_1", "mlx5_2"),
                           group(0x40, 0x43, "mlx5_3"), group(0x4F, 0x52, "mlx5_4"), group(0x5E, 0x61, "mlx5_5")),
                   Package(range(56, 112), 112, group(0x9A, 0x9D, "mlx5_6"), storage(0xAA, "mlx5_7", "mlx5_8"),
                           group(0xC0, 0xC3, "mlx5_9"), group(0xCE, 0xD1, "mlx5_10"), group(0xDC, 0xDF, "mlx5_11")))


def nd_h100_v5():
    """Azure ND96isr_H100_v5: 8 H100, 8 ConnectX-7 functions, 2 x 48 cores. A virtual machine of Hyper-V shows each device
    in a PCI domain of its own and no switch, so that no more than the NUMA node is known; which NIC is which GPU's, and
    the bus ids: Azure/azhpc-images, topology/ndv5-topo.xml, whose switches are made up to tell NCCL."""
    def devices(pairs):
        gpus = [host("00-00", gpu(f"{first:04x}:00:00.0"), domain=f"{first:04x}") for first, _ in pairs]
        nics = [host("00-00", nic(f"{second:04x}:00:00.0", f"mlx5_{second - 0x101}", "15b3:101e"), domain=f"{second:04x}")
                for _, second in pairs]
        return gpus + nics

    return machine("Virtual Machine",
                   Package(range(48), None, *devices([(1, 0x101), (2, 0x102), (3, 0x103), (8, 0x104)])),
                   Package(range(48, 96), None, *devices([(9, 0x105), (10, 0x106), (11, 0x107), (12, 0x108)])))


def workstation():
    """A workstation of one socket with two consumer GPUs on root ports of their own, and no RDMA: one also drives the
    screen (class 0300). AMD's and NVIDIA's data sheets know no other way to plug them in."""
    return machine("Workstation",
                   Package(range(16), 16,
                           host("00-61", bridge("0000:00:01.1", "01-01", gpu("0000:01:00.0", "2684", pci_class="0300")),
                                bridge("0000:00:01.3", "02-02", ethernet("0000:02:00.0", "enp2s0", "8086:15f3")),
                                bridge("0000:00:03.1", "61-61", gpu("0000:61:00.0", "2684", pci_class="0300")))))


def workstation_rdma():
    """The same with a ConnectX-6 on the root complex, of which the second port is down."""
    return machine("Workstation",
                   Package(range(16), 16,
                           host("00-61", bridge("0000:00:01.1", "01-01", gpu("0000:01:00.0", "2684", pci_class="0300")),
                                bridge("0000:00:01.3", "02-02", nic("0000:02:00.0", "mlx5_0", CX6, "0200"),
                                       nic("0000:02:00.1", "mlx5_1", CX6, "0200", "1")),
                                bridge("0000:00:03.1", "61-61",
                                       gpu("0000:61:00.0", "2684", "GPU-0a1b2c3d-0000-0000-0000-000000000001",
                                           "0300")))))


def no_nic():
    """A server of two sockets with four GPUs and Ethernet alone."""
    def pair(bus):
        return host(f"{bus:02x}-{bus + 3:02x}",
                    switch(f"0000:{bus:02x}:00.0", f"{bus + 1:02x}-{bus + 3:02x}",
                           gpu(f"0000:{bus + 2:02x}:00.0", "20b5"), gpu(f"0000:{bus + 3:02x}:00.0", "20b5")))

    network = host("20-21", bridge("0000:20:01.0", "21-21", ethernet("0000:21:00.0", "eno1", "8086:1563")))
    return machine("Server", Package(range(8), 16, pair(0x10), network), Package(range(8, 16), 16, pair(0x80)))


def no_gpu():
    """A server with a NIC and no GPU; the ASPEED chip of its management has class 0300, too."""
    def screen(writer):
        pci(writer, "0000:12:00.0", "0300", "1a03:2000")

    return machine("Server",
                   Package(range(8), 16,
                           host("10-13", bridge("0000:10:01.0", "11-11", nic("0000:11:00.0", "mlx5_0")),
                                bridge("0000:10:02.0", "12-12", screen))))


def no_driver():
    """p5-like, one group, before the driver of EFA is loaded: PCI functions, no RDMA devices."""
    devices = [nic(f"0000:{bus:02x}:00.0", None, EFA_P5, "0200") for bus in range(0x4F, 0x53)]
    below = switch("0000:4d:00.0", "4e-53", *devices, gpu("0000:53:00.0"))
    return machine("p5.4xlarge", Package(range(8), 8, host("4d-53", below)))


def unknown_place():
    """A virtual machine whose firmware says of no device where it is (numa_node is -1): hwloc hangs them under the
    machine. Then no NUMA node can be named, and every NIC is as near as the others."""
    gpus = host("00-05", *[gpu(f"0000:00:0{slot}.0", "20b0") for slot in (1, 2)])
    nics = host("10-15", *[nic(f"0000:10:0{slot}.0", f"mlx5_{slot - 1}", "15b3:101e") for slot in (1, 2)])
    return machine("Virtual Machine", Package(range(4), None), Package(range(4, 8), None), below=[gpus, nics])


def virtual_functions():
    """A host that shares one ConnectX out: mlx5_0 is the physical function, mlx5_1 and mlx5_2 are virtual ones of it
    (device id 101e: pci.ids, "ConnectX Family mlx5Gen Virtual Function"). Their bandwidth is that of mlx5_0."""
    def functions(writer):
        for function, pci_id in enumerate((CX7, "15b3:101e", "15b3:101e")):
            nic(f"0000:13:00.{function}", f"mlx5_{function}", pci_id)(writer)

    below = switch("0000:10:00.0", "11-13", gpu("0000:12:00.0"), functions)
    return machine("Server", Package(range(8), None, host("10-14", below)))


def nested():
    """A switch within a switch, as in DGX-2: GPU 0 has a NIC beside it, GPU 1 has none on its own inner switch and
    both as far. The NIC beside GPU 0 is GPU 0's."""
    with_nic = switch("0000:12:00.0", "13-15", gpu("0000:14:00.0"), nic("0000:15:00.0", "mlx5_0"))
    without = switch("0000:22:00.0", "23-24", gpu("0000:24:00.0"))
    outer = switch("0000:10:00.0", "11-30", with_nic, without, nic("0000:2a:00.0", "mlx5_1"))
    return machine("Server", Package(range(8), None, host("10-30", outer)))


MACHINES = (p5, p5en, dgx_h100, nd_h100_v5, workstation, workstation_rdma, no_nic, no_gpu, no_driver, unknown_place,
            virtual_functions, nested)


def write_all(directory):
    for make in MACHINES:
        (pathlib.Path(directory) / f"{make.__name__}.xml").write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write_all(sys.argv[1])
