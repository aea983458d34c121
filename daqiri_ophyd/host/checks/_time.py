"""Checks of clocks."""

from __future__ import annotations

from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status

_MOST_ERROR = 100_000
# What synchronizes the system clock, or a NIC's; with how to ask it why it does not.
_SERVICES = {
    "chronyd": "chronyc sources",
    "ptp4l": "journalctl -u 'ptp4l*'",
    "phc2sys": "journalctl -u 'phc2sys*'",
    "ntpd": "ntpq -p",
    "systemd-timesyncd": "timedatectl timesync-status",
}
# Another service would compete with these for the system clock.
_MASTERS = ("chronyd", "phc2sys", "ntpd")


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
            clock = "no clock" if settings.clock is None else f"clock /dev/ptp{settings.clock}"
            yield ok(f"hardware timestamps, {clock}", interface.name)
        elif asked:
            note = "Remove hardware_timestamps from the configuration, or use a NIC that has them."
            yield Finding(Status.FAIL, "no hardware timestamps", interface.name, Remedy(note=note))
        else:
            yield skip("no hardware timestamps; none asked for", interface.name)
    clock = context.facts.clock
    running = [name for name in _SERVICES if name in context.facts.services]
    services = f" ({', '.join(running)} running)" if running else ""
    if clock.synchronized and clock.max_error <= _MOST_ERROR:
        yield ok(f"synchronized to {clock.max_error} us{services}", "system clock")
    else:
        found = f"not synchronized{services}"
        if clock.synchronized:
            found = f"may be {clock.max_error} us off{services}"
        yield Finding(Status.WARN, found, "system clock", _synchronize(context, running))


def _synchronize(context: Context, running: list[str]) -> Remedy:
    """Start chrony, unless another service has the system clock."""
    masters = [name for name in running if name in _MASTERS]
    if masters:
        asks = ", ".join(f"`{_SERVICES[name]}`" for name in running)
        note = f"What runs has not synchronized it, as may be soon after its start: see {asks}."
        return Remedy(note=note)
    # Debian's name of the service, and Red Hat's.
    unit = "chrony" if context.facts.root.exists("/etc/debian_version") else "chronyd"
    return Remedy(
        now=(f"systemctl start {unit}",),
        lasting=(f"systemctl enable {unit}",),
        note=(
            "Needs the package chrony, which replaces systemd-timesyncd; at its start the clock "
            "may jump. Or run ptp4l and phc2sys, where the network has a PTP grandmaster."
        ),
        # It runs at once; until the clock is right it takes some seconds.
        verify=("chronyc waitsync 6",),
        verify_lasting=(f"systemctl is-enabled {unit}",),
    )
