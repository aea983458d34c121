"""Files have the permissions that the umask leaves, so that a group can work with them."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

PROCESS = Path(__file__).with_name("file_modes_process.py")


@pytest.mark.parametrize("umask", ["002", "022", "027", "077"])
def test_files_follow_the_umask(tmp_path: Path, umask: str) -> None:
    subprocess.run([sys.executable, PROCESS, tmp_path, umask], check=True, timeout=60)
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    kinds = {os.path.splitext(name)[1] for name in files}
    assert kinds >= {".pcap", ".raw", ".npy", ".h5", ".json"}
    assert files == dict.fromkeys(files, 0o666 & ~int(umask, 8))
