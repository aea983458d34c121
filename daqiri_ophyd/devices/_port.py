"""A port as a device, with its queues, flows and capture."""

from typing import Any

from ophyd import Component as Cpt
from ophyd.ophydobj import Kind

from ._base import Group
from ._link import Link
from ._signals import EngineSignal, fact

__all__ = ["Port"]


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


class Port(Group):
    """A port of the engine with its queues, flows, reorder plans, frame detectors and capture.

    While `drop_all_traffic` is true, packets that arrive are dropped and counted as ``filtered``.
    None of them reaches a queue later. It is false whenever the engine is opened.
    """

    rx: Group
    tx: Group
    flows: Group
    reorder: Group
    frames: Group
    link: Link
    address = fact(lambda port: port.interface.address, "string")
    drop_all_traffic = Cpt(_DropAll, value=False, kind=Kind.omitted)
