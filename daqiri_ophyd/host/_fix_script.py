"""Remedies as one shell script, for a person to read and run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ._finding import Remedy, Report, Result, Status, Step

__all__ = ["fix_script"]

_STEPS = {
    "packages": "installs the programs that the other steps use",
    "now": "takes effect at once, until the next boot",
    Step.LASTING: "writes files that take effect at the next boot",
    Step.BOOT_LINE: "adds words to the kernel command line; requires a reboot",
    Step.IOMMU: "changes the IOMMU by the kernel command line; requires a reboot",
    Step.FIRMWARE: "changes settings of NIC firmware; requires a reboot",
    Step.DPU_MODE: "turns a BlueField into a NIC, which ends what runs on it; requires a cold boot",
}

# Package of a program: Debian's and its relatives', Red Hat's and its relatives'. Of several, the
# first that the distribution has: Ubuntu's cpupower is in a package of the kernel.
_PACKAGES = {
    "chronyc": ("chrony", "chrony"),
    "cpupower": ('"linux-cpupower linux-tools-$(uname -r)"', "kernel-tools"),
    "ethtool": ("ethtool", "ethtool"),
    "ip": ("iproute2", "iproute"),
    "setpci": ("pciutils", "pciutils"),
}

# Line after the text of a file.
_END = "END_OF_FILE"

# No distribution has it.
_MFT = (
    "# The commands below use mlxconfig: install package mft of NVIDIA's repository (DOCA) first."
)

_HEAD = """\
#!/usr/bin/env bash
# Fixes for {name}, from `daqiri-ophyd host check`. Read them first, then run as root:
{usage}
# Several steps may be named. Nothing else runs. A command that fails is reported, and the rest
# still runs.
set -uEo pipefail
failed=0
trap 'failed=1; echo "failed: $BASH_COMMAND" >&2' ERR

# NAME CONDITION: whether a fix worked.
worked() {{
  if bash -c "$2" >/dev/null; then
    echo "fixed: $1"
  else
    failed=1
    echo "not fixed: $1 ($2)" >&2
  fi
}}
"""

_INSTALL = """\
# PROGRAM DEBIAN-PACKAGES RED-HAT-PACKAGE: installs a program that is missing.
install_program() {
  # That it is there is not enough: Ubuntu's cpupower calls the one for the running kernel.
  local runs="$1 --version || $1 -V"
  if bash -c "$runs" >/dev/null 2>&1; then return; fi
  if command -v apt-get >/dev/null; then
    apt-get update
    local package
    for package in $2; do
      if apt-get install -y "$package"; then break; fi
    done
  else
    dnf install -y "$3"
  fi
  worked "$1" "$runs"
}
"""

_KERNEL_LINE = """\
# NAME WORDS: adds words to the kernel command line of the next boot.
kernel_line() {
  if command -v grubby >/dev/null; then
    grubby --update-kernel=ALL --args="$2"
    worked "kernel command line: $1" "grubby --info=DEFAULT | grep -qF -- '$2'"
  elif command -v update-grub >/dev/null; then
    mkdir -p /etc/default/grub.d
    # Read last: other files may set it. Not for the entries of the recovery mode.
    printf 'GRUB_CMDLINE_LINUX_DEFAULT="${GRUB_CMDLINE_LINUX_DEFAULT} %s"\\n' "$2" \\
      >"/etc/default/grub.d/zz-daqiri-$1.cfg"
    update-grub
    worked "kernel command line: $1" "grep -qF -- '$2' /boot/grub/grub.cfg"
  else
    failed=1
    echo "not fixed: $1: neither grubby nor update-grub; add to the kernel command line: $2" >&2
    echo "(systemd-boot: /etc/kernel/cmdline; U-Boot: /boot/extlinux/extlinux.conf)" >&2
  fi
}
"""

_TAIL = """\
for step in "${{@:-none}}"; do
  case "$step" in
    {patterns}) ;;
    *)
      echo "usage: bash $0 STEP...; steps: {steps}" >&2
      exit 2
      ;;
  esac
done
if [ "$(id -u)" != 0 ]; then
  echo "not run as root: sudo bash $0 $*" >&2
  exit 2
fi
# In this order, whatever the order of the arguments.
for step in {steps}; do
  case " $* " in *" $step "*) "step_${{step//-/_}}" ;; esac
done
exit "$failed"
"""


def fix_script(report: Report) -> str:
    """
    Return a shell script with the remedies of all checks that warn or fail.

    Its argument ``now`` fixes until the next boot, ``lasting`` permanently. What changes firmware,
    the kernel command line, the IOMMU or the mode of a BlueField is a step of its own, which runs
    only if it is named. Steps that no command can do are in comments.

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
    sections = {"now": [_now(result) for result in wrong]}
    written: set[tuple[str, str]] = set()
    for step in Step:
        sections[step] = [_permanent(result, step, written) for result in wrong]
    steps = {name: [part for part in parts if part] for name, parts in sections.items()}
    steps = {name: parts for name, parts in steps.items() if parts or name in ("now", "lasting")}
    programs = [name for name in _PACKAGES if _uses(wrong, name)]
    if programs:
        lines = [f"  install_program {name} {' '.join(_PACKAGES[name])}" for name in programs]
        steps = {"packages": [lines], **steps}
    usage = "\n".join(f"#   bash SCRIPT {name:<9}  {_STEPS[name]}" for name in steps)
    name = report.host.get("name") or "this host"
    parts = [
        _HEAD.format(name=_one_line(name), usage=usage),
        _INSTALL if programs else "",
        _KERNEL_LINE if any(r.kernel_line for result in wrong for r in result.remedies) else "",
        _notes(wrong),
        f"{_MFT}\n" if _uses(wrong, "mlxconfig") else "",
        *(_function(name, parts) for name, parts in steps.items()),
        _TAIL.format(steps=" ".join(steps), patterns=" | ".join(steps)),
    ]
    return "\n".join(filter(None, parts))


def _notes(results: list[Result]) -> str:
    """Return what was found, and the notes, each once."""
    lines = []
    for result in results:
        lines.append(f"# {result.check}: {_one_line(result.found)}")
        notes = dict.fromkeys(remedy.note for remedy in result.remedies if remedy.note)
        lines += [f"#   {_one_line(note)}" for note in notes]
    return "\n".join([*lines, ""])


def _now(result: Result) -> list[str]:
    lines = []
    for remedy in result.remedies:
        commands = [command for command in remedy.now if command not in lines]
        lines += _fix(result, remedy, commands, remedy.verify)
    return _section(result, lines)


def _permanent(result: Result, step: Step, written: set[tuple[str, str]]) -> list[str]:
    lines = []
    for remedy in result.remedies:
        if remedy.step is not step:
            continue
        commands = [_write(*file) for file in remedy.files if file not in written]
        written.update(remedy.files)
        if remedy.kernel_line:
            commands.append(f"kernel_line {result.check} {shlex.quote(remedy.kernel_line)}")
        commands += [command for command in remedy.lasting if command not in lines]
        files = [f"test -s {shlex.quote(path)}" for path, _ in remedy.files]
        lines += _fix(result, remedy, commands, [*files, *remedy.verify_lasting])
    return _section(result, lines)


def _fix(
    result: Result, remedy: Remedy, commands: Sequence[str], conditions: Sequence[str]
) -> list[str]:
    """Return commands, and one that says whether they worked."""
    if not commands or not conditions:
        return list(commands)
    found = "; ".join(str(each) for each in result.findings if each.remedy == remedy)
    name = shlex.quote(_one_line(f"{result.check}: {found}"))
    return [*commands, f"worked {name} {shlex.quote(' && '.join(conditions))}"]


def _section(result: Result, lines: list[str]) -> list[str]:
    return [f"  # {result.check}", *(f"  {line}" for line in lines)] if lines else []


def _function(name: str, sections: list[list[str]]) -> str:
    # A function needs a command.
    lines = [f"step_{name.replace('-', '_')}() {{", "  :"]
    for section in sections:
        lines += ["", *section]
    return "\n".join([*lines, "}", ""])


def _write(path: str, text: str) -> str:
    # What follows such a line would be run as commands.
    if _END in text.split("\n") or not text.endswith("\n"):
        raise ValueError(f"{path}: the script cannot hold this text: {text!r}")
    folder, place = (shlex.quote(each) for each in (path.rpartition("/")[0], path))
    return f"mkdir -p {folder}\n  cat >{place} <<'{_END}'\n{text}{_END}"


def _uses(results: list[Result], program: str) -> bool:
    """Return whether a command of any remedy begins with a program."""
    commands = [
        command
        for result in results
        for r in result.remedies
        for command in (*r.now, *r.lasting, *r.verify)
    ]
    return any(command.split()[0] == program for command in commands)


def _one_line(text: str) -> str:
    # Names of a recorded host may hold what a terminal obeys.
    plain = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in plain)
