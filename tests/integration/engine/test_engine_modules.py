"""An engine in a module, ``odd`` of the C++ tests, is loaded when a configuration names it."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daqiri_ophyd import engine as package

BUILD = Path(__file__).parents[3] / "build" / "native"
MODULE = "daqiri_engine_odd.so"


@pytest.fixture(scope="module")
def module(alone_in_build: Callable[[], contextlib.AbstractContextManager[None]]) -> bytes:
    """The content of the module."""
    with alone_in_build():
        targets = subprocess.check_output(
            ["cmake", "--build", BUILD, "--target", "help"], text=True
        )
        if not re.search(rf"^{MODULE}:", targets, re.MULTILINE):
            pytest.skip("needs the C++ tests of this checkout: run `make test`")
        subprocess.run(["cmake", "--build", BUILD, "--target", MODULE], check=True)
    (path,) = BUILD.rglob(MODULE)
    return path.read_bytes()


@pytest.fixture
def odd(loopback: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    config = loopback(engine="odd", loopback="")
    config["interfaces"][0]["address"] = "odd0"
    del config["interfaces"][0]["rx"]["flows"]
    return config


def run(script: str, folder: Path, config: dict[str, Any]) -> str:
    """Output of a script in a process that looks for modules in a folder."""
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", textwrap.dedent(script), json.dumps(config)],
        env=os.environ | {"DAQIRI_ENGINE_PATH": f"/nowhere::{folder}"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_packets_of_an_engine_in_a_module(
    module: bytes, odd: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / MODULE).write_bytes(module)
    script = """
        import json, sys
        from pathlib import Path
        import numpy as np
        from daqiri_ophyd.engine import Engine, check_config

        def loaded():
            return "daqiri_engine_odd" in Path("/proc/self/maps").read_text()

        config = json.loads(sys.argv[1])
        assert check_config(config | {"engine": "packet"}).ok
        assert not loaded()
        packets = np.arange(5 * 100, dtype=np.uint8).reshape(5, 100)
        with Engine.open(config) as engine:
            assert loaded()
            print(engine.name)
            engine.ports[0].tx[0].send(packets)
            received = []
            while sum(map(len, received)) < 5:
                received.append(engine.ports[0].rx[0].receive(timeout=None))
            assert np.array_equal(np.concatenate([b.gather() for b in received]), packets)
            print(engine.ports[0].rx[0].counters().received)
    """
    assert run(script, tmp_path, odd).split() == ["odd", "5"]


def test_engines_with_modules_are_listed(
    module: bytes, odd: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / MODULE).write_bytes(module)
    (tmp_path / "daqiri_engine_text.so").write_text("not a library")
    script = """
        from daqiri_ophyd.engine import capabilities
        found = capabilities()
        print(found["odd"], found["text"], sep="\\n")
    """
    states = run(script, tmp_path, odd).splitlines()
    assert states[0] == "available"
    path = tmp_path / "daqiri_engine_text.so"
    assert states[1].startswith(f"engine 'text': its module {path} has no version of daqiri in it;")


def refusal(folder: Path, config: dict[str, Any]) -> str:
    script = """
        import json, sys
        from daqiri_ophyd.engine import check_config
        (problem,) = check_config(json.loads(sys.argv[1])).errors
        print(f"{problem.path}: {problem.message}")
    """
    return run(script, folder, config)


def test_a_module_of_another_version_is_refused(
    module: bytes, odd: dict[str, Any], tmp_path: Path
) -> None:
    other = "1999" + package.version()[4:]
    mark = b"daqiri_engine_version="
    path = tmp_path / MODULE
    path.write_bytes(module.replace(mark + package.version().encode(), mark + other.encode()))
    assert refusal(tmp_path, odd).startswith(
        f"engine: found 'odd', its module {path} is built for daqiri {other}, and this is daqiri "
        f"{package.version()}; install the module of {package.version()}; accepts 'dpdk',"
    )


def test_a_module_without_its_library_is_refused(
    module: bytes, odd: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / MODULE
    path.write_bytes(module.replace(b"libdaqiri.so.1", b"libabsent.so.1"))
    assert refusal(tmp_path, odd).startswith(
        f"engine: found 'odd', its module {path} cannot be loaded: libabsent.so.1: cannot open "
        "shared object file"
    )


def test_without_the_module_the_engine_is_unknown(odd: dict[str, Any], tmp_path: Path) -> None:
    assert "engine: found 'odd', unknown word; accepts 'dpdk'," in refusal(tmp_path, odd)


PROGRAM = """
    #include <daqiri/daqiri.h>
    #include <cstdio>
    int main(int, char** arguments) {
      daqiri::NetworkConfig config;
      std::puts(daqiri::load_config_text(arguments[1], "test", config).text().c_str());
    }
"""


@pytest.mark.root
def test_a_program_with_more_privileges_ignores_the_variable(
    prefix: Path, module: bytes, odd: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.statvfs(folder).f_flag & os.ST_NOSUID:
            pytest.skip(f"needs setuid programs in {folder}")
        folder.chmod(0o755)
        (library,) = prefix.rglob("libdaqiri.so.1")
        shutil.copy(library, folder)
        (folder / MODULE).write_bytes(module)
        (folder / "main.cpp").write_text(textwrap.dedent(PROGRAM))
        flags = [f"-I{prefix / 'include'}", "-L.", "-l:libdaqiri.so.1", f"-Wl,-rpath,{folder}"]
        subprocess.run(["g++", "main.cpp", "-o", "main", *flags], cwd=folder, check=True)

        def report() -> str:
            return subprocess.check_output(
                [folder / "main", json.dumps(odd)],
                env={"DAQIRI_ENGINE_PATH": name},
                user=65534,
                text=True,
            )

        assert report().strip() == ""
        (folder / "main").chmod(0o4755)
        assert "found 'odd', unknown word" in " ".join(report().split())
