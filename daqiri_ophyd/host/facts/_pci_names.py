"""Names of PCI devices, from the list of identification numbers that many hosts have (pci.ids)."""

from __future__ import annotations

from collections.abc import Collection

from .._record import read_record
from .._root import Root

__all__ = ["read_pci_names"]

RECORDED = "/recorded/pci-names.json"
_LISTS = ("/usr/share/hwdata/pci.ids", "/usr/share/misc/pci.ids", "/var/lib/pciutils/pci.ids")


def read_pci_names(root: Root, ids: Collection[str]) -> dict[str, str]:
    """
    Return names of vendors and devices by number; none if the host has no list.

    Those of a recorded host are in its ``recorded/pci-names.json``.

    Parameters
    ----------
    root : Root
        The host.
    ids : collection of str
        Numbers to return, such as ``15b3`` (vendor) and ``15b3:1021`` (device).

    Raises
    ------
    FactError
        If the recording is malformed.
    """
    if not root.live and (names := read_record(root, RECORDED, dict[str, str])) is not None:
        return names
    # A recording has the names, not the whole list.
    files = Root(root.directory)
    text = next(filter(None, map(files.optional, _LISTS)), "")
    found, vendor = {}, ""
    for line in text.splitlines():
        number, _, name = line.strip().partition("  ")
        if not line.startswith("\t"):
            key = vendor = number
        else:
            key = f"{vendor}:{number}"
        # Subsystems have two tabs; their numbers are two words.
        if key in ids:
            found[key] = " ".join(name.split())
    return found
