"""A port as a device, with its queues, flows and capture; its network interface."""

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ophyd import Component as Cpt
from ophyd.ophydobj import Kind

from daqiri_ophyd.engine import Engine, PortCounters

from ..parts._base import CounterDevice, Group
from ..parts._signals import EngineSignal, EngineSignalRO, counter, fact

__all__ = ["Link", "Port"]


class _DropAll(EngineSignal[bool]):
    """Whether a port drops all traffic; setting it takes effect in the engine at once."""

    def put(self, value: Any, **kwargs: Any) -> None:
        """Check the value, apply it to the engine, and store it.

        Raises
        ------
        NotReadyError
            If the engine is not open.
        """
        self.check_value(value)
        port = self.device.daq.port(self.device.port_name)
        if value:
            port.drop_all_traffic()
        else:
            port.allow_all_traffic()
        super().put(value, **kwargs)


class Link(CounterDevice):
    """State, speed and MTU of a port's network interface.

    ``state`` is ``up``, ``down`` (switched off, or without a carrier), ``removed``, or ``none``:
    the port has no separate interface (loopback, sockets). A speed or MTU of 0 is unknown. What the
    host lost of its packets is in the counters of the `Port`.
    """

    state: Cpt[EngineSignalRO[str]] = Cpt(EngineSignalRO, value="none", kind=Kind.normal)
    speed = counter("Mb/s")
    mtu = counter("byte")

    def values_of(self, engine: Engine) -> dict[str, Any]:
        """Read the link from the kernel; it is not in the engine's periodic copy."""
        link = engine.port(self.port_name).link()
        return {"state": link.state, "speed": link.speed, "mtu": link.mtu}


class Port(Group, CounterDevice):
    """A port of the engine with its queues, flows, reorder plans, frame detectors and capture.

    While `drop_all_traffic` is true, packets that arrive are dropped and counted as ``filtered``.
    None of them reaches a queue later. It is false whenever the engine is opened.

    `lost_before_engine` and its reasons are `daqiri_ophyd.engine.PortCounters`. Reading them reads
    the kernel's statistics; subscribers see values that are at most a second old.
    """

    rx: Group
    tx: Group
    flows: Group
    reorder: Group
    frames: Group
    link: Link
    address = fact(lambda port: port.interface.address, "string")
    lost_before_engine = counter("packets", hinted=True)
    lost_card = counter("packets")
    lost_backlog = counter("packets")
    lost_errors = counter("packets")
    lost_dropped = counter("packets")
    drop_all_traffic = Cpt(_DropAll, value=False, kind=Kind.omitted)

    def values_of(self, engine: Engine) -> dict[str, Any]:
        """Read the kernel's statistics."""
        return asdict(engine.port(self.port_name).counters())

    def take_copied(self, counters: NDArray[np.void]) -> dict[str, Any]:
        """Return the same values from the engine's periodic copy."""
        return asdict(PortCounters.of_row(counters["ports"][self.port_name]))
