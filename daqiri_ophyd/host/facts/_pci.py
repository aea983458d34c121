"""Devices on the PCI buses, their topology and their configuration space."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from os.path import commonprefix
from typing import Final

from .._root import FactError, Root

__all__ = ["Connection", "Express", "PciDevice", "address_in", "bridges_between", "connection"]
__all__ += ["read_pci"]

_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE | re.ASCII)
_DEVICES = "/sys/bus/pci/devices"


NVIDIA_NICS: Final = {
    0x1003: "ConnectX-3",
    0x1007: "ConnectX-3 Pro",
    0x1013: "ConnectX-4",
    0x1015: "ConnectX-4 Lx",
    0x1017: "ConnectX-5",
    0x1019: "ConnectX-5 Ex",
    0x101B: "ConnectX-6",
    0x101D: "ConnectX-6 Dx",
    0x101F: "ConnectX-6 Lx",
    0x1021: "ConnectX-7",
    0x1023: "ConnectX-8",
    0xA2D2: "BlueField",
    0xA2D6: "BlueField-2",
    0xA2DC: "BlueField-3",
}
"""Names by device number, for vendor 0x15b3."""

# Virtual functions of these, in a guest that sees no physical function.
_VIRTUAL_NICS = frozenset((0x1004, 0x1014, 0x1016, 0x1018, 0x101A, 0x101C, 0x101E, 0xA2D3))


class Connection(StrEnum):
    """Path between two PCI devices, from short to long, with the names of nvidia-smi topo."""

    PIX = "PIX"  # over at most one bridge (a switch)
    PXB = "PXB"  # over several bridges, none of them the host's
    PHB = "PHB"  # over the host bridge
    NODE = "NODE"  # between host bridges of one NUMA node
    SYS = "SYS"  # between NUMA nodes


@dataclass(frozen=True, slots=True)
class Express:
    """PCI Express capability of a device (PCI Express Base Specification, 7.5.3).

    Parameters
    ----------
    max_payload_supported, max_payload : int
        Largest payload of a packet on the link, in bytes: supported and set.
    max_read_request : int
        Largest read request of the device, in bytes.
    """

    max_payload_supported: int
    max_payload: int
    max_read_request: int


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A function of a device on a PCI bus.

    Parameters
    ----------
    address : str
        ``domain:bus:device.function``.
    device_class : int
        24 bits: class, subclass, programming interface.
    vendor, device : int
        Identification numbers.
    numa_node : int or None
        None: not known, or there is only one node.
    ancestors : tuple of str
        Host bridge (``pci0000:00``) and the bridges down to the device.
    link_speed, max_link_speed : str
        Such as ``16.0 GT/s PCIe``; empty: no link.
    link_width, max_link_width : int
        Lanes; 0: no link.
    driver : str
        Kernel driver; empty: none.
    config : bytes
        Readable part of the configuration space: 4096 bytes as root, else 64.
    has_physical : bool
        Whether it is a virtual function (SR-IOV) of a physical function on this host.
    """

    address: str
    device_class: int
    vendor: int
    device: int
    numa_node: int | None
    ancestors: tuple[str, ...]
    link_speed: str
    max_link_speed: str
    link_width: int
    max_link_width: int
    driver: str
    config: bytes
    has_physical: bool = False

    @property
    def product(self) -> str:
        """Name of an NVIDIA NIC; empty: another device, or not known."""
        return NVIDIA_NICS.get(self.device, "") if self.is_nvidia_nic else ""

    @property
    def is_nic(self) -> bool:
        """Whether it is an Ethernet or InfiniBand controller."""
        return self.device_class >> 8 in (0x0200, 0x0207)

    @property
    def is_network(self) -> bool:
        """Whether it is a network controller of any kind, such as for Wi-Fi."""
        return self.device_class >> 16 == 0x02

    @property
    def is_gpu(self) -> bool:
        """Whether it is a graphics or compute accelerator."""
        return self.device_class >> 16 == 0x03 or self.device_class >> 8 == 0x1200

    @property
    def is_nvidia_nic(self) -> bool:
        """Whether it is a ConnectX or BlueField; the vendor id is still Mellanox's."""
        return self.is_nic and self.vendor == 0x15B3

    @property
    def is_virtual(self) -> bool:
        """Whether it is a virtual function: settings of card and link are those of another."""
        guest = self.is_nvidia_nic and self.device in _VIRTUAL_NICS
        return self.has_physical or guest

    @property
    def is_nvidia_gpu(self) -> bool:
        """Whether it is an NVIDIA GPU."""
        return self.is_gpu and self.vendor == 0x10DE

    @property
    def is_nvme(self) -> bool:
        """Whether it is an NVMe drive."""
        return self.device_class >> 8 == 0x0108

    @property
    def is_bridge(self) -> bool:
        """Whether it is a bridge from one PCI bus to another."""
        return self.device_class >> 8 == 0x0604

    @property
    def express(self) -> Express:
        """
        PCI Express settings.

        Raises
        ------
        FactError
            If the configuration space cannot be read (it requires root), or has no such capability.
        """
        at = self._capability(0x10)
        payload = self._word(at + 4) & 0x7
        control = self._word(at + 8)
        sizes = [128 << n for n in (payload, control >> 5 & 0x7, control >> 12 & 0x7)]
        return Express(*sizes)

    @property
    def access_control(self) -> int | None:
        """
        Control word of Access Control Services; 0: all off; None: the device has none.

        Raises
        ------
        FactError
            If the extended configuration space cannot be read (it requires root).
        """
        at = self._extended_capability(0x000D)
        return None if at is None else self._word(at + 6)

    @property
    def largest_bar1(self) -> int | None:
        """
        Bytes that BAR 1 can be set to by Resizable BAR; None: it has no such capability.

        Raises
        ------
        FactError
            If the extended configuration space cannot be read (it requires root).
        """
        at = self._extended_capability(0x0015)
        if at is None:
            return None
        # The count is in the first entry's control register; sizes are bits from 1 MiB up.
        for entry in range(at, at + 8 * (self._word(at + 8) >> 5 & 0x7), 8):
            sizes = (self._word(entry + 4) | self._word(entry + 6) << 16) >> 4
            if self._word(entry + 8) & 0x7 == 1 and sizes:
                return 1 << 20 + sizes.bit_length() - 1
        return None

    @property
    def bandwidth(self) -> float | None:
        """Gb/s that the link carries now, without its encoding; None: no link."""
        return _bandwidth(self.link_speed, self.link_width)

    @property
    def max_bandwidth(self) -> float | None:
        """Gb/s that the link can carry at most; None: no link."""
        return _bandwidth(self.max_link_speed, self.max_link_width)

    @property
    def packet_bandwidth(self) -> float | None:
        """Gb/s of packets that the link carries now, about; None: no link."""
        # What headers leave of a link with payloads of 256 B.
        return None if self.bandwidth is None else 0.9 * self.bandwidth

    def _word(self, at: int) -> int:
        if at + 2 > len(self.config):
            raise FactError(
                f"{self.address}: only {len(self.config)} bytes of configuration space can be read "
                "(the rest requires root)"
            )
        return int.from_bytes(self.config[at : at + 2], "little")

    def _capability(self, wanted: int) -> int:
        if not self._word(0x06) & 0x10:
            raise FactError(f"{self.address}: has no list of capabilities")
        at = self._word(0x34) & 0xFC
        # As many as fit: a malformed list may be circular.
        for _ in range(48):
            if at < 0x40:
                break
            head = self._word(at)
            if head & 0xFF == wanted:
                return at
            at = head >> 8 & 0xFC
        raise FactError(f"{self.address}: has no capability {wanted:#04x}")

    def _extended_capability(self, wanted: int) -> int | None:
        at = 0x100
        for _ in range(960):
            if at < 0x100:
                break
            head = self._word(at) | self._word(at + 2) << 16
            if head & 0xFFFF == wanted:
                return at
            at = head >> 20 & 0xFFC
        return None


def address_in(path: str) -> str:
    """
    Return the last PCI address in the path of a device; empty: there is none.

    Nothing but an address is taken for one: it becomes part of commands that root runs.
    """
    parts = reversed(path.split("/"))
    return next((part for part in parts if _ADDRESS.fullmatch(part)), "")


def read_pci(root: Root) -> dict[str, PciDevice]:
    """Return all PCI devices by address."""
    names = [name for name in root.names(_DEVICES) if _ADDRESS.fullmatch(name)]
    # A link may be broken.
    return {name: _read(root, name) for name in names if root.exists(f"{_DEVICES}/{name}")}


def _read(root: Root, address: str) -> PciDevice:
    folder = f"{_DEVICES}/{address}"
    real = root.target(folder).split("/")
    chain = [part for part in real[:-1] if part.startswith("pci") or _ADDRESS.fullmatch(part)]
    node = _integer(root, f"{folder}/numa_node", -1)
    driver = root.target(f"{folder}/driver") if root.exists(f"{folder}/driver") else ""
    try:
        config = root.bytes(f"{folder}/config", 4096)
    except FactError:
        config = b""
    return PciDevice(
        address=address,
        device_class=_integer(root, f"{folder}/class"),
        vendor=_integer(root, f"{folder}/vendor"),
        device=_integer(root, f"{folder}/device"),
        numa_node=node if node >= 0 else None,
        ancestors=tuple(chain),
        link_speed=_speed(root, f"{folder}/current_link_speed"),
        max_link_speed=_speed(root, f"{folder}/max_link_speed"),
        link_width=_integer(root, f"{folder}/current_link_width"),
        max_link_width=_integer(root, f"{folder}/max_link_width"),
        driver=driver.rpartition("/")[2],
        config=config,
        has_physical=root.exists(f"{folder}/physfn"),
    )


def _integer(root: Root, path: str, otherwise: int = 0) -> int:
    try:
        return root.integer(path)
    except FactError:
        return otherwise


def _speed(root: Root, path: str) -> str:
    text = root.optional(path)
    return text if "GT/s" in text else ""


def _bandwidth(speed: str, width: int) -> float | None:
    rate = re.match(r"\d{1,4}(\.\d)?", speed)
    if not rate or not width:
        return None
    # 8b/10b up to 5 GT/s, 128b/130b above.
    return float(rate[0]) * width * (0.8 if float(rate[0]) <= 5 else 128 / 130)


def connection(a: PciDevice, b: PciDevice) -> Connection:
    """
    Return the class of the path between two PCI devices.

    The classes are those of nvidia-smi. They count the bridges on the path; the ports of a switch
    count as one bridge per side, so devices on one bus, or on two ports of one switch, are ``PIX``.
    """
    shared = _shared(a, b)
    if shared == 0:
        nodes = {a.numa_node, b.numa_node}
        return Connection.SYS if len(nodes) == 2 and None not in nodes else Connection.NODE
    if shared == 1:
        # Nothing in common but the host bridge.
        return Connection.PHB
    # Below the last shared port, each side has its own downstream ports to the device.
    apart = max(len(a.ancestors), len(b.ancestors)) - shared
    return Connection.PIX if apart <= 1 else Connection.PXB


def bridges_between(a: PciDevice, b: PciDevice) -> tuple[str, ...]:
    """Return the bridges below the common ancestors of two PCI devices: those of a, then of b."""
    shared = _shared(a, b)
    return (*a.ancestors[shared:], *b.ancestors[shared:])


def _shared(a: PciDevice, b: PciDevice) -> int:
    """Return the number of common ancestors of two devices."""
    return len(commonprefix((a.ancestors, b.ancestors)))
