"""The process that reads files of frames, and does not start."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from daqiri_ophyd.engine import (
    GenericFailureError,
    InvalidParameterError,
    _frame_file,
    check_config,
    examine_frames,
)

STAND_IN = """
from enum import Enum
Status = Enum("Status", "OK")
set_error_classes = lambda classes: None
examine_frames = lambda path, live: {"path": path, "live": live}
"""


@pytest.mark.parametrize("lines", ["echo No module named daqiri_ophyd >&2; exit 1", "exit 3"])
def test_a_process_that_fails_says_nothing_about_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{lines}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(GenericFailureError, match=r"a\.h5 cannot be read: the process .* failed"):
        examine_frames(tmp_path / "a.h5")


@pytest.mark.parametrize("python", ["", "/nowhere/python"])
def test_a_process_that_cannot_be_started_says_nothing_about_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    with pytest.raises(GenericFailureError, match=r"a\.h5 cannot be read: the Python .* started"):
        examine_frames(tmp_path / "a.h5")


def test_the_process_imports_the_package_that_started_it(tmp_path: Path) -> None:
    """Also if only the program's own search path has its directory."""
    package = tmp_path / "site" / "daqiri_ophyd"
    (package / "engine").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "_native.py").write_text(STAND_IN)
    script = shutil.copy(
        Path(_frame_file.__file__).with_name("_frame_process.py"), package / "engine"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-S", script, "examine", "a.h5", "live", "plugins"],
        cwd=tmp_path, text=True, capture_output=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"path": "a.h5", "live": True}


@pytest.mark.parametrize("use", [examine_frames, check_config])
def test_names_that_are_not_utf_8_are_rejected_by_name(use) -> None:
    with pytest.raises(InvalidParameterError, match=r"d\\udcff.* is not UTF-8; accepted are"):
        use(Path(os.fsdecode(b"/nowhere/d\xff")))
