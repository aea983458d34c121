"""All of this folder again, as a user who is root in its own network only."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__)


@pytest.mark.timeout(600)
def test_links_lose_nothing_unnoticed_without_root(tmp_path: Path) -> None:
    """AF_XDP and RPS need privileges on the host, and are left out."""
    alone = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip("needs user namespaces")
    command = [*alone, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [f"--basetemp={tmp_path / 'tests'}", f"--ignore={HERE}", f"{HERE.parent}"]
    environment = {key: value for key, value in os.environ.items() if "PYTEST" not in key}
    run = subprocess.run(
        command, cwd=HERE.parents[3], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None and int(passed[1]) > 30, run.stdout
