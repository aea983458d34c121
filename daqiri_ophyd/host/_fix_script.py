"""Remedies as one shell script, for a person to read and run."""

from __future__ import annotations

import shlex

from ._finding import Report, Result, Status

__all__ = ["fix_script"]

_HEAD = """\
#!/usr/bin/env bash
# Remedies for {name}, from `daqiri-ophyd host check`. Read them first, then run as root:
#   bash SCRIPT now      until the next boot
#   bash SCRIPT lasting  from the next boot on
set -euo pipefail
"""

_TAIL = """\
case "${1:-}" in
  now | lasting) "$1" ;;
  *) echo "usage: bash $0 now|lasting" >&2; exit 2 ;;
esac
"""


def fix_script(report: Report) -> str:
    """
    Return a shell script with the remedies of all that is not as wanted.

    Its function ``now`` holds until the next boot, ``lasting`` begins with it. What no command does
    stands in comments.

    Parameters
    ----------
    report : Report
        What the checks found.

    Returns
    -------
    str
        The script; nothing is run.
    """
    wrong = [r for r in report.results if r.status in (Status.WARN, Status.FAIL)]
    name = report.host.get("name") or "this host"
    parts = [
        _HEAD.format(name=_one_line(name)),
        _function("now", wrong),
        _function("lasting", wrong),
        _TAIL,
    ]
    return "\n".join(parts)


def _function(name: str, results: list[Result]) -> str:
    # A function needs a command.
    lines = [f"{name}() {{", "  :"]
    done: set[str] = set()
    for result in results:
        body = []
        for remedy in result.remedies:
            commands = list(remedy.now)
            if name == "lasting":
                commands = [_write(path, text) for path, text in remedy.files]
                commands += remedy.lasting
            fresh = [command for command in commands if command not in done]
            done.update(fresh)
            if remedy.note:
                body.append(f"  # {_one_line(remedy.note)}")
            body += [f"  {command}" for command in fresh]
        if body:
            lines += ["", f"  # {result.check}: {_one_line(result.found)}", *body]
    return "\n".join([*lines, "}", ""])


def _write(path: str, text: str) -> str:
    folder = path.rpartition("/")[0]
    lines = " ".join(shlex.quote(line) for line in text.splitlines())
    return f"mkdir -p {shlex.quote(folder)}; printf '%s\\n' {lines} > {shlex.quote(path)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
