"""The network interface of a port as a device."""

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ophyd import Component
from ophyd.ophydobj import Kind

from daqiri_ophyd.engine import Engine, PortCounters

from ._base import CounterDevice
from ._signals import EngineSignalRO, counter

__all__ = ["Link"]


class Link(CounterDevice):
    """State of a port's network interface, and what the host lost of its packets before the engine.

    ``state`` is ``up``, ``down`` (switched off, or without a carrier), ``removed``, or ``none``:
    the port has no separate interface (loopback, sockets). A speed or MTU of 0 is unknown. The
    other signals are those of `daqiri_ophyd.engine.PortCounters`. They change at most once a second
    for subscribers; reading them reads the kernel's statistics.
    """

    state: Component[EngineSignalRO[str]] = Component(
        EngineSignalRO, value="none", kind=Kind.normal
    )
    speed = counter("Mb/s")
    mtu = counter("byte")
    lost_before_engine = counter("packets", hinted=True)
    lost_card = counter("packets")
    lost_backlog = counter("packets")
    lost_errors = counter("packets")
    lost_dropped = counter("packets")

    def take_values(self) -> dict[str, Any]:
        """Read the link from the kernel; opens the engine if it is closed."""
        engine = self.daq.open().engine
        return self._values(engine, engine.port(self.port_name).counters())

    def take_copied(self, counters: NDArray[np.void]) -> dict[str, Any]:
        """Read the link from the kernel, and the losses from the engine's periodic copy."""
        row = counters["ports"][self.port_name]
        return self._values(self.daq.engine, PortCounters.of_row(row))

    def _values(self, engine: Engine, counters: PortCounters) -> dict[str, Any]:
        link = engine.port(self.port_name).link()
        return {
            "state": link.state,
            "speed": link.speed,
            "mtu": link.mtu,
            **asdict(counters),
        }
