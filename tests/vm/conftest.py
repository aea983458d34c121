"""Virtual machines by QEMU in software: a kernel over the host's files, or a disk with Debian."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

# Seconds for booting and a job; it takes a tenth of it on a machine that has nothing else to do.
TIMEOUT = 500
DISK_TIMEOUT = 900
HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
KERNEL = CHECKOUT / "build" / "vm"
DISK = CHECKOUT / "build" / "guest" / "disk.img"
DPDK = CHECKOUT / "build" / "dpdk" / "native" / "daqiri-engines"
# Debian's, and a newer one for devices that it lacks.
QEMU = "qemu-system-x86_64"
NEWER_QEMU = CHECKOUT / "build" / "qemu" / "run"
# What the first process needs to reach the host's files.
BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")


def kernel_release() -> str:
    return next((KERNEL / "lib" / "modules").iterdir()).name


def module_files(module: str) -> list[Path]:
    """Return the files of a module and of those it needs, in the order of loading."""
    said = subprocess.run(
        ["modprobe", "-d", KERNEL, "-S", kernel_release(), "--show-depends", module],
        check=True,
        capture_output=True,
        text=True,
    )
    return [Path(line.split()[1]) for line in said.stdout.splitlines() if "insmod" in line]


def write_initrd(folder: Path) -> Path:
    """Pack busybox, the modules and the first process."""
    tree = folder / "initrd"
    (tree / "bin").mkdir(parents=True)
    (tree / "modules").mkdir()
    busybox = tree / "bin" / "busybox"
    busybox.write_bytes(Path("/bin/busybox").read_bytes())
    init = tree / "init"
    init.write_text((HERE / "init").read_text())
    for program in (busybox, init):
        program.chmod(0o755)
    order: dict[str, Path] = {}
    for module in BOOT_MODULES:
        order |= {file.name: file for file in module_files(module)}
    for name, file in order.items():
        (tree / "modules" / name).write_bytes(file.read_bytes())
    (tree / "modules" / "order").write_text("".join(f"{name}\n" for name in order))
    packed = folder / "initrd.cpio"
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    with packed.open("wb") as out:
        subprocess.run(
            ["cpio", "--quiet", "-o", "-H", "newc"],
            cwd=tree,
            input=names.encode(),
            stdout=out,
            check=True,
        )
    return packed


def run_qemu(
    options: Sequence[str],
    results: Path,
    console: Path,
    timeout: float,
    qemu: str | Path = QEMU,
) -> None:
    """Run a machine until it is switched off, with the host's files and a folder to write to."""
    command = [
        str(qemu),
        "-M",
        "q35",
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max,vendor=GenuineIntel",
    ]
    command += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    command += ["-serial", "stdio", *options]
    for tag, path, access in (("host", "/", "on"), ("results", results, "off")):
        command += [
            "-fsdev",
            f"local,id={tag},path={path},security_model=none,readonly={access},multidevs=remap",
            "-device",
            f"virtio-9p-pci,fsdev={tag},mount_tag={tag}",
        ]
    # The path of a socket has 107 bytes at most.
    with tempfile.TemporaryDirectory() as sockets, console.open("wb") as out:
        monitor = Path(sockets) / "monitor"
        command += ["-qmp", f"unix:{monitor},server=on,wait=off"]
        machine = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            end = time.monotonic() + timeout
            while machine.poll() is None:
                if time.monotonic() > end:
                    raise subprocess.TimeoutExpired(command, timeout)
                pass_on(results, monitor)
                time.sleep(0.1)
        finally:
            machine.kill()
            machine.wait()
    assert machine.returncode == 0, console.read_text(errors="replace")


def pass_on(results: Path, monitor: Path) -> None:
    """Give the guest's wish to QEMU's monitor (see ``guest_monitor``), if there is one."""
    wish = results / "monitor.wish"
    if not wish.exists():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(30)
        connection.connect(str(monitor))
        with connection.makefile("rw") as lines:
            answer: dict[str, Any] = {}
            for command in ('{"execute": "qmp_capabilities"}', wish.read_text()):
                lines.write(command + "\n")
                lines.flush()
                # Between them are the greeting and events.
                answer = next(
                    said for said in map(json.loads, lines) if {"return", "error"} & said.keys()
                )
    wish.unlink()
    partial = results / "monitor.partial"
    partial.write_text(json.dumps(answer))
    partial.rename(results / "monitor.answer")


@pytest.fixture(scope="module")
def in_guest(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return a function that runs a Python program in a guest and returns the JSON it writes.

    The program gets the path to write to. The guest has the host's files, root, the named kernel
    modules, these words on its kernel command line, devices as options of QEMU, and variables.
    """

    def run(
        program: Path,
        *modules: str,
        command_line: str = "",
        devices: Sequence[str] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
        qemu: str | Path = QEMU,
    ) -> Any:
        folder = tmp_path_factory.mktemp("guest")
        results = folder / "results"
        results.mkdir()
        job = ["set -eu", "export HOME=/root PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"]
        job += [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
        job += [f"modprobe -d {KERNEL} {module}" for module in modules]
        python = [sys.executable, str(program), "/mnt/result.json"]
        job += ["ip link set lo up", f"cd {CHECKOUT}", shlex.join(python)]
        (results / "job").write_text("\n".join(job) + "\n")
        options = ["-smp", str(min(2, os.cpu_count() or 1)), "-m", "2G"]
        options += ["-kernel", str(KERNEL / "boot" / f"vmlinuz-{kernel_release()}")]
        options += [*devices, "-initrd", str(write_initrd(folder)), "-append"]
        options += [
            "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on no_timer_check "
            + command_line
        ]
        console = folder / "console"
        run_qemu(options, results, console, TIMEOUT, qemu)
        said = console.read_text(errors="replace")
        status = re.search(r"guest: exit status (\d+)", said)
        assert status and status[1] == "0", said
        return json.loads((results / "result.json").read_text())

    return run


@pytest.fixture(scope="module")
def with_cards(in_guest: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs a Python program of engine ``dpdk``, as ``in_guest`` does.

    Its guest has two network cards of a kind, on one wire and behind an IOMMU.
    """

    def run(program: Path, card: str, *modules: str) -> Any:
        if not (DPDK / "daqiri_engine_dpdk.so").exists():
            pytest.skip("needs engine dpdk in build/dpdk: run `make dpdk`")
        qemu = NEWER_QEMU if card == "igb" else QEMU
        if card == "igb" and not NEWER_QEMU.exists():
            pytest.skip("needs QEMU 8 or newer, with the card igb: run `make build/qemu/run`")
        # A process has addresses of 47 bits; QEMU's IOMMU has 39 unless told.
        devices = ["-device", "intel-iommu,aw-bits=48"]
        for number in (1, 2):
            devices += ["-netdev", f"hubport,hubid=1,id=wire{number}"]
            devices += ["-device", f"pcie-root-port,id=root{number},chassis={number},slot={number}"]
            place = f"id=card{number},bus=root{number},netdev=wire{number}"
            devices += ["-device", f"{card},{place},mac=02:00:00:00:00:0{number},romfile="]
        return in_guest(
            program,
            *(*modules, "vfio-pci", "vfio_iommu_type1"),
            command_line="intel_iommu=on iommu=pt",
            devices=devices,
            environment={"DAQIRI_ENGINE_PATH": str(DPDK), "CARD": card},
            qemu=qemu,
        )

    return run


class DiskGuest:
    """A machine with GRUB, systemd and a disk that keeps what jobs change.

    Two sockets of one core with two threads each, NUMA nodes of 1 GiB, and the NIC enp0s5.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._disk = folder / "disk.qcow2"
        subprocess.run(
            ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", DISK, self._disk],
            check=True,
        )
        self._boots = 0

    def boot(self, job: str) -> Path:
        """Boot, run a job (lines of bash), switch off; return the folder that the job wrote to.

        The folders of the boots before are beside it. The checkout is where it is on this machine,
        read-only, with the same Python.
        """
        self._boots += 1
        results = self._folder / f"boot{self._boots}"
        results.mkdir()
        lines = ["set -eu", "systemctl is-system-running --wait || true"]
        for folder in {CHECKOUT, Path(sys.base_prefix)} - {Path("/usr")}:
            lines += [f"mkdir -p {folder}", f"mount --bind /host{folder} {folder}"]
        lines += [f"export PATH={Path(sys.executable).parent}:$PATH", job]
        (results / "job").write_text("\n".join(lines) + "\n")
        (self._folder / "boot").write_text(results.name)
        machine = ["-smp", "4,sockets=2,cores=1,threads=2", "-m", "2G"]
        for node in (0, 1):
            cpus = f"{2 * node}-{2 * node + 1}"
            machine += ["-object", f"memory-backend-ram,size=1G,id=m{node}"]
            machine += ["-numa", f"node,nodeid={node},cpus={cpus},memdev=m{node}"]
        machine += ["-drive", f"file={self._disk},if=virtio,format=qcow2"]
        machine += ["-netdev", "hubport,id=wire,hubid=0"]
        machine += ["-device", "e1000e,netdev=wire,addr=5,mac=02:00:00:00:00:05"]
        console = results / "console"
        run_qemu(machine, self._folder, console, DISK_TIMEOUT)
        status = results / "status"
        assert status.exists(), console.read_text(errors="replace")
        assert status.read_text().strip() == "0", (results / "output").read_text()
        return results


@pytest.fixture(scope="module")
def disk_guest(tmp_path_factory: pytest.TempPathFactory) -> DiskGuest:
    """A guest as Debian installs it."""
    return DiskGuest(tmp_path_factory.mktemp("disk"))
