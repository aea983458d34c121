"""The tutorial's code does what the tutorial says."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "first-capture.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def blocks() -> list[tuple[str, str]]:
    """Return the language and content of the page's blocks, in order."""
    return BLOCK.findall(PAGE.read_text())


def packets_seen_by_tcpdump(capture: Path) -> int:
    """Count the packets that tcpdump finds in a file."""
    command = ["tcpdump", "-n", "-r", str(capture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return len(done.stdout.splitlines())


def test_the_first_capture_is_one_program_that_prints_what_the_page_shows(
    blocks: list[tuple[str, str]], tmp_path: Path
) -> None:
    program = tmp_path / "first_capture.py"
    program.write_text("\n".join(content for kind, content in blocks if kind == "python"))

    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    begin = 0
    for kind, content in blocks:
        if kind == "text":
            found = done.stdout.find(content, begin)
            assert found >= 0, f"not printed, or not in this order:\n{content}\n{done.stdout}"
            begin = found + len(content)

    if shutil.which("tcpdump") is None:
        pytest.skip("tcpdump is not installed")
    captures = sorted((tmp_path / "captures").glob("**/*.pcap"))
    assert len(captures) == 3 + 5 + 1
    assert sum(packets_seen_by_tcpdump(capture) for capture in captures) == 3_000


def test_the_page_has_code(blocks: list[tuple[str, str]]) -> None:
    assert sum(kind == "python" for kind, _ in blocks) >= 8
