"""The Python of how-to guides runs as it is written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "how-to"


@pytest.mark.parametrize("guide", ["capture-in-your-own-plan.md", "prepare-a-fly-scan.md"])
def test_the_programs_of_a_guide_run(tmp_path: Path, guide: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (GUIDES / guide).read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if guide != "capture-in-your-own-plan.md":
        return
    (file,) = tmp_path.glob("data/FeNi 3/scan 00*/*.pcap")
    assert file.name == "daq_receiver_capture_000000.pcap"
