"""Keys of flows as settable signals."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from ophyd import Component
from ophyd.ophydobj import Kind

from ..parts._signals import DataKeys, TypedSignal
from ..parts._status import EngineStatus

__all__ = ["FlowKey", "QueueOfFlow", "flow_key"]


class FlowKey(TypedSignal[int | str]):
    """A key of a flow's match; its value is that in the engine's configuration.

    Setting it changes the configuration (`Daq.change_flows`). If the engine can change its flows,
    the change takes effect at once. Otherwise an open engine is closed and reopened, which is
    rejected while a plan uses it. Setting the current value changes nothing. `set`, for plans,
    changes the configuration on a thread; if the engine is reopened, several keys of one ``bps.mv``
    are one change. `put` changes it at once.

    Parameters
    ----------
    absent : int or str
        Value of a key that is absent. Setting this value removes the key.
    path : tuple of str, optional
        Path of the key in the match. Default: the attribute's name at the top level.
    text : bool
        Whether a string, such as a range of ports, is accepted as well as a number.
    """

    def __init__(
        self,
        *,
        absent: int | str,
        path: tuple[str, ...] = (),
        text: bool = False,
        units: str = "",
        **kwargs: Any,
    ) -> None:
        dtype = "string" if isinstance(absent, str) else "integer"
        super().__init__(dtype=dtype, units=units, value=absent, **kwargs)
        self._absent = absent
        self._path = path or (self.attr_name,)
        self._types = {type(absent)} | ({str} if text else set())

    def get(self, **_: Any) -> Any:
        """Return the value in the configuration."""
        self.follow()
        return self._readback

    def describe(self) -> DataKeys:
        """Return the data key; if strings are accepted too, its type is that of the value."""
        self._dtype = "string" if isinstance(self.get(), str) else "integer"
        return super().describe()

    def put(self, value: Any, **_: Any) -> None:
        """Change the configuration, also of an open engine.

        Raises
        ------
        TypeError
            If the value cannot be converted to the signal's type without loss.
        RuntimeError
            If the engine has to be reopened while a plan uses it.
        ConfigError
            If the changed configuration is not valid; nothing is changed.
        """
        self.device.change(self.keys(self._convert(value)))

    def set(self, value: Any, *, settle_time: float | None = None, **_: Any) -> EngineStatus:
        """Change the configuration on a thread, also of an open engine.

        Keys that are set until the thread begins are changed together.

        Returns
        -------
        EngineStatus
            Done when packets are steered by the new value. If the engine has to be reopened and
            cannot be, it is opened as before, and the status has failed for that cause.

        Raises
        ------
        TypeError, RuntimeError, ConfigError
            As `put` does; nothing is changed.
        """
        status = EngineStatus(
            self, action="changing", timeout=math.inf, settle_time=settle_time or 0.0
        )
        return status.end_with(self.device.begin_change(self.keys(self._convert(value))))

    def subscribe(
        self, callback: Callable[..., Any], event_type: str | None = None, run: bool = True
    ) -> int:
        """Call ``callback`` on changes; see `ophyd.ophydobj.OphydObject.subscribe`."""
        self.follow()
        return super().subscribe(callback, event_type=event_type, run=run)

    def follow(self) -> None:
        """Read the value in the configuration, and call the subscribers if it has changed."""
        # Repeated after the calls: another thread may have changed the value meanwhile.
        while (value := self.configured()) != self._readback:
            super().put(value, timestamp=time.time(), force=True)

    def configured(self) -> Any:
        """Return the value in the configuration."""
        level: Any = self.device.matched
        for key in self._path:
            level = level.get(key, {})
        return self._absent if level == {} else level

    def keys(self, value: Any) -> dict[Any, Any]:
        """Return the change of the flow for a value; see `Daq.change_flows`."""
        return {self._path: None if value == self._absent else value}

    def _convert(self, value: Any) -> Any:
        # Plans pass NumPy scalars and whole floats.
        for kind in self._types:
            if isinstance(value, str) != (kind is str) or isinstance(value, bool | np.bool_):
                continue
            try:
                if (converted := kind(value)) == value:
                    return converted
            except (TypeError, ValueError, OverflowError):
                pass
        raise TypeError(f"{self.name} is {value!r}; accepted is {self._accepted()}.")

    def _accepted(self) -> str:
        names = sorted("a text" if kind is str else "an integer" for kind in self._types)
        return f"{' or '.join(names)}, and {self._absent!r} for none"


class QueueOfFlow(FlowKey):
    """Name of the receive queue of a flow; empty if the flow leads to several."""

    def configured(self) -> str:
        """Return the name of the queue."""
        names = self.device.queue_names
        return names[0] if len(names) == 1 else ""

    def keys(self, value: str) -> dict[Any, Any]:
        """Return the change of the flow for a queue."""
        return {"queue": value}

    def _accepted(self) -> str:
        return "the name of a receive queue"


def flow_key(absent: int | str, units: str = "", **kwargs: Any) -> Component[FlowKey]:
    """Return the component of a `FlowKey`, a part of the configuration."""
    return Component(FlowKey, absent=absent, units=units, kind=Kind.config, **kwargs)
