"""Shells complete commands, options and their values."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def script(shell: str) -> str:
    command = [sys.executable, "-m", "daqiri_ophyd", "completion", shell]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def bash() -> str:
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    return script("bash")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ca"], "capture catalog"),
        (["pcap", ""], "info check repair"),
        (["capture", "udp", "--on-dr"], "--on-drop"),
        (["capture", "udp", "--on-drop", "f"], "fail flag"),
        (["runs", "s"], "show"),
    ],
)
def test_bash(bash: str, tmp_path: Path, words: list[str], found: str) -> None:
    program = tmp_path / "daqiri-ophyd"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m daqiri_ophyd "$@"\n')
    program.chmod(0o755)
    # Bash calls the function like this when the user presses Tab.
    test = (
        f"PATH={tmp_path}:$PATH\n{bash}\nset -- $(complete -p daqiri-ophyd)\n"
        'while [ "$1" != -F ]; do shift; done; function=$2\n'
        f"COMP_WORDS=(daqiri-ophyd {shlex.join(words)})\n"
        f"COMP_CWORD={len(words)}\n$function daqiri-ophyd\necho ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", test], check=True, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == (found, "")


@pytest.mark.parametrize(
    ("shell", "word"), [("zsh", "#compdef daqiri-ophyd"), ("fish", "complete")]
)
def test_other_shells_have_a_script(shell: str, word: str) -> None:
    assert word in script(shell)
