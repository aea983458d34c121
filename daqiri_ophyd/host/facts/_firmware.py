"""Firmware settings of NVIDIA NICs."""

from __future__ import annotations

import re
import shutil
import subprocess

from .._root import FactError, Root

__all__ = ["parse_mlxconfig", "read_firmware"]

_TIMEOUT = 20.0


def read_firmware(root: Root, pci_address: str) -> dict[str, str]:
    """
    Return the settings of the NIC's firmware for the next boot, by name.

    They are read with mlxconfig; a recorded host has its output in ``recorded/mlxconfig-*.txt``.

    Raises
    ------
    FactError
        If there is no mlxconfig, or it fails.
    """
    if not root.live:
        return parse_mlxconfig(root.text(f"/recorded/mlxconfig-{pci_address}.txt"))
    program = shutil.which("mlxconfig")
    if program is None:
        raise FactError("mlxconfig is not installed (package mft)")
    try:
        answer = subprocess.run(
            [program, "-d", pci_address, "query"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FactError(f"mlxconfig: {error}") from None
    if answer.returncode:
        said = (answer.stderr or answer.stdout).strip().splitlines()
        raise FactError(f"mlxconfig: {said[-1] if said else f'exit code {answer.returncode}'}")
    return parse_mlxconfig(answer.stdout)


def parse_mlxconfig(text: str) -> dict[str, str]:
    """
    Return names and values of an output of ``mlxconfig query``.

    If there are several columns (default, current, next boot), the last one is used. A value is
    written as ``ETH(2)`` or plain; the name before the parenthesis is kept, else the value.
    """
    settings = {}
    for line in text.splitlines():
        # Changed settings are marked with a star, read-only ones with RO.
        match = re.match(r"\s*(?:\*\s*)?(?:RO\s+)?([A-Z][A-Z0-9_]+)(?:\s+(\S+))+\s*$", line)
        if match:
            settings[match[1]] = match[2].partition("(")[0] or match[2]
    return settings
