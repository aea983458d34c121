"""An engine in a module is a CMake target of its own, left out where its libraries are absent."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "CONTRIBUTING.md"

PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(small VERSION 3.2.1 LANGUAGES CXX)
include(GNUInstallDirs)
find_package(PkgConfig REQUIRED)
set(daqiri_cmake {ROOT / "native" / "cmake"})
list(APPEND CMAKE_MODULE_PATH ${{daqiri_cmake}})
include(Unity)
file(WRITE ${{CMAKE_BINARY_DIR}}/library.cpp "void library() {{}}")
add_library(daqiri SHARED ${{CMAKE_BINARY_DIR}}/library.cpp)
add_library(daqiri_internal INTERFACE)
target_link_libraries(daqiri_internal INTERFACE daqiri)
include(Engines)
add_subdirectory(engine)
"""
ENGINES = """
daqiri_engine(NAME without SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/engine.cpp)
daqiri_engine(NAME absent SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/engine.cpp
              REQUIRES libdpdk missing-library)
daqiri_engine(NAME newer SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/engine.cpp REQUIRES "libdpdk >= 24")
daqiri_engine(NAME tested SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/engine.cpp TEST)
"""
PACKAGE = "Name: DPDK\nDescription: a fake\nVersion: 23.11.1\nCflags: -DDPDK_IS_HERE=1\n"


def run(*command: str, cwd: Path) -> str:
    return subprocess.check_output(
        command, cwd=cwd, env=os.environ | {"PKG_CONFIG_PATH": str(cwd)}, text=True
    )


def modules(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("daqiri_engine_*.so"))


def test_an_engine_is_built_where_its_libraries_are(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    for name in ("engine", "dpdk_engine"):
        (tmp_path / "engine" / f"{name}.cpp").write_text("void engine() {}\n")
    block = re.search(r"```cmake\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block
    (tmp_path / "engine" / "CMakeLists.txt").write_text(ENGINES + block[1])
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "libdpdk.pc").write_text(PACKAGE)
    told = run("cmake", "-G", "Ninja", "-S", ".", "-B", "build", cwd=tmp_path)
    assert [line for line in told.splitlines() if line.startswith("-- Engine ")] == [
        "-- Engine without: module daqiri_engine_without.so",
        "-- Engine absent: left out, pkg-config does not find missing-library",
        "-- Engine newer: left out, pkg-config does not find libdpdk >= 24",
        "-- Engine tested: module daqiri_engine_tested.so",
        "-- Engine dpdk: module daqiri_engine_dpdk.so",
    ]
    assert "DPDK_IS_HERE" in (tmp_path / "build" / "build.ninja").read_text()

    built, installed = ["daqiri_engine_dpdk.so", "daqiri_engine_without.so"], tmp_path / "wheel"
    run("cmake", "--build", "build", "--target", "daqiri_engines", cwd=tmp_path)
    assert modules(tmp_path / "build" / "daqiri-engines") == built
    for component in ("python", "cpp"):
        install = ["cmake", "--install", "build", "--component", component]
        run(*install, "--prefix", str(installed / component), cwd=tmp_path)
    assert modules(installed / "python" / "daqiri_ophyd" / "daqiri-engines") == built
    (folder,) = (installed / "cpp").rglob("daqiri-engines")
    assert modules(folder) == built
    assert b"daqiri_engine_version=3.2.1\0" in (folder / built[0]).read_bytes()
