"""Programs of the documentation, run like a reader would."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from page_blocks import page_blocks, program
from preloaded_processes import Preloaded

COMMANDS = re.compile(r"^(% not run: \S[^\n]*\n)?```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands_of(page: Path) -> list[str]:
    """Return the terminal commands of a page, except those marked as not run."""
    blocks = COMMANDS.findall(page.read_text())
    return [
        command.replace("\n> ", "\n").rstrip("\n")
        for not_run, block in blocks
        if not not_run
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]


def run_command(command: str, folder: Path, *accepted: int) -> str:
    """Run a shell command in a folder, with the programs of this environment; return its output.

    ``accepted`` are the exit codes that are no failure; 0 without any.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode in (accepted or (0,)), f"{command}: {done.returncode}\n{done.stdout}"
    return done.stdout


def run_page(page: Path, folder: Path, *options: str) -> str:
    """Run the Python code of a page as one program, whose output must have what the page shows.

    Returns
    -------
    str
        What it printed.
    """
    exit_code, printed = run_program(program(page), folder, *options)
    assert exit_code == 0, printed
    require_shown(page, printed)
    return printed


def require_shown(page: Path, printed: str) -> None:
    """Fail unless what a page shows was printed, in its order."""
    begin = 0
    for block in page_blocks(page):
        if block.language == "text" and not block.why_not_run:
            found = printed.find(block.code, begin)
            assert found >= 0, f"not printed, or not in this order:\n{block.code}\n{printed}"
            begin = found + len(block.code)


def start(arguments: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start Python by itself, whose end is part of what is tested."""
    return subprocess.Popen([sys.executable, *arguments], **options)


def start_preloaded(arguments: list[str], **options: Any) -> Preloaded:
    return Preloaded(*arguments, **options)


def run_program(
    code: str,
    folder: Path,
    *options: str,
    start: Callable[..., subprocess.Popen[bytes] | Preloaded] = start_preloaded,
) -> tuple[int, str]:
    """Run a program in a folder; return its exit code, and what it and its children printed.

    Without notes that it waits for a catalog, which a busy machine prints. Children that it leaves
    behind are killed.
    """
    program = folder / "program.py"
    program.write_text(code)
    bin_folder = Path(sys.executable).parent
    with (folder / "printed").open("w+") as printed:
        process = start(
            [*options, str(program)],
            cwd=folder,
            env={
                **os.environ,
                "HOME": str(folder),
                "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
                "PYTHONUNBUFFERED": "1",
            },
            stdout=printed.fileno(),
            stderr=printed.fileno(),
            start_new_session=True,
        )
        try:
            exit_code = process.wait(250)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed.seek(0)
        lines = printed.read().splitlines(keepends=True)
        return exit_code, "".join(x for x in lines if not x.startswith("Waiting for run "))
