"""The wheel works alone: installed into an empty environment, outside of the checkout."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def wheel(
    tmp_path_factory: pytest.TempPathFactory,
    alone_in_build: Callable[[], contextlib.AbstractContextManager[None]],
) -> Path:
    """A wheel of this checkout, from the objects that 'make build' compiled."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    settings = ["build-dir=build/native", "cmake.define.DAQIRI_WERROR=ON"]
    options = [f"--config-settings={setting}" for setting in settings]
    with alone_in_build():
        subprocess.run([*pip, *options, "-w", folder, "."], cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment whose daqiri_ophyd must come from the wheel; it shares the dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, wheel], check=True)
    # A path line adds packages without running the .pth files there, so without the editable
    # install.
    site = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def run(environment: Path, *command: str, cwd: Path) -> str:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        [environment / "bin" / command[0], *command[1:]],
        cwd=cwd,
        env=clean,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_contents(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "daqiri_ophyd/plans/__init__.py" in names
    assert "daqiri_ophyd/profiles/loopback.yaml" in names
    assert "daqiri_ophyd/py.typed" in names
    assert [n for n in names if re.fullmatch(r"daqiri_ophyd/_native\..*\.so", n)]
    release = "-".join(wheel.name.split("-")[:2])
    assert {n.split("/")[0] for n in names} == {
        "daqiri_ophyd",
        f"{release}.dist-info",
        f"{release}.data",
    }
    assert [n for n in names if n.startswith(f"{release}.data/")] == [
        f"{release}.data/data/share/man/man1/daqiri-ophyd.1"
    ]


def libraries_of(file: Path) -> set[str]:
    needed = subprocess.check_output(["objdump", "-p", file], text=True)
    return set(re.findall(r"NEEDED\s+(\S+)\.so", needed))


def test_the_extension_needs_the_library_beside_it(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    package = tmp_path / "daqiri_ophyd"
    (extension,) = package.glob("_native.*.so")
    (library,) = package.glob("libdaqiri.so*")
    assert re.fullmatch(r"libdaqiri\.so\.[0-9]+", library.name)
    system = {
        "libyaml-cpp",
        "libhdf5",
        "libhdf5_serial",
        "libstdc++",
        "libm",
        "libgcc_s",
        "libc",
        "ld-linux-x86-64",
    }
    assert libraries_of(extension) <= system | {"libdaqiri"}
    assert libraries_of(library) <= system
    paths = subprocess.check_output(["objdump", "-p", extension], text=True)
    assert re.findall(r"(RPATH|RUNPATH)\s+(\S+)", paths) == [("RPATH", "$ORIGIN")]


def test_the_package_is_the_wheels(environment: Path, tmp_path: Path) -> None:
    code = "import daqiri_ophyd.engine, daqiri_ophyd.plans as p; print(p.__file__)"
    file = Path(run(environment, "python", "-W", "error", "-c", code, cwd=tmp_path).strip())
    assert file.is_relative_to(environment)


def test_the_program_of_gpu_check_can_be_run(environment: Path) -> None:
    site = sysconfig.get_path(
        "platlib", vars={"base": f"{environment}", "platbase": f"{environment}"}
    )
    assert os.access(Path(site, "daqiri_ophyd", "bench_gpu"), os.X_OK)


def test_man_finds_the_page(environment: Path) -> None:
    page = environment / "share" / "man" / "man1" / "daqiri-ophyd.1"
    assert page.read_bytes() == (ROOT / "docs" / "man" / "daqiri-ophyd.1").read_bytes()
    if shutil.which("man") is None:
        pytest.skip("needs man")
    path = f"{environment / 'bin'}:{os.environ['PATH']}"
    clean = {key: value for key, value in os.environ.items() if key != "MANPATH"}
    found = subprocess.check_output(
        ["man", "-w", "daqiri-ophyd"], env=clean | {"PATH": path}, text=True
    )
    assert Path(found.strip()) == page


def test_demo(environment: Path, tmp_path: Path) -> None:
    command = ["daqiri-ophyd", "demo", "--packets", "2000", "--json"]
    result = json.loads(run(environment, *command, cwd=tmp_path))
    assert result["sent"] == result["received"] == 2000
    assert result["dropped"] == 0
    assert result["replay"]["sent"] == result["replay"]["received"] == 2000
    assert Path(result["picture"]).read_bytes().startswith(b"\x89PNG")
    for file in result["files"]:
        assert Path(file).stat().st_size > 24
