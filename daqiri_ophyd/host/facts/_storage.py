"""File system of the folder for captures, and NVMe drives."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .._root import FactError, Root
from ._pci import address_in

__all__ = ["Drive", "Volume", "read_drives", "read_volume"]

_NVME = "/sys/class/nvme"


@dataclass(frozen=True, slots=True)
class Volume:
    """A mounted file system.

    Parameters
    ----------
    mounted_at : str
        Folder.
    kind : str
        Such as ``ext4``.
    options : frozenset of str
        Options of the mount.
    free : int or None
        Bytes available to users other than root; None: not known, as on a recorded host.
    """

    mounted_at: str
    kind: str
    options: frozenset[str]
    free: int | None


def read_volume(root: Root, folder: str) -> Volume:
    """
    Return the file system of a folder, which need not exist.

    Raises
    ------
    FactError
        If the mounts cannot be read, or the folder is on none of them.
    """
    found = None
    wanted = PurePosixPath(root.target(folder))
    for line in root.lines("/proc/mounts"):
        words = line.split()
        if len(words) < 4:
            continue
        place = _unescaped(words[1])
        # A later mount on a folder hides earlier ones.
        if wanted.is_relative_to(place) and (found is None or len(place) >= len(found[0])):
            found = (place, words[2], frozenset(words[3].split(",")))
    if found is None:
        raise FactError(f"/proc/mounts: nothing is mounted above {folder}")
    return Volume(*found, _free(folder) if root.live else None)


@dataclass(frozen=True, slots=True)
class Drive:
    """An NVMe drive.

    Parameters
    ----------
    name : str
        Such as ``nvme0``.
    model : str
        Name of the product; empty: not known.
    """

    name: str
    model: str


def read_drives(root: Root) -> dict[str, Drive]:
    """Return NVMe drives by PCI address."""
    found = {}
    for name in root.names(_NVME):
        try:
            address = address_in(root.target(f"{_NVME}/{name}"))
        except FactError:
            continue
        model = " ".join(root.optional(f"{_NVME}/{name}/model").split())
        found[address] = Drive(name, model)
    return found


def _free(folder: str) -> int | None:
    place = Path(folder)
    try:
        while not place.exists():
            place = place.parent
        info = os.statvfs(place)
    except OSError:
        return None
    return info.f_bavail * info.f_frsize


def _unescaped(text: str) -> str:
    """Return a path without octal escapes, in which the kernel writes white space."""
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text
