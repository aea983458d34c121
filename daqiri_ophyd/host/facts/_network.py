"""Network interfaces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from .._record import read_record
from .._root import FactError, Root

__all__ = ["NetDevice", "read_addresses", "read_interfaces", "read_leased"]

RECORDED = "/recorded/addresses.json"
LEASED = "/recorded/leased.json"
_PERMANENT = 0x80  # IFA_F_PERMANENT (linux/if_addr.h)
_WORD = re.compile(r"[\w.@+-]+")
_NET = "/sys/class/net"


@dataclass(frozen=True, slots=True)
class NetDevice:
    """A network interface.

    Parameters
    ----------
    name : str
        Such as ``eth0``.
    pci_address : str
        Address of its device; empty: it has none (veth, bridges, lo).
    driver : str
        Kernel driver; empty: none.
    up : bool
        Whether it is up.
    carrier : bool or None
        Whether there is a link; None: not known while it is down.
    mtu : int
        Bytes.
    speed : int or None
        Mb/s; None: not known.
    rdma_device : str
        Its InfiniBand device, such as ``mlx5_0``; empty: none.
    """

    name: str
    pci_address: str
    driver: str
    up: bool
    carrier: bool | None
    mtu: int
    speed: int | None
    rdma_device: str


def read_interfaces(root: Root) -> dict[str, NetDevice]:
    """
    Return the network interfaces by name.

    Interfaces whose names are not plain words are left out, because remedies are shell commands.
    """
    names = [name for name in root.names(_NET) if _WORD.fullmatch(name)]
    names = [name for name in names if root.exists(f"{_NET}/{name}/mtu")]
    return {name: _read(root, name) for name in names}


def _read(root: Root, name: str) -> NetDevice:
    folder = f"{_NET}/{name}"
    pci = driver = ""
    if root.exists(f"{folder}/device"):
        # The device of a virtio interface is a child of the PCI device.
        parts = root.target(f"{folder}/device").split("/")
        pci = next((part for part in reversed(parts) if part.count(":") == 2), "")
        if root.exists(f"{folder}/device/driver"):
            driver = root.target(f"{folder}/device/driver").rpartition("/")[2]
    rdma = root.names(f"{folder}/device/infiniband")
    carrier = _integer(root, f"{folder}/carrier")
    speed = _integer(root, f"{folder}/speed")
    return NetDevice(
        name=name,
        pci_address=pci,
        driver=driver,
        up=bool((_integer(root, f"{folder}/flags") or 0) & 1),
        carrier=None if carrier is None else carrier == 1,
        mtu=_integer(root, f"{folder}/mtu") or 0,
        speed=speed if speed and speed > 0 else None,
        rdma_device=rdma[0] if rdma else "",
    )


def _integer(root: Root, path: str) -> int | None:
    try:
        return root.integer(path)
    except FactError:
        return None


def read_addresses(root: Root) -> dict[str, list[str]]:
    """
    Return the IP addresses of interfaces by name, such as ``192.168.10.1/24``.

    Those of a recorded host are in its ``recorded/addresses.json``.

    Raises
    ------
    FactError
        If the recording is malformed.
    """
    if not root.live:
        return read_record(root, RECORDED, dict[str, list[str]]) or {}
    found: dict[str, list[str]] = {}
    for name, address, _ in _live_addresses():
        found.setdefault(name, []).append(address)
    return found


def read_leased(root: Root) -> frozenset[str]:
    """
    Return the IP addresses with a limited lifetime, such as DHCP leases.

    Those of a recorded host are listed in its ``recorded/leased.json``.

    Raises
    ------
    FactError
        If the recording is malformed.
    """
    if not root.live:
        return frozenset(read_record(root, LEASED, list[str]) or ())
    return frozenset(address for _, address, flags in _live_addresses() if not flags & _PERMANENT)


def _live_addresses() -> Iterator[tuple[str, str, int]]:
    """Yield interface, address with prefix length, and flags."""
    try:
        with IPRoute() as netlink:
            names = {link["index"]: link.get("ifname") for link in netlink.get_links()}
            entries = list(netlink.get_addr())
    except (OSError, NetlinkError) as error:
        raise FactError(f"netlink: {error}") from None
    for entry in entries:
        name = names.get(entry["index"])
        address = entry.get("local") or entry.get("address")
        if name and address:
            yield name, f"{address}/{entry['prefixlen']}", entry["flags"]
