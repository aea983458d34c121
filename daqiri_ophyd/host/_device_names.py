"""Names of PCI devices, as people and the system call them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ._root import FactError
from .facts import Facts, PciDevice

__all__ = ["DeviceNames", "Names", "known"]

# Shorter than in pci.ids.
_VENDORS = {
    0x1000: "Broadcom",
    0x1002: "AMD",
    0x1022: "AMD",
    0x10B5: "PLX",
    0x10DE: "NVIDIA",
    0x10EC: "Realtek",
    0x144D: "Samsung",
    0x14E4: "Broadcom",
    0x15B3: "NVIDIA",
    0x15B7: "SanDisk",
    0x1AF4: "Virtio",
    0x8086: "Intel",
}

T = TypeVar("T")


def known(fact: Callable[[], T], otherwise: T) -> T:
    """Return a fact, or something else if it cannot be read."""
    try:
        return fact()
    except FactError:
        return otherwise


@dataclass(frozen=True, slots=True)
class Names:
    """Names of a device.

    Parameters
    ----------
    product : str
        Vendor and product.
    system : str
        Such as ``ens6f0np0 / mlx5_0``, ``nvme0`` or ``GPU 0``; empty: none.
    state : str
        Rate of a port, or that it has no link; whether a GPU is integrated.
    rate : int
        Mb/s of a port; 0: not known.
    """

    product: str
    system: str = ""
    state: str = ""
    rate: int = 0


class DeviceNames:
    """Names of a host's devices.

    Parameters
    ----------
    facts : Facts
        The host.
    """

    def __init__(self, facts: Facts) -> None:
        self.gpus = {gpu.pci_address: gpu for gpu in known(lambda: facts.gpus, [])}
        self._listed = known(lambda: facts.pci_names, {})
        self._drives = facts.drives
        self._interfaces = list(facts.interfaces.values())
        self._rdma = facts.rdma

    def of(self, device: PciDevice) -> Names:
        """Return the names of a NIC, GPU or drive."""
        product = self.product(device) or f"{self._vendor(device)} device {device.device:04x}"
        if gpu := self.gpus.get(device.address):
            return Names(gpu.name, f"GPU {gpu.index}", "integrated" if gpu.integrated else "")
        if drive := self._drives.get(device.address):
            return Names(drive.model or product, drive.name)
        ports = [each for each in self._interfaces if each.pci_address == device.address]
        names = [port.name for port in ports]
        names += [each.name for each in self._rdma if each.pci_address == device.address]
        rate = max((port.speed or 0 for port in ports if port.carrier), default=0)
        state = f"{rate / 1000:g} Gb/s" if rate else ""
        if ports and not any(port.carrier for port in ports):
            state = "no link"
        return Names(product, " / ".join(names), state, rate)

    def product(self, device: PciDevice) -> str:
        """Return vendor and product; empty: not known."""
        listed = self._listed.get(f"{device.vendor:04x}:{device.device:04x}", "")
        # The name for sale is in brackets, after that of the chip.
        sold = re.search(r"\[([^]]+)\]$", listed)
        name = device.product or (sold[1] if sold else listed)
        vendor = self._vendor(device)
        known_already = not name or name.casefold().startswith(vendor.casefold())
        return name if known_already else f"{vendor} {name}"

    def _vendor(self, device: PciDevice) -> str:
        number = f"{device.vendor:04x}"
        listed = re.split(r",| \[| /", self._listed.get(number, number))[0]
        return _VENDORS.get(device.vendor, listed)
