"""Checks of PCI Express."""

from __future__ import annotations

from collections.abc import Iterator

from .._check import Context, check, ok
from .._finding import Finding, Remedy, Status


@check(
    "pcie-link",
    "PCIe speed and width",
    wanted="each NIC's link at the speed and width it can do",
    why="A link that trained narrow or slow is a ceiling that no setting of the engine lifts.",
    sources=("/sys/bus/pci/devices/*/{current,max}_link_{speed,width}",),
)
def pcie_link(context: Context) -> Iterator[Finding]:
    for device in context.nics:
        if not device.link_speed or not device.max_link_speed:
            continue
        is_now = f"{device.link_speed} x{device.link_width}"
        can_be = f"{device.max_link_speed} x{device.max_link_width}"
        if is_now == can_be:
            yield ok(is_now, device.address)
        else:
            note = (
                "Seat the card again, put it into a slot with as many lanes, without a riser, and "
                "look for a link speed limit in the BIOS."
            )
            found = f"{is_now}; it can do {can_be}"
            yield Finding(Status.WARN, found, device.address, Remedy(note=note))
