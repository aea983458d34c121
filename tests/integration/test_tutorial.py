"""The code of the tutorials works as described."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from documented_programs import commands_of, run_command, run_page
from shell_sessions import shell_session

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shape_of(line: str) -> str:
    """Return a line without what differs from session to session: numbers, places, addresses."""
    line = re.sub(r"(?<=Plots: ).*|(?<=stored in ).*|http:\S+|'[0-9a-f-]{8,}'", "", line)
    return re.sub(r"\s+", " ", re.sub(r"\d+", "0", line)).strip()


def packets_seen_by_tcpdump(capture: Path) -> int:
    """Count the packets that tcpdump finds in a file."""
    command = ["tcpdump", "-n", "-r", str(capture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return len(done.stdout.splitlines())


@pytest.mark.usefixtures("jungfrau_port", "made_catalog")
def test_the_first_scan_is_a_session_that_prints_what_the_page_shows(tmp_path: Path) -> None:
    page = TUTORIALS / "first-scan.md"
    (command,) = commands_of(page)
    blocks = BLOCK.findall(page.read_text())
    assert sum(kind == "python" for kind, _ in blocks) == 6
    with shell_session(tmp_path, *command.split()[2:]) as session:
        printed = session.banner
        for kind, content in blocks:
            if kind == "python":
                printed = "".join(session.type(line) for line in content.splitlines())
                continue
            shown = iter(map(shape_of, printed.splitlines()))
            for line in filter(None, map(shape_of, content.splitlines())):
                assert any(line in each for each in shown), (
                    f"not printed, or not in this order:\n{line}\n{printed}"
                )
        code, printed = session.end()
    assert code == 0, printed
    assert len(list((tmp_path / "daqiri-data" / "captures").rglob("*.h5"))) == 2


def test_the_first_capture_is_one_program_that_prints_what_the_page_shows(tmp_path: Path) -> None:
    run_page(TUTORIALS / "first-capture.md", tmp_path)
    if shutil.which("tcpdump") is None:
        pytest.skip("tcpdump is not installed")
    captures = sorted((tmp_path / "captures").glob("**/*.pcap"))
    assert len(captures) == 3 + 5 + 1
    assert sum(packets_seen_by_tcpdump(capture) for capture in captures) == 3_000


@pytest.mark.usefixtures("jungfrau_port")
def test_the_first_frames_are_one_program_that_prints_what_the_page_shows(tmp_path: Path) -> None:
    run_page(TUTORIALS / "first-frames.md", tmp_path)
    assert (tmp_path / "image.png").stat().st_size > 10_000


@pytest.mark.usefixtures("udp_profile_port")
def test_the_first_udp_capture_is_one_program_that_prints_what_the_page_shows(
    tmp_path: Path,
) -> None:
    run_page(TUTORIALS / "first-udp.md", tmp_path)
    captures = list((tmp_path / "captures").glob("**/*.pcap"))
    assert len(captures) == 2 + 1 + 1  # the last one is empty: nothing was sent


@pytest.mark.usefixtures("udp_profile_port")
def test_the_first_replay_is_one_program_that_prints_what_the_page_shows(tmp_path: Path) -> None:
    run_page(TUTORIALS / "first-replay.md", tmp_path)
    assert (tmp_path / "gaps.png").stat().st_size > 1000
    commands = commands_of(TUTORIALS / "first-replay.md")
    whole, part = (run_command(command, tmp_path) for command in commands)
    assert "600" in whole
    assert "300" in part
