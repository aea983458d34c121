"""Network interfaces."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from .._record import read_record
from .._root import FactError, Root
from ._pci import address_in

__all__ = ["Ipv6", "NetDevice", "RdmaDevice", "has_interface", "read_addresses"]
__all__ += ["read_interfaces", "read_ipv6", "read_leased", "read_rdma"]

RECORDED = "/recorded/addresses.json"
LEASED = "/recorded/leased.json"
_PERMANENT = 0x80  # IFA_F_PERMANENT (linux/if_addr.h)
_WORD = re.compile(r"[\w.@+-]+")
_NET = "/sys/class/net"
_IPV6 = "/proc/sys/net/ipv6/conf"
_RDMA = "/sys/class/infiniband"
_INFINIBAND = 32  # ARPHRD_INFINIBAND


@dataclass(frozen=True, slots=True)
class NetDevice:
    """A network interface.

    Parameters
    ----------
    name : str
        Such as ``eth0``.
    pci_address : str
        Address of its device; empty: it has none (veth, bridges, lo).
    up : bool
        Whether it is up.
    carrier : bool or None
        Whether there is a link; None: not known while it is down.
    mtu : int
        Bytes.
    speed : int or None
        Mb/s; None: not known.
    ethernet : bool
        Whether its frames are Ethernet's, not those of IP over InfiniBand.
    port : str
        The driver's name of the physical port, such as ``p0``; empty: not known.
    link_type : int or None
        ``ARPHRD_`` of linux/if_arp.h; None: not known.
    """

    name: str
    pci_address: str
    up: bool
    carrier: bool | None
    mtu: int
    speed: int | None
    ethernet: bool
    port: str
    link_type: int | None


def read_interfaces(root: Root) -> dict[str, NetDevice]:
    """
    Return the network interfaces by name.

    Interfaces whose names are not plain words are left out, because remedies are shell commands.
    """
    names = [name for name in root.names(_NET) if _WORD.fullmatch(name)]
    names = [name for name in names if root.exists(f"{_NET}/{name}/mtu")]
    return {name: _read(root, name) for name in names}


def has_interface(root: Root, name: str) -> bool:
    """Return whether there is an interface of any name, as the engine asks."""
    if not root.live:
        return name in root.names(_NET) and root.exists(f"{_NET}/{name}/mtu")
    try:
        return socket.if_nametoindex(name) > 0
    except (OSError, ValueError):
        return False


def _read(root: Root, name: str) -> NetDevice:
    folder = f"{_NET}/{name}"
    pci = ""
    if root.exists(f"{folder}/device"):
        # The device of a virtio interface is a child of the PCI device.
        pci = address_in(root.target(f"{folder}/device"))
    carrier = _integer(root, f"{folder}/carrier")
    speed = _integer(root, f"{folder}/speed")
    link_type = _integer(root, f"{folder}/type")
    return NetDevice(
        name=name,
        pci_address=pci,
        up=bool((_integer(root, f"{folder}/flags") or 0) & 1),
        carrier=None if carrier is None else carrier == 1,
        mtu=_integer(root, f"{folder}/mtu") or 0,
        speed=speed if speed and speed > 0 else None,
        ethernet=link_type != _INFINIBAND,
        port=root.optional(f"{folder}/phys_port_name"),
        link_type=link_type,
    )


def _integer(root: Root, path: str) -> int | None:
    try:
        return root.integer(path)
    except FactError:
        return None


@dataclass(frozen=True, slots=True)
class Ipv6:
    """Where IPv6 is on.

    Parameters
    ----------
    supported : bool
        Whether the kernel has it.
    on, off : frozenset of str
        Interfaces on which it is on, and switched off; both empty: not known.
    """

    supported: bool
    on: frozenset[str]
    off: frozenset[str]


def read_ipv6(root: Root) -> Ipv6:
    """Return where IPv6 is on; where that is not known, the kernel supports it."""
    # A kernel has the first file for IPv4, and the second one for IPv6.
    supported = root.exists("/proc/net/if_inet6") or not root.exists("/proc/net/dev")
    switches = {
        name: root.optional(f"{_IPV6}/{name}/disable_ipv6")
        for name in root.names(_IPV6)
        if name not in ("all", "default")
    }
    return Ipv6(
        supported,
        frozenset(name for name, switch in switches.items() if switch == "0"),
        frozenset(name for name, switch in switches.items() if switch == "1"),
    )


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """What the RDMA stack says of a NIC.

    Parameters
    ----------
    name : str
        Such as ``mlx5_0``.
    pci_address : str
        Address of its device; empty: it has none.
    firmware : str
        Version, such as ``28.39.1002``; empty: not known.
    card : str
        Number that all functions of a card have in common; empty: not known.
    layers : dict of int to str
        Link layers by port: ``Ethernet`` or ``InfiniBand``.
    """

    name: str
    pci_address: str
    firmware: str
    card: str
    layers: dict[int, str]


def read_rdma(root: Root) -> list[RdmaDevice]:
    """Return the NICs that the RDMA stack knows."""
    found = []
    for name in root.names(_RDMA):
        folder = f"{_RDMA}/{name}"
        try:
            path = root.target(folder)
        except FactError:
            continue
        layers = {
            int(port): root.optional(f"{folder}/ports/{port}/link_layer")
            for port in root.names(f"{folder}/ports")
            if re.fullmatch(r"\d{1,3}", port, re.ASCII)
        }
        found.append(
            RdmaDevice(
                name,
                address_in(path),
                root.optional(f"{folder}/fw_ver"),
                root.optional(f"{folder}/sys_image_guid"),
                {port: layer for port, layer in layers.items() if layer},
            )
        )
    return found


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
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

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
