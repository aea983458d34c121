"""The check of includes between the folders of the C++ engine detects violations."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def check(native: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / ".ci" / "includes", native]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


def write(native: Path, name: str, *headers: str) -> None:
    path = native / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f'#include "{header}"\n' for header in headers))


def test_the_engine_has_no_circle_and_engines_are_included_by_nobody() -> None:
    run = check(ROOT / "native")
    assert run.returncode == 0, run.stderr
    lines = [line.split() for line in run.stdout.splitlines()]
    rooms = {words[1] for words in lines}
    assert {"daqiri", "session", "engines/loopback", "engines/socket"} <= rooms
    assert not [words for words in lines for room in words[3:] if room.startswith("engines/")]


def test_rooms_are_printed_lowest_layer_first(tmp_path: Path) -> None:
    write(tmp_path, "include/daqiri/status.h")
    write(tmp_path, "src/low/low.h", "daqiri/status.h", "daqiri/version.h")
    write(tmp_path, "src/engines/one/deep/one.cpp", "low/low.h", "engines/one/one.h")
    write(tmp_path, "src/engines/one/one.h", "daqiri/status.h")
    run = check(tmp_path)
    assert run.stdout.splitlines() == [
        " 1 daqiri",
        " 2 low         -> daqiri",
        " 3 engines/one -> daqiri low",
    ]


def test_a_circle_is_printed_with_its_files(tmp_path: Path) -> None:
    write(tmp_path, "src/a/a.h", "b/b.h")
    write(tmp_path, "src/b/b.h")
    write(tmp_path, "src/b/b.cpp", "b/b.h", "engines/one/one.h")
    write(tmp_path, "src/engines/one/one.h", "a/a.h")
    run = check(tmp_path)
    assert run.returncode == 1
    for line in (
        'src/a/a.h: #include "b/b.h"',
        'src/b/b.cpp: #include "engines/one/one.h"',
        'src/engines/one/one.h: #include "a/a.h"',
    ):
        assert line in run.stderr


def test_two_engines_are_two_rooms(tmp_path: Path) -> None:
    write(tmp_path, "src/engines/one/one.h", "engines/two/two.h")
    write(tmp_path, "src/engines/two/two.h", "engines/one/one.h")
    assert check(tmp_path).returncode == 1


@pytest.mark.parametrize("header", ["b.h", "b/gone.h"])
def test_a_header_that_is_nowhere_is_named(tmp_path: Path, header: str) -> None:
    write(tmp_path, "src/b/b.h")
    write(tmp_path, "src/b/b.cpp", header)
    run = check(tmp_path)
    assert run.returncode == 1
    assert f'src/b/b.cpp: #include "{header}"' in run.stderr


def test_a_header_that_is_included_twice_is_named(tmp_path: Path) -> None:
    write(tmp_path, "src/b/b.h")
    write(tmp_path, "src/b/b.cpp", "b/b.h", "b/b.h")
    run = check(tmp_path)
    assert run.returncode == 1
    assert "src/b/b.cpp includes b/b.h twice" in run.stderr


def test_a_folder_without_sources_is_refused(tmp_path: Path) -> None:
    run = check(tmp_path)
    assert run.returncode == 1
    assert str(tmp_path) in run.stderr


def test_the_page_on_the_layout_names_every_room() -> None:
    page = (ROOT / "docs" / "explanations" / "layout.md").read_text()
    rooms = [line.split()[1] for line in check(ROOT / "native").stdout.splitlines()]
    named = {"engines/<name>" if room.startswith("engines/") else room for room in rooms}
    assert not [room for room in named - {"daqiri"} if f"| `{room}` |" not in page]
