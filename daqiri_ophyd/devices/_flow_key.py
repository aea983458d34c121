"""Keys of flows as settable signals."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from ophyd import Component
from ophyd.ophydobj import Kind

from ._signals import DataKeys, TypedSignal
from ._status import EngineStatus

__all__ = ["FlowKey", "QueueOfFlow", "flow_key"]


class FlowKey(TypedSignal[int | str]):
    """A key of a flow's match: its value is what the configuration of the engine has.

    Setting it changes the configuration (`Daq.change_flows`), at once where the engine can. Else an
    open engine is closed and opened again, which is refused while a plan uses it. A value that is
    there already changes nothing. `set` does it on a thread, for plans: several keys of one
    ``bps.mv`` are one change where the engine is opened again. `put` does it at once.

    Parameters
    ----------
    absent : int or str
        Value that means that the key is not given. Setting it removes the key.
    path : tuple of str, optional
        Where the key is in the match; default: at its top, with the name of the attribute.
    text : bool
        Whether a number may be a text too, such as a range of ports.
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
        """Return the data key; where a number may be a text, its type is that of the value."""
        self._dtype = "string" if isinstance(self.get(), str) else "integer"
        return super().describe()

    def put(self, value: Any, **_: Any) -> None:
        """Change the configuration, also of an open engine.

        Raises
        ------
        TypeError
            If the value is neither of the signal's type nor without loss of it.
        RuntimeError
            If a plan uses the engine, which has to be opened anew.
        ConfigError
            If the changed configuration is not valid; nothing is changed.
        """
        self.device.change(self.keys(self._convert(value)))

    def set(self, value: Any, *, settle_time: float | None = None, **_: Any) -> EngineStatus:
        """Change the configuration on a thread, also of an open engine.

        Keys that are set until that begins are changed together.

        Returns
        -------
        EngineStatus
            Done when packets are steered so. If the engine had to be opened anew and cannot be, it
            is open as before, and the status has failed for that cause.

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
        """Take the value in the configuration, and call the subscribers if it has changed."""
        # Again after subscribers were called: another thread may have told them of a later value.
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
        # Plans pass numpy scalars and whole floats.
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
    """Name of the receive queue that a flow leads to; empty: it leads to several."""

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
