"""The commands of the page on installing run, and its requirements are those of the package."""

import re
import tomllib
from pathlib import Path

import pytest
from documented_programs import commands_of, run_command

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "install.md"


def test_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    section = PAGE.read_text().partition("\n## Extras\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    extras = re.findall(r"`(\w+)`", " ".join(rows))
    assert sorted(extras) == sorted(project["optional-dependencies"])
    assert f"-{project['version']}-" in PAGE.read_text()


def test_system_packages_are_those_of_the_build() -> None:
    listed = (ROOT / "packages.apt").read_text().partition("[build]\n")[2].partition("\n\n")[0]
    shown = re.findall(r"(?<=apt-get install )(?:[^$\n]|\\\n)+(?=\n```)", PAGE.read_text())
    assert shown[0].replace("\\\n>", "").split() == listed.split()


@pytest.mark.usefixtures("made_catalog")
def test_the_installation_is_checked_by_these_commands(tmp_path: Path) -> None:
    info, demo = (run_command(command, tmp_path) for command in commands_of(PAGE))
    assert "engine loopback" in info
    assert "replayed" in demo
