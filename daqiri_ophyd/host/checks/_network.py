"""Checks of network interfaces."""

from __future__ import annotations

from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status


@check(
    "carrier",
    "link of the ports",
    wanted="a link on every port in use",
    why="Without a link no packet arrives, whatever else is right.",
    sources=("/sys/class/net/*/carrier",),
)
def carrier(context: Context) -> Iterator[Finding]:
    for interface in context.interfaces:
        name = interface.name
        if interface.carrier:
            yield ok("link" + (f" at {interface.speed} Mb/s" if interface.speed else ""), name)
        elif not interface.up:
            remedy = Remedy(now=(f"ip link set dev {name} up",))
            yield Finding(Status.FAIL, "switched off", name, remedy)
        elif interface.carrier is None:
            yield skip("the driver does not say", name)
        else:
            note = "Plug the cable in at both ends, and see that the other end is switched on."
            if context.platform == "spark":
                note += (
                    " Both sockets share one fabric: one end pulled takes the link from all ports."
                )
            yield Finding(Status.FAIL, "no link", name, Remedy(note=note))
