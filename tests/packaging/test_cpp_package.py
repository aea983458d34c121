"""A user's C++ program with the installed package, as described in the how-to guide."""

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


def guide_block(language: str, section: str = "") -> str:
    """The first in the section."""
    text = GUIDE.read_text()
    found = re.search(rf"```{language}\n(.*?)```", text[text.index(section) :], re.DOTALL)
    assert found, f"{GUIDE} has no {language} block in '{section}'"
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


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_a_configuration_in_code(standard: str, library: Path, program: Path) -> None:
    (program / "code.cpp").write_text(f"""
        #include <arpa/inet.h>
        #include <cstdio>
        #include <daqiri/daqiri.h>
        void check(daqiri::Status status) {{
          if (status != daqiri::Status::SUCCESS) std::puts(daqiri::last_error());
        }}
        int main() {{
          {guide_block("cpp", "## Configure in code")}
          const auto& flow_used = config.ifs_[0].rx_.flows_[0];
          std::printf("%d %d", daqiri::get_port_id("port"), flow_used.match_.udp_dst_.lo);
          daqiri::shutdown();
        }}
    """)
    search = {"PKG_CONFIG_PATH": str(library / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "daqiri", cwd=program, **search).split()
    run(
        "g++", f"-std={standard}", "-Wall", "-Werror", "code.cpp", "-o", "code", *flags, cwd=program
    )
    assert run("./code", cwd=program, LD_LIBRARY_PATH=str(library)) == "0 5000"


WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow"]
ONLY_CHECK = [*WARNINGS, "-Werror", "-fsyntax-only"]
DOCUMENTED = {"daqiri.h", "common.h", "types.h", "logging.hpp", "version.h"}


@pytest.fixture
def headers(prefix: Path) -> list[str]:
    return sorted(header.name for header in (prefix / "include" / "daqiri").iterdir())


def test_every_header_compiles_alone(headers: list[str], prefix: Path, tmp_path: Path) -> None:
    """The older language's standard headers include fewer of each other."""
    assert set(headers) > DOCUMENTED
    sources = [f"{number}.cpp" for number in range(len(headers))]
    for source, header in zip(sources, headers, strict=True):
        (tmp_path / source).write_text(f"#include <daqiri/{header}>\n")
    run("g++", "-std=c++17", *ONLY_CHECK, f"-I{prefix / 'include'}", *sources, cwd=tmp_path)


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
@pytest.mark.parametrize("compiler", ["g++", "clang++", "nvcc"])
def test_headers_compile_without_a_warning(
    compiler: str, standard: str, headers: list[str], prefix: Path, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    source = "all.cu" if compiler == "nvcc" else "all.cpp"
    (tmp_path / source).write_text("".join(f"#include <daqiri/{header}>\n" for header in headers))
    if compiler == "nvcc":
        # Generated files have other warnings.
        flags = ["-c", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Wshadow"]
    else:
        flags = ONLY_CHECK
    run(compiler, f"-std={standard}", *flags, f"-I{prefix / 'include'}", source, cwd=tmp_path)


def test_an_older_language_is_told_of(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "old.cpp").write_text("#include <daqiri/daqiri.h>\n")
    flags = ["-std=c++14", "-fsyntax-only", f"-I{prefix / 'include'}"]
    done = subprocess.run(["g++", *flags, "old.cpp"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "daqiri needs C++17" in done.stderr


def test_the_library_has_an_interface_number_of_its_own(library: Path, program: Path) -> None:
    search = {"PKG_CONFIG_PATH": str(library / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "daqiri", cwd=program, **search).split()
    year, month, patch = version().split(".")
    (program / "numbers.cpp").write_text(f"""
        #include <cstdio>
        #include <daqiri/daqiri.h>
        static_assert(DAQIRI_VERSION_YEAR == {year} && daqiri::version_year() == {year});
        static_assert(DAQIRI_VERSION_MONTH == {month} && daqiri::version_month() == {month});
        static_assert(DAQIRI_VERSION_PATCH == {patch} && daqiri::version_patch() == {patch});
        static_assert(DAQIRI_ABI_VERSION == daqiri::abi_version());
        int main() {{
            daqiri::shutdown();
            std::printf("%s %d", DAQIRI_VERSION, daqiri::abi_version());
        }}
    """)
    run("g++", "-std=c++17", "numbers.cpp", "-o", "numbers", *flags, cwd=program)
    text, number = run("./numbers", cwd=program, LD_LIBRARY_PATH=str(library)).split()
    assert text == version()
    assert (library / f"libdaqiri.so.{number}").exists()
    assert f"libdaqiri.so.{number}" in run("ldd", "numbers", cwd=program)


@pytest.mark.parametrize(("wanted", "found"), [("2024.1", True), ("", True), ("9999.1", False)])
def test_the_year_does_not_make_it_another_library(
    wanted: str, found: bool, prefix: Path, tmp_path: Path
) -> None:
    (tmp_path / "CMakeLists.txt").write_text(f"""
        cmake_minimum_required(VERSION 3.25)
        project(wants LANGUAGES CXX)
        find_package(daqiri {wanted})
        message(STATUS "found: ${{daqiri_FOUND}}")
        if(daqiri_FOUND)
          get_target_property(features daqiri::daqiri INTERFACE_COMPILE_FEATURES)
          message(STATUS "language: ${{features}}")
        endif()
    """)
    configure = ["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    told = run(*configure, cwd=tmp_path)
    assert f"found: {int(found)}" in told
    assert not found or "language: cxx_std_17" in told


def test_a_tree_can_move(
    prefix: Path, program: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    moved = tmp_path_factory.mktemp("moved") / "daqiri"
    shutil.copytree(prefix, moved, symlinks=True)
    (pc,) = moved.rglob("daqiri.pc")
    search = {"PKG_CONFIG_PATH": str(pc.parent)}
    assert str(moved) in run("pkg-config", "--cflags", "daqiri", cwd=program, **search)
