"""Backups follow the umask; what has keys is private."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from pathlib import Path
from daqiri_ophyd.catalog._address import ServerAddress
from daqiri_ophyd.catalog._backup import Journal, write_backup

directory = Path(sys.argv[1])
os.umask(int(sys.argv[2], 8))
begun = Journal(directory, "begun")
begun.note("start", "{}")
kept = Journal(directory, "kept")
kept.note("start", "{}")
kept.end(keep=True)
write_backup(directory / "run.jsonl", [("start", {"uid": "run"})])
ServerAddress().write(directory)
"""


@pytest.mark.parametrize("umask", ["002", "027"])
def test_only_files_with_keys_are_private(tmp_path: Path, umask: str) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, tmp_path, umask], check=True, timeout=60)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    (key,) = [name for name, mode in modes.items() if mode == 0o600]
    assert key.endswith(".json")
    del modes[key]
    assert len(modes) == 3
    assert modes == dict.fromkeys(modes, 0o666 & ~int(umask, 8))
