"""A C++ program of a user, against the installed tree, exactly as the how-to guide says."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "how-to" / "use-the-cpp-library.md"


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def guide_block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found, f"{GUIDE} has no {language} block"
    return found[1]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "example.cpp").write_text(guide_block("cpp"))
    (tmp_path / "CMakeLists.txt").write_text(guide_block("cmake"))
    return tmp_path


@pytest.fixture
def library(prefix: Path) -> Path:
    (library,) = prefix.rglob("libdaqiri.so")
    return library.parent


def version() -> str:
    found = re.search(r'^version = "(.*?)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found
    return found[1]


def test_cmake_package(prefix: Path, program: Path) -> None:
    configure = ["cmake", "-G", "Ninja", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    run(*configure, cwd=program)
    run("cmake", "--build", "build", cwd=program)
    assert run("build/example", cwd=program).strip() == version()


def test_pkg_config(library: Path, program: Path) -> None:
    search = {"PKG_CONFIG_PATH": str(library / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "daqiri", cwd=program, **search).split()
    run("g++", "example.cpp", "-o", "example", *flags, cwd=program)
    assert run("./example", cwd=program, LD_LIBRARY_PATH=str(library)).strip() == version()
    assert run("pkg-config", "--modversion", "daqiri", cwd=program, **search).strip() == version()


def test_every_header_compiles_alone(prefix: Path, tmp_path: Path) -> None:
    folder = prefix / "include"
    headers = sorted(header.relative_to(folder) for header in (folder / "daqiri").rglob("*.h"))
    assert headers
    for header in headers:
        (tmp_path / "alone.cpp").write_text(f"#include <{header}>\n")
        flags = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
        run("g++", *flags, f"-I{folder}", "alone.cpp", cwd=tmp_path)


def test_a_tree_can_move(
    prefix: Path, program: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    moved = tmp_path_factory.mktemp("moved") / "daqiri"
    shutil.copytree(prefix, moved, symlinks=True)
    (pc,) = moved.rglob("daqiri.pc")
    search = {"PKG_CONFIG_PATH": str(pc.parent)}
    assert str(moved) in run("pkg-config", "--cflags", "daqiri", cwd=program, **search)
