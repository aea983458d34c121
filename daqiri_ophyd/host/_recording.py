"""Recording a host: the files that the checks read, and the answers of other sources."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ._check import Context
from ._needs import Needs
from ._picture import pcie_picture
from ._platform import Platform
from ._root import FactError, Root
from .checks import CHECKS
from .facts import Facts

__all__ = ["record_host"]


def record_host(directory: str | os.PathLike[str]) -> None:
    """Copy what the checks read into a folder, for `check_host` and `Facts` to use elsewhere.

    As root, more can be read. The folder has names, addresses and the kernel command line.

    Parameters
    ----------
    directory : path
        A new or empty folder.

    Raises
    ------
    ValueError
        If it is not empty.
    OSError
        If it cannot be written to.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"folder {os.fspath(directory)!r} is not empty; give a new one")
    facts = Facts(_RecordingRoot(folder))
    context = Context(facts, Needs(), Platform.GENERIC, os.getcwd())
    for check in CHECKS.values():
        check.run(context)
    # Some are read only for a configuration.
    names = [name for name, fact in vars(Facts).items() if isinstance(fact, cached_property)]
    looks = [partial(getattr, facts, name) for name in names]
    for look in (*looks, lambda: pcie_picture(facts), facts.identity, lambda: _idle_states(facts)):
        try:
            look()
        except FactError:
            continue
    names = list(facts.interfaces)
    nics = [address for address, device in facts.pci.items() if device.is_nvidia_nic]
    answers = {
        "gpus.json": lambda: _json([asdict(gpu) for gpu in facts.gpus]),
        "gpu-refusals.json": lambda: _json(asdict(facts.gpu_refusals)),
        "addresses.json": lambda: _json(facts.addresses),
        "leased.json": lambda: _json(sorted(facts.leased)),
        "services.json": lambda: _json(sorted(facts.services)),
        "pci-names.json": lambda: _json(facts.pci_names),
        "clock.json": lambda: _json(asdict(facts.clock)),
        "ethtool.json": lambda: _json({name: asdict(facts.nic_settings(name)) for name in names}),
    }
    answers |= {f"mlxconfig-{nic}.txt": lambda nic=nic: _lines(facts.firmware(nic)) for nic in nics}
    for name, ask in answers.items():
        try:
            answer = ask()
        except FactError:
            continue
        place = folder / "recorded" / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(answer)


def _idle_states(facts: Facts) -> None:
    for cpu in facts.cpus:
        facts.idle_states(cpu)


def _json(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"


def _lines(settings: dict[str, str]) -> str:
    return "".join(f"    {name}    {value}\n" for name, value in settings.items())


class _RecordingRoot(Root):
    """The running host; everything that is read is copied.

    Parameters
    ----------
    folder : Path
        Destination.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__("/")
        self._folder = folder

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder, and copy it."""
        there = super().exists(path)
        if there:
            self._copy(path)
        return there

    def bytes(self, path: str, size: int = 1 << 20) -> bytes:
        """Return the first bytes of a file, and copy them."""
        content = super().bytes(path, size)
        self._copy(path, content)
        return content

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, and copy the entries."""
        found = super().names(path)
        for name in found:
            self._copy(f"{path}/{name}")
        return found

    def target(self, path: str) -> str:
        """Return the target of a link, and copy it."""
        found = super().target(path)
        self._copy(path)
        return found

    def glob(self, pattern: str) -> Iterator[str]:
        """Yield the paths that a pattern matches, and copy them."""
        for path in super().glob(pattern):
            self._copy(path)
            yield path

    def _copy(self, path: str, content: bytes | None = None) -> None:
        """Copy the links in a path, and its folder or file."""
        place = Path("/")
        left = [part for part in path.split("/") if part]
        # As many links as the kernel follows.
        for _ in range(40 * 256):
            if not left:
                break
            place = place / left.pop(0)
            if not place.is_symlink():
                continue
            leads = Path(os.path.normpath(place.parent / os.readlink(place)))
            copy = self._copy_of(place)
            if not copy.is_symlink():
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.symlink_to(os.path.relpath(leads, place.parent))
            left = [part for part in leads.parts if part != "/"] + left
            place = Path("/")
        copy = self._copy_of(place)
        if place.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        elif content is not None or not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content or b"")

    def _copy_of(self, place: Path) -> Path:
        return self._folder / place.relative_to("/")
