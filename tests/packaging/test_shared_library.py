"""C++ and Python in one process share one library, so one engine."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from daqiri_ophyd.engine import version

CONFIG = {
    "version": 1,
    "master_core": 0,
    "stream_type": "raw",
    "loopback": "sw",
    "log_level": "off",
    "memory_regions": [{"name": "m", "kind": "host", "num_bufs": 4096, "buf_size": 2048}],
    "interfaces": [
        {
            "name": "shared",
            "address": "loopback",
            "rx": {
                "queues": [
                    {
                        "name": "q",
                        "id": 0,
                        "cpu_core": "any",
                        "batch_size": 64,
                        "memory_regions": ["m"],
                    }
                ]
            },
        }
    ],
}
SOURCE = """
    #include <daqiri/daqiri.h>
    extern "C" int port_id() { return daqiri::get_port_id("shared"); }
    extern "C" int open_engine(const char* yaml) {
      daqiri::NetworkConfig config;
      if (!daqiri::load_config_text(yaml, "test", config).ok()) return -1;
      return static_cast<int>(daqiri::daqiri_init(config));
    }
    extern "C" void close_engine() { daqiri::shutdown(); }
"""
LIBRARIES = """
def libraries():
    maps = open("/proc/self/maps").read().split()
    return {each for each in maps if "/libdaqiri.so" in each}
"""


@pytest.fixture
def library(prefix: Path) -> Path:
    (library,) = prefix.rglob("libdaqiri.so.1")
    return library


@pytest.fixture
def program(prefix: Path, library: Path, tmp_path: Path) -> Path:
    """A user's library in C++, which links the installed package."""
    (tmp_path / "user.cpp").write_text(textwrap.dedent(SOURCE))
    flags = [f"-I{prefix / 'include'}", f"-L{library.parent}", f"-Wl,-rpath,{library.parent}"]
    compile = ["g++", "-std=c++17", "-shared", "-fPIC", "user.cpp", "-o", "user.so", "-ldaqiri"]
    subprocess.run([*compile, *flags], cwd=tmp_path, check=True)
    return tmp_path / "user.so"


def run(
    script: str, *arguments: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", LIBRARIES + textwrap.dedent(script), *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_cpp_uses_the_engine_that_python_opened(program: Path) -> None:
    script = """
        import ctypes, json, sys
        from daqiri_ophyd import compat
        assert compat.daqiri_init(json.loads(sys.argv[2])) == compat.Status.SUCCESS
        user = ctypes.CDLL(sys.argv[1])
        assert user.port_id() == 0
        assert len(libraries()) == 1, libraries()
        compat.shutdown()
        assert user.port_id() == -1
    """
    done = run(script, program, json.dumps(CONFIG))
    assert (done.returncode, done.stderr) == (0, "")


def test_python_uses_the_engine_that_cpp_opened(program: Path, library: Path) -> None:
    script = """
        import ctypes, sys
        user = ctypes.CDLL(sys.argv[1])
        assert user.open_engine(sys.argv[2].encode()) == 0
        from daqiri_ophyd import compat
        assert compat.get_port_id("shared") == 0
        assert libraries() == {sys.argv[3]}, libraries()
        user.close_engine()
        assert compat.get_port_id("shared") == -1
    """
    done = run(script, program, json.dumps(CONFIG), library)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_library_of_the_package_comes_before_one_in_the_environment(library: Path) -> None:
    script = """
        from daqiri_ophyd import _native
        import os
        (used,) = libraries()
        assert os.path.dirname(used) == os.path.dirname(_native.__file__), used
    """
    done = run(script, LD_LIBRARY_PATH=str(library.parent))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_library_of_another_version_is_refused(library: Path, tmp_path: Path) -> None:
    other = "1999" + version()[4:]
    path = tmp_path / library.name
    path.write_bytes(library.read_bytes().replace(version().encode(), other.encode()))
    script = """
        import ctypes, sys
        ctypes.CDLL(sys.argv[1])
        try:
            import daqiri_ophyd.engine
        except ImportError as error:
            print(error)
    """
    done = run(script, path)
    assert done.stdout.strip() == (
        f"daqiri_ophyd is version {version()}, and this process uses version {other} of "
        f"libdaqiri, from {path}; install the same version of both"
    ), done.stderr
