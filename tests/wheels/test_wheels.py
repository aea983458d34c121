"""The wheels of ``make wheels``: what they need, and that they work where nothing else is."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import CERTIFICATES, System, debootstrapped

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.root, pytest.mark.wheels, pytest.mark.timeout(900)]

# What any Linux with Python has; the loaders have the processor in their names.
SYSTEM = {
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "libstdc++.so.6",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}


def test_nothing_else_is_needed(
    wheels: list[Path], needed_libraries: Callable[[Path], set[str]], tmp_path: Path
) -> None:
    assert wheels
    for wheel in wheels:
        folder = tmp_path / wheel.stem
        zipfile.ZipFile(wheel).extractall(folder)
        package = folder / "daqiri_ophyd"
        (extension,) = package.glob("_native.*.so")
        assert extension.name.split("-")[1] == wheel.name.split("-")[2].removeprefix("cp")
        own = [package / "libdaqiri.so.1", package / "bench_gpu", *package.glob("daqiri-engines/*")]
        for file in own:
            assert needed_libraries(file) <= SYSTEM | {"libdaqiri.so.1"}, file
        assert needed_libraries(extension) <= SYSTEM | {"libdaqiri.so.1"}
        assert {file.name for file in (package / "licenses").iterdir()} == {"hdf5", "yaml-cpp"}


def test_a_bare_system_runs_the_demo(bare_system: System) -> None:
    programs = bare_system.root / "usr" / "bin"
    assert not [name for name in ("cc", "gcc", "g++") if (programs / name).exists()]
    result = json.loads(bare_system.run("daqiri-ophyd", "demo", "--packets", "2000", "--json"))
    assert result["received"] == result["replay"]["received"] == 2000
    assert result["dropped"] == 0


def test_a_bare_system_records_frames(bare_system: System) -> None:
    command = ["daqiri-ophyd", "demo", "--profile", "frames", "--json", "--output", "frames"]
    result = json.loads(bare_system.run(*command))
    for file in result["files"]:
        bare_system.run("daqiri-ophyd", "frames", "check", file)


def test_the_container_file_builds_and_runs(wheels: list[Path], tmp_path: Path) -> None:
    """Without a container engine: as changes of the root folder, which needs no namespaces."""
    if not any(wheel.name.endswith("cp313-manylinux_2_31_x86_64.whl") for wheel in wheels):
        pytest.skip("no wheel of CPython 3.13, which Containerfile installs")
    storage = ["--root", tmp_path / "storage", "--runroot", tmp_path / "run"]

    def buildah(*arguments: str | Path) -> str:
        command = ["buildah", *storage, "--storage-driver", "vfs", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    system = debootstrapped(tmp_path / "debian", "trixie", "ca-certificates")
    base = buildah("from", "scratch")
    buildah("add", "--quiet", base, system.root, "/")
    # Where this machine's pip and apt get their packages.
    buildah("config", "--env", f"PIP_CERT={CERTIFICATES}", base)
    buildah("commit", "--quiet", base, "docker.io/library/debian:13-slim")
    isolated = ["--isolation", "chroot"]
    buildah("build", *isolated, "--pull-never", "-t", "daqiri-ophyd", "-f", "Containerfile", ".")
    container = buildah("from", "--pull-never", "daqiri-ophyd")
    command = ["daqiri-ophyd", "demo", "--packets", "2000", "--json"]
    result = json.loads(buildah("run", *isolated, container, "--", *command))
    assert result["received"] == result["replay"]["received"] == 2000


def test_another_processor_imports_it(wheels: list[Path], tmp_path: Path) -> None:
    """Under emulation, with the libraries and the Python of Debian 12 for that processor."""
    chosen = [wheel for wheel in wheels if wheel.name.endswith("cp311-manylinux_2_31_aarch64.whl")]
    if not chosen:
        pytest.skip("no wheel of CPython 3.11 for aarch64: ARCH=aarch64 .ci/wheel makes one")
    root, site = tmp_path / "root", tmp_path / "site"
    packages = "--include=libpython3-stdlib,libstdc++6,python3-minimal"
    command = ["mmdebstrap", "-q", "--variant=extract", "--architectures=arm64", packages]
    subprocess.run(
        [*command, "bookworm", root, "http://deb.debian.org/debian"],
        check=True,
        capture_output=True,
    )
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 28, 31)]
    pip = [sys.executable, "-m", "pip", "install", "-q", f"--target={site}", "--no-warn-conflicts"]
    pip += ["--python-version=3.11", "--implementation=cp", "--only-binary=:all:", *platforms]
    subprocess.run([*pip, "numpy", "pyyaml", "rich", "typer"], check=True)
    subprocess.run([*pip, "--no-deps", *chosen], check=True)
    emulated = ["qemu-aarch64-static", "-L", root, root / "usr/bin/python3.11"]
    done = subprocess.run(
        [*emulated, "-m", "daqiri_ophyd", "info", "--json"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["engines"]["loopback"] == "available"
