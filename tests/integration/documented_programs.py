"""Programs of the documents, run as their readers run them."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path


def run_program(code: str, folder: Path, *options: str) -> tuple[int, str]:
    """Run a program in a folder; return its exit code, and what it and its children printed.

    Children that it leaves behind are killed.
    """
    program = folder / "program.py"
    program.write_text(code)
    bin_folder = Path(sys.executable).parent
    with (folder / "printed").open("w+") as printed:
        process = subprocess.Popen(
            [sys.executable, *options, str(program)],
            cwd=folder,
            env={
                **os.environ,
                "HOME": str(folder),
                "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
                "PYTHONUNBUFFERED": "1",
            },
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            exit_code = process.wait(250)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed.seek(0)
        return exit_code, printed.read()
