"""Checks of clocks."""

from __future__ import annotations

from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status

_MOST_ERROR = 100_000
_SERVICES = ("chronyd", "ptp4l", "phc2sys", "ntpd", "systemd-timesyn")


@check(
    "clocks",
    "clocks and timestamps",
    wanted="hardware timestamps if the configuration asks for them; a synchronized system clock",
    why="Packets of several hosts can be ordered only if their clocks agree.",
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
    # Debian's name of the service, and Red Hat's.
    unit = "chrony" if context.facts.root.exists("/etc/debian_version") else "chronyd"
    running = [name for name in _SERVICES if name in context.facts.services]
    services = f" ({', '.join(running)} running)" if running else ""
    if clock.synchronized and clock.max_error <= _MOST_ERROR:
        yield ok(f"synchronized to {clock.max_error} us{services}", "system clock")
    else:
        found = f"not synchronized{services}"
        if clock.synchronized:
            found = f"may be {clock.max_error} us off{services}"
        remedy = Remedy(
            now=(f"systemctl start {unit}",),
            lasting=(f"systemctl enable {unit}",),
            note=(
                f"Needs the package chrony, whose service is {unit} here. Or ptp4l and phc2sys, "
                "where the network has a PTP grandmaster."
            ),
            verify=(f"systemctl is-active {unit}",),
            verify_lasting=(f"systemctl is-enabled {unit}",),
        )
        yield Finding(Status.WARN, found, "system clock", remedy)
