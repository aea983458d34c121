"""The network interface of a port as a device."""

from typing import Any

from ophyd import Component
from ophyd.ophydobj import Kind

from daqiri_ophyd.engine import Engine

from ..parts._base import CounterDevice
from ..parts._signals import EngineSignalRO, counter

__all__ = ["Link"]


class Link(CounterDevice):
    """State, speed and MTU of a port's network interface.

    ``state`` is ``up``, ``down`` (switched off, or without a carrier), ``removed``, or ``none``:
    the port has no separate interface (loopback, sockets). A speed or MTU of 0 is unknown. What the
    host lost of its packets is in the counters of the `Port`.
    """

    state: Component[EngineSignalRO[str]] = Component(
        EngineSignalRO, value="none", kind=Kind.normal
    )
    speed = counter("Mb/s")
    mtu = counter("byte")

    def values_of(self, engine: Engine) -> dict[str, Any]:
        """Read the link from the kernel; it is not in the engine's periodic copy."""
        link = engine.port(self.port_name).link()
        return {"state": link.state, "speed": link.speed, "mtu": link.mtu}
