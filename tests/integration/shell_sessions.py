"""Sessions of ``daqiri-ophyd shell`` on a pseudo-terminal."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect

__all__ = ["ShellSession", "shell_session"]

_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[a-zA-Z]|\][^\x07]*\x07|[=>])")


class ShellSession:
    """A session whose prompts are numbered from 1."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._terminal = pexpect.spawn(
            sys.executable,
            ["-m", "daqiri_ophyd", "shell", *arguments],
            cwd=str(folder),
            env={**os.environ, "HOME": str(folder), "TERM": "xterm", "MPLBACKEND": "agg"},
            encoding="utf-8",
            timeout=120,
            dimensions=(50, 200),
        )
        self._number = 0
        self.banner = self._until_prompt()

    def _until_prompt(self) -> str:
        self._number += 1
        # Typing redraws a prompt; the next number comes only when a command is done.
        self._terminal.expect(rf"In \[(?:\x1b\[[0-9;]*m)*{self._number}(?:\x1b\[[0-9;]*m)*\]: ")
        return self._plain(self._terminal.before)

    @staticmethod
    def _plain(shown: str) -> str:
        return _CONTROL.sub("", shown).replace("\r", "")

    def type(self, line: str) -> str:
        """Type a command; return what is shown until the next prompt."""
        self.begin(line)
        return self._until_prompt()

    def begin(self, line: str, shown: str | None = None) -> None:
        """Type a command, and wait until something is shown."""
        self._terminal.sendline(line)
        if shown is not None:
            self._terminal.expect_exact(shown)

    def interrupt(self, shown: str) -> None:
        """Press Ctrl-C, and wait until something is shown."""
        self._terminal.sendintr()
        self._terminal.expect_exact(shown)

    def wait(self) -> str:
        """Return what is shown until the next prompt."""
        return self._until_prompt()

    def signal(self, number: int) -> None:
        self._terminal.kill(number)

    def end(self, *, with_eof: bool = True) -> tuple[int, str]:
        """Press Ctrl-D; return the exit code, and what is shown."""
        if with_eof:
            self._terminal.sendeof()
        self._terminal.expect(pexpect.EOF)
        shown = self._plain(self._terminal.before)
        self._terminal.close()
        return self._terminal.exitstatus, shown

    def close(self) -> None:
        self._terminal.close(force=True)


@contextmanager
def shell_session(folder: Path, *arguments: str) -> Iterator[ShellSession]:
    """Begin a session in a folder."""
    session = ShellSession(list(arguments), folder)
    try:
        yield session
    finally:
        session.close()
