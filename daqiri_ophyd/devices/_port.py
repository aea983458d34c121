"""A port as a device: its address, its traffic, and what belongs to it."""

from typing import Any

from ophyd import Component as Cpt
from ophyd.ophydobj import Kind

from ._base import Group
from ._signals import EngineSignal, fact

__all__ = ["Port"]


class _DropAll(EngineSignal):
    """Whether a port drops what arrives; the engine knows of it at once."""

    def put(self, value: Any, **kwargs: Any) -> None:
        """Check the value, tell the engine, and take the value over.

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
    """A port of the engine with its queues, flows, plans and captures.

    While `drop_all_traffic` is true, what arrives is dropped and counted as ``filtered``; nothing
    of it reaches a queue later. It is false whenever the engine is opened.
    """

    address = fact(lambda port: port.interface.address, "string")
    drop_all_traffic = Cpt(_DropAll, value=False, kind=Kind.omitted)
