"""clang-tidy reads files that are compiled as one as one, and its findings name the files."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "native" / "src" / "steering" / name for name in ("lookup.cpp", "toeplitz.cpp")]
# Finds the last line of what it reads, like clang-tidy.
FINDS = """#!/usr/bin/env python3
import sys
file = sys.argv[-1]
lines = open(file).read().splitlines()
print(f"{file}:{len(lines)}:1: error: found [check]\\n{len(lines):5} | {lines[-1]}")
sys.exit(FOUND)
"""


def test_findings_name_the_files_and_what_passed_is_not_read_again(tmp_path: Path) -> None:
    unity = tmp_path / "engine.dir" / "Unity" / "unity_0.cxx"
    unity.parent.mkdir(parents=True)
    unity.write_text("".join(f'#include "{source}"\n' for source in SOURCES))
    entry = {"directory": f"{tmp_path}", "file": f"{unity}", "command": f"c++ -c {unity}"}
    (tmp_path / "compile_commands.json").write_text(json.dumps([entry]))
    program = tmp_path / "clang-tidy"

    def run(found: int) -> subprocess.CompletedProcess[str]:
        program.write_text(FINDS.replace("FOUND", f"{found}"))
        program.chmod(0o755)
        command = [sys.executable, ROOT / ".ci" / "tidy", tmp_path, program, "1000"]
        return subprocess.run(command, capture_output=True, text=True, timeout=200)

    done = run(1)
    last = len(SOURCES[1].read_text().splitlines())
    assert done.returncode == 1
    assert f"native/src/steering/toeplitz.cpp:{last}:1: error: found [check]" in done.stdout
    assert f"{tmp_path}" not in done.stdout
    assert "clang-tidy: 2 of 2 files read, 1 groups with findings" in done.stdout
    joined = (tmp_path / "joined" / "compile_commands.json").read_text()
    assert f"{unity}" not in joined
    assert run(0).returncode == 0
    assert "clang-tidy: 0 of 2 files read" in run(1).stdout
