"""Names of PCI devices, from the list of identification numbers that many hosts have (pci.ids)."""

from __future__ import annotations

import re
from collections.abc import Collection

from .._record import read_record
from .._root import Root

__all__ = ["read_pci_names"]

RECORDED = "/recorded/pci-names.json"
_LISTS = ("/usr/share/hwdata/pci.ids", "/usr/share/misc/pci.ids", "/var/lib/pciutils/pci.ids")
_LARGEST = 8 << 20


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
    text = next(filter(None, (files.optional(path, _LARGEST) for path in _LISTS)), "")
    found, vendor = {}, ""
    # Subsystems have two tabs; vendors have none.
    for tabs, number, name in re.findall(r"^(\t{0,2})(\S+)  (.+)", text, re.MULTILINE):
        vendor = vendor if tabs else number
        key = f"{vendor}:{number}" if tabs else number
        if tabs != "\t\t" and key in ids:
            found[key] = " ".join(name.split())
    return found
