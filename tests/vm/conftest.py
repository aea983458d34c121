"""A virtual machine with a separate kernel over this machine's files: QEMU in software."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Seconds for booting and a job; it takes a tenth of it on a machine that has nothing else to do.
TIMEOUT = 240
HERE = Path(__file__).parent
KERNEL = HERE.parents[1] / "build" / "vm"
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


@pytest.fixture(scope="module")
def in_guest(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return a function that runs a Python program in a guest and returns the JSON it writes.

    The program gets the path to write to. The guest has the host's files, root, and the named
    kernel modules.
    """

    def run(program: Path, *modules: str) -> Any:
        folder = tmp_path_factory.mktemp("guest")
        results = folder / "results"
        results.mkdir()
        job = ["set -eu", "export HOME=/root PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"]
        job += [f"modprobe -d {KERNEL} {module}" for module in modules]
        python = [sys.executable, str(program), "/mnt/result.json"]
        job += ["ip link set lo up", f"cd {KERNEL.parents[1]}", shlex.join(python)]
        (results / "job").write_text("\n".join(job) + "\n")
        release = kernel_release()
        shares = []
        for tag, path, access in (("host", "/", "on"), ("results", results, "off")):
            shares += [
                "-fsdev",
                f"local,id={tag},path={path},security_model=none,readonly={access},multidevs=remap",
                "-device",
                f"virtio-9p-pci,fsdev={tag},mount_tag={tag}",
            ]
        command = ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max"]
        command += ["-smp", str(min(2, os.cpu_count() or 1)), "-m", "2G", "-nodefaults"]
        command += ["-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"]
        command += ["-kernel", str(KERNEL / "boot" / f"vmlinuz-{release}")]
        command += ["-initrd", str(write_initrd(folder)), "-append"]
        command += [
            "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on no_timer_check"
        ]
        console = folder / "console"
        with console.open("wb") as out:
            subprocess.run(
                [*command, *shares],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT,
                check=True,
            )
        said = console.read_text(errors="replace")
        status = re.search(r"guest: exit status (\d+)", said)
        assert status and status[1] == "0", said
        return json.loads((results / "result.json").read_text())

    return run
