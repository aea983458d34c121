"""The plan in the README and on the front page of the site runs unchanged."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from documented_programs import commands_of, run_command, run_program, start

ROOT = Path(__file__).parents[2]
README, FRONT_PAGE = ROOT / "README.md", ROOT / "docs" / "index.md"


def programs(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_plan_in_the_readme_runs(tmp_path: Path) -> None:
    (program,) = programs(README)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "10420000" in done.stdout  # bytes of 10,000 frames of 1,042


def test_the_front_page_has_the_same_plan() -> None:
    assert programs(README)[0] == programs(FRONT_PAGE)[1]


@pytest.mark.usefixtures("jungfrau_port", "made_catalog")
def test_the_commands_of_the_front_page_lead_to_an_image_in_the_catalog(tmp_path: Path) -> None:
    (command,) = commands_of(FRONT_PAGE)
    assert command.startswith(".venv/bin/")
    run_command(command.removeprefix(".venv/bin/"), tmp_path)
    exit_code, printed = run_program(programs(FRONT_PAGE)[0], tmp_path, start=start)
    assert exit_code == 0, printed
    (shown,) = re.findall(r"```text\n(.*?)```", FRONT_PAGE.read_text(), re.DOTALL)
    assert printed == shown
