"""Checks of clocks."""

from __future__ import annotations

from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status

_MOST_ERROR = 100_000


@check(
    "clocks",
    "clocks and timestamps",
    wanted="hardware timestamps if the configuration asks for them; a synchronized system clock",
    why="Packets of several hosts can be ordered only if their clocks agree.",
    sources=("SIOCETHTOOL", "adjtimex", "/proc/*/comm"),
)
def clocks(context: Context) -> Iterator[Finding]:
    for interface in context.interfaces:
        settings = context.facts.nic_settings(interface.name)
        asked = any(port.hardware_timestamps for port in context.ports_of(interface))
        if settings.hardware_receive:
            yield ok(f"hardware timestamps, clock /dev/ptp{settings.clock}", interface.name)
        elif asked:
            note = "Remove hardware_timestamps from the configuration, or use a NIC that has them."
            yield Finding(Status.FAIL, "no hardware timestamps", interface.name, Remedy(note=note))
        else:
            yield skip("no hardware timestamps; none asked for", interface.name)
    clock = context.facts.clock
    services = f" ({', '.join(clock.services)} running)" if clock.services else ""
    if clock.synchronized and clock.max_error <= _MOST_ERROR:
        yield ok(f"synchronized to {clock.max_error} us{services}", "system clock")
    else:
        found = f"not synchronized{services}"
        if clock.synchronized:
            found = f"may be {clock.max_error} us off{services}"
        remedy = Remedy(
            now=("systemctl enable --now chronyd",),
            note="Or ptp4l and phc2sys, where the network has a PTP grandmaster.",
        )
        yield Finding(Status.WARN, found, "system clock", remedy)
