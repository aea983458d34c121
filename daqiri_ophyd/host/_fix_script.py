"""Remedies as one shell script, for a person to read and run."""

from __future__ import annotations

import shlex

from ._finding import Report, Result, Status

__all__ = ["fix_script"]

_HEAD = """\
#!/usr/bin/env bash
# Remedies for {name}, from `daqiri-ophyd host check`. Read them first, then run as root:
#   bash SCRIPT now      takes effect at once, until the next boot
#   bash SCRIPT lasting  permanent: files, packages, firmware; some of it takes effect at once
# A command that fails is reported, and the rest still runs.
set -uEo pipefail
failed=0
trap 'failed=1; echo "failed: $BASH_COMMAND" >&2' ERR
"""

_TAIL = """\
case "${1:-}" in
  now | lasting) "$1"; exit "$failed" ;;
  *) echo "usage: bash $0 now|lasting" >&2; exit 2 ;;
esac
"""


def fix_script(report: Report) -> str:
    """
    Return a shell script with the remedies of all checks that warn or fail.

    Its function ``now`` lasts until the next boot, ``lasting`` is permanent. Steps that no command
    can do are in comments.

    Parameters
    ----------
    report : Report
        Results of the checks.

    Returns
    -------
    str
        The script; nothing is run.
    """
    wrong = [r for r in report.results if r.status in (Status.WARN, Status.FAIL)]
    name = report.host.get("name") or "this host"
    parts = [
        _HEAD.format(name=_one_line(name)),
        _now(wrong),
        _lasting(wrong),
        _TAIL,
    ]
    return "\n".join(parts)


def _now(results: list[Result]) -> str:
    return _function("now", [_section(result, _commands_now(result)) for result in results])


def _lasting(results: list[Result]) -> str:
    sections = [_section(result, _writes(result)) for result in results]
    # Once each, after all files are written.
    commands = dict.fromkeys(c for result in results for r in result.remedies for c in r.lasting)
    if commands:
        sections.append(["  # apply", *(f"  {command}" for command in commands)])
    return _function("lasting", sections)


def _commands_now(result: Result) -> list[str]:
    return list(dict.fromkeys(c for remedy in result.remedies for c in remedy.now))


def _writes(result: Result) -> list[str]:
    files = (file for remedy in result.remedies for file in remedy.files)
    return [_write(path, text) for path, text in dict.fromkeys(files)]


def _section(result: Result, commands: list[str]) -> list[str]:
    notes = [f"  # {_one_line(remedy.note)}" for remedy in result.remedies if remedy.note]
    head = f"  # {result.check}: {_one_line(result.found)}"
    return [head, *notes, *(f"  {command}" for command in commands)]


def _function(name: str, sections: list[list[str]]) -> str:
    # A function needs a command.
    lines = [f"{name}() {{", "  :"]
    for section in sections:
        lines += ["", *section]
    return "\n".join([*lines, "}", ""])


def _write(path: str, text: str) -> str:
    folder, place = (shlex.quote(each) for each in (path.rpartition("/")[0], path))
    return f"mkdir -p {folder}\n  cat > {place} <<'END_OF_FILE'\n{text}END_OF_FILE"


def _one_line(text: str) -> str:
    return " ".join(text.split())
