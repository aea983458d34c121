"""IP and PCI addresses of a host, compared as the kernel compares them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_interface,
)

__all__ = [
    "can_bind",
    "has_address",
    "is_any",
    "is_loopback",
    "is_multicast",
    "is_unspecified",
    "listens_at",
    "pci_address",
]

_LOOPBACK = "lo"
# Properties of ipaddress are not used: since Python 3.13, those of ::ffff:127.0.0.1 are the ones of
# 127.0.0.1. Sockets of IPv6 cannot have it: they do not take IPv4 packets.
_ANY = (IPv4Network("0.0.0.0/32"), IPv6Network("::/128"))
_LOOPBACKS = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
_GROUPS = (IPv4Network("224.0.0.0/4"), IPv6Network("ff00::/8"))
_PCI = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE | re.ASCII
)


def pci_address(text: str) -> str | None:
    """Return an address on the PCI bus as the kernel writes it; None: it is none.

    The domain may be left out, or have eight digits as in NVML.
    """
    match = _PCI.fullmatch(text)
    if match is None:
        return None
    return f"{int(match[1] or '0', 16):04x}:{match[2].lower()}"


def is_any(address: str) -> bool:
    """Return whether this is ``0.0.0.0``, ``::`` or a group, which no interface has."""
    return _is_in(_ANY + _GROUPS, _parsed(address))


def is_unspecified(address: str) -> bool:
    """Return whether this is ``0.0.0.0`` or ``::``, however it is written."""
    return _is_in(_ANY, _parsed(address))


def is_loopback(address: str) -> bool:
    """Return whether this is an address of the loopback interface."""
    return _is_in(_LOOPBACKS, _parsed(address))


def is_multicast(address: str) -> bool:
    """Return whether this is the address of a multicast group."""
    return _is_in(_GROUPS, _parsed(address))


def has_address(interface: str, own: Iterable[str], address: str) -> bool:
    """Return whether an interface has an IP address.

    Parameters
    ----------
    interface : str
        Its name: ``lo`` has all addresses of its IPv4 networks.
    own : iterable of str
        Its addresses, such as ``192.168.10.1/24``.
    address : str
        Any text.
    """
    wanted = _parsed(address)
    if wanted is None:
        return False
    if interface == _LOOPBACK and _is_in(_LOOPBACKS, wanted):
        return True
    for each in own:
        try:
            mine = ip_interface(each)
        except ValueError:
            continue
        if mine.ip == wanted:
            return True
        if interface == _LOOPBACK and isinstance(mine, IPv4Interface) and wanted in mine.network:
            return True
    return False


def can_bind(addresses: Mapping[str, Iterable[str]], address: str) -> bool:
    """Return whether a socket of a host with these addresses, by interface, can have this one."""
    wanted = _parsed(address)
    if wanted is None or _is_in(_ANY + _GROUPS + _LOOPBACKS, wanted):
        return True
    if wanted == IPv4Address("255.255.255.255"):
        return True
    for name, own in addresses.items():
        if has_address(name, own, address) or any(_broadcasts(each, wanted) for each in own):
            return True
    return False


def listens_at(local: str, address: str, own: Mapping[str, Iterable[str]]) -> bool:
    """Return whether a socket of a host with an address gets what is sent to another one.

    Parameters
    ----------
    local : str
        Address of the socket; ``0.0.0.0`` and ``::`` mean all of the host, of their family.
    address : str
        Where packets go.
    own : mapping of str to iterable of str
        Addresses of the host, by interface, such as ``192.168.10.1/24``.
    """
    mine, wanted = _parsed(local), _parsed(address)
    if mine is None or wanted is None:
        return local == address
    if mine == wanted:
        scopes = {each.partition("%")[2] for each in (local, address)} - {""}
        return len(scopes) < 2
    if not is_unspecified(local) or mine.version != wanted.version:
        return False
    return is_loopback(address) or any(has_address(name, own[name], address) for name in own)


def _broadcasts(own: str, wanted: IPv4Address | IPv6Address) -> bool:
    try:
        mine = ip_interface(own)
    except ValueError:
        return False
    return isinstance(mine, IPv4Interface) and mine.network.broadcast_address == wanted


def _is_in(
    networks: Iterable[IPv4Network | IPv6Network], address: IPv4Address | IPv6Address | None
) -> bool:
    return address is not None and any(address in network for network in networks)


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    """Return an address without its scope; None: not an IP address."""
    try:
        return ip_address(address.partition("%")[0])
    except ValueError:
        return None
