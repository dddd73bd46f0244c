"""What the virtual machine boots: a kernel and its modules out of Debian's package, and an archive in memory."""

import gzip
import lzma
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile

KERNEL_META = "linux-image-amd64"
MODULES_WANTED = ["crc32_generic", "crc32c_generic", "ib_uverbs", "rdma_ucm", "rdma_rxe", "dummy"]
MODULES_WHERE = ["drivers/infiniband", "drivers/net/dummy", "net/ipv4", "net/ipv6", "fs/configfs", "lib", "crypto"]


class Missing(Exception):
    """What this machine lacks, in a sentence: the test is skipped."""


def command(*words, **keywords):
    return subprocess.run(words, check=True, capture_output=True, text=True, **keywords).stdout


def kernel_package():
    """The package that Debian's linux-image-amd64 stands for at present."""
    try:
        listing = command("apt-cache", "depends", KERNEL_META)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing("there is no apt that knows " + KERNEL_META) from error
    names = re.findall(r"Depends: (linux-image-\S+)", listing)
    if not names:
        raise Missing(f"apt knows no package {KERNEL_META}: run apt-get update")
    return names[0]


def unpack_kernel(work, target):
    name = kernel_package()
    try:
        command("apt-get", "-o", "APT::Sandbox::User=root", "download", name, cwd=work)
    except subprocess.CalledProcessError as error:
        raise Missing(f"the package {name} cannot be downloaded: {error.stderr.strip().splitlines()[-1:]}") from error
    package = next(pathlib.Path(work).glob("*.deb"))
    patterns = ["./boot/vmlinuz-*"] + [f"./lib/modules/*/kernel/{where}*" for where in MODULES_WHERE]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x", "-C", target, "--wildcards", *patterns], stdin=archive.stdout, check=True)


def kernel(cache):
    """The directory of an unpacked kernel: that of the cache, or a new one that then lies there."""
    place = cache / "rxe-kernel"
    if not place.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            target = pathlib.Path(work) / "kernel"
            target.mkdir()
            unpack_kernel(work, target)
            target.rename(place)
    return place


def module_bytes(path):
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def modules(place):
    """[(name, bytes)] of the modules that are wanted and those that they need, these first."""
    found = {}
    for path in sorted(place.glob("lib/modules/*/kernel/**/*.ko*")):
        found[path.name.split(".")[0].replace("-", "_")] = path
    order = []

    def add(name):
        if name in [known for known, _ in order]:
            return
        if name not in found:
            raise SystemExit(f"rxe: the kernel's package has no module {name}")
        data = module_bytes(found[name])
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        for needed in filter(None, depends.group(1).decode().split(",") if depends else []):
            add(needed)
        order.append((name, data))

    for name in MODULES_WANTED:
        add(name)
    return order


def libraries(programs):
    """The shared libraries of programs, and the loader, as absolute paths."""
    paths = set()
    for program in programs:
        for line in command("ldd", str(program)).splitlines():
            if "not found" in line:
                raise SystemExit(f"rxe: {program}: {line.strip()}")
            paths.update(re.findall(r"(?:=> )?(/\S+) \(0x", line))
    return sorted(paths)


class Archive:
    """Files of an initramfs, as the kernel's "newc" format of cpio has them."""

    def __init__(self):
        self.entries = {}

    def add(self, path, data, mode=stat.S_IFREG | 0o644):
        path = path.lstrip("/")
        parent = os.path.dirname(path)
        if parent and parent not in self.entries:
            self.add(parent, b"", stat.S_IFDIR | 0o755)
        self.entries[path] = (mode, data)

    def add_program(self, path, source):
        self.add(path, pathlib.Path(source).read_bytes(), stat.S_IFREG | 0o755)

    def write(self, path):
        with gzip.open(path, "wb", compresslevel=1) as out:
            for number, name in enumerate(sorted(self.entries) + ["TRAILER!!!"], 1):
                mode, data = self.entries.get(name, (0, b""))
                fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
                head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
                out.write(head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4))


def which(program, package):
    path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise Missing(f"{program} is missing: install {package} (tools/setup --full)")
    return path


def rxe_driver():
    """The user-space driver of soft-RoCE, which libibverbs loads by name."""
    found = sorted(pathlib.Path("/usr/lib").glob("*/libibverbs/librxe-*.so"))
    if not found or not pathlib.Path("/etc/libibverbs.d/rxe.driver").exists():
        raise Missing("libibverbs has no driver rxe: install ibverbs-providers (tools/setup --full)")
    return str(found[0])


def build(path, place, programs, node, jobs):
    """Write the archive: `programs` [path] go to /bin, `jobs` is the script that init reads."""
    here = pathlib.Path(__file__).parent
    archive = Archive()
    archive.add("init", (here / "init").read_bytes().replace(b"$NODE", node.encode()), stat.S_IFREG | 0o755)
    archive.add("jobs", jobs.encode())
    archive.add_program("bin/busybox", which("busybox", "busybox-static"))
    dynamic = [which("rdma", "iproute2"), *programs]
    for program in dynamic:
        archive.add_program("bin/" + os.path.basename(program), program)
    driver = rxe_driver()
    archive.add_program(driver, driver)
    for library in libraries([*dynamic, driver]):
        archive.add_program(library, library)
    archive.add("etc/libibverbs.d/rxe.driver", b"driver rxe\n")
    archive.add("etc/hosts", b"127.0.0.1 localhost\n")  # rdma_getaddrinfo() needs these two
    archive.add("etc/nsswitch.conf", b"hosts: files\n")
    order = modules(place)
    for name, data in order:
        archive.add(f"modules/{name}.ko", data)
    archive.add("modules/order", "".join(f"{name}.ko\n" for name, _ in order).encode())
    archive.write(path)
