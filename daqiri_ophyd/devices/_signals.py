"""Signals for readings, settings and configuration of the engine."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ophyd import Component
from ophyd.ophydobj import Kind
from ophyd.signal import Signal
from ophyd.status import Status
from ophyd.utils import ReadOnlyError

__all__ = [
    "EngineSignal",
    "EngineSignalRO",
    "Fact",
    "Reading",
    "counter",
    "counter_array",
    "fact",
    "reading",
    "setting",
]

_NUMPY = {"integer": "<i8", "number": "<f8", "boolean": "|b1"}


class _TypedSignal(Signal):
    """A signal with a declared type, unit and source: it can be described without a reading."""

    def __init__(
        self,
        *,
        dtype: str,
        value: Any,
        units: str = "",
        precision: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(value=value, **kwargs)
        self._dtype = dtype
        self._units = units
        self._precision = precision

    @property
    def device(self) -> Any:
        """The device that the signal belongs to."""
        return self.parent

    @property
    def source_name(self) -> str:
        """Source of the value, such as ``daqiri://port0/rx/rx_q0/received``."""
        return f"{getattr(self.device, 'source', 'daqiri://' + self.root.name)}/{self.attr_name}"

    def describe(self) -> dict[str, dict[str, Any]]:
        """Return the data key, which does not depend on the value."""
        key: dict[str, Any] = {"source": self.source_name, "dtype": self._dtype, "shape": []}
        if self._dtype == "array":
            values: Any = self.get()
            key["shape"] = [len(values)]
            if values:
                key["dtype_numpy"] = np.asarray(values).dtype.str
        if self._dtype in _NUMPY:
            key["dtype_numpy"] = _NUMPY[self._dtype]
        if self._units:
            key["units"] = self._units
        if self._precision is not None:
            key["precision"] = self._precision
        return {self.name: key}

    def put(self, value: Any, *, force: bool = False, **kwargs: Any) -> None:
        """Store a value; readings can be set only by their device (``force``)."""
        if not force and not self.write_access:
            raise ReadOnlyError(f"{self.name} is read-only.")
        super().put(value, force=force, **kwargs)

    def set(
        self,
        value: Any,
        *,
        timeout: float | None = None,
        settle_time: Any = None,
        **_: Any,
    ) -> Status:
        """Set at once; a value that is not accepted raises here, not in the status."""
        self.put(value)
        status = Status(self, settle_time=settle_time or 0)
        status.set_finished()
        return status


class Reading(_TypedSignal):
    """A read-only value that its device updates.

    Parameters
    ----------
    dtype : str
        ``integer``, ``number`` or ``boolean``.
    units : str
        Unit, for the data key.
    precision : int, optional
        Digits to show after the decimal point.
    value : Any, optional
        Initial value; default 0.
    """

    def __init__(
        self,
        *,
        dtype: str = "integer",
        units: str = "",
        precision: int | None = None,
        value: Any = None,
        **kwargs: Any,
    ) -> None:
        if value is None:
            value = {"integer": 0, "number": 0.0, "boolean": False}[dtype]
        super().__init__(dtype=dtype, units=units, precision=precision, value=value, **kwargs)
        self._metadata["write_access"] = False

    def update(self, value: Any, timestamp: float) -> None:
        """Store a value and call the subscribers."""
        self.put(value, timestamp=timestamp, force=True)


class EngineSignalRO(Reading):
    """A counter or another reading of the engine.

    Its device reads all of its signals at once (`CounterDevice`), so their values are consistent.
    Reading the signal reads the engine; subscribers are called periodically.

    Parameters
    ----------
    length : int, optional
        Number of integers of an array; None: a scalar.
    **kwargs
        As for `Reading`.
    """

    def __init__(self, *, length: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._length = length
        self._told: Any = None

    def update_if_changed(self, value: Any, timestamp: float) -> None:
        """Call the subscribers if the value is not the one that they were told last."""
        if value != self._told:
            self._told = value
            self.update(value, timestamp)

    def describe(self) -> dict[str, dict[str, Any]]:
        """Return the data key, which does not depend on the value."""
        described = super().describe()
        if self._length is not None:
            described[self.name] |= {"dtype": "array", "shape": [self._length]}
        return described

    def get(self, **_: Any) -> Any:
        """Read the engine and return the value; subscribers are not called."""
        self._readback = self.device.take_values()[self.attr_name]
        self._metadata["timestamp"] = time.time()
        return self._readback

    @property
    def monitored(self) -> bool:
        """Whether the value has subscribers."""
        return bool(self._callbacks[self.SUB_VALUE])

    def subscribe(
        self, callback: Callable[..., Any], event_type: str | None = None, run: bool = True
    ) -> int:
        """Call ``callback`` on changes; see `ophyd.ophydobj.OphydObject.subscribe`."""
        if not self.monitored:
            # The first call has the value of now, not that of an earlier subscription.
            self.update_if_changed(self.get(), time.time())
        cid = super().subscribe(callback, event_type=event_type, run=run)
        self.device.monitor()
        return cid


class EngineSignal(_TypedSignal):
    """A setting of a device, checked when it is set.

    Parameters
    ----------
    value : Any
        Initial value; its type is the signal's.
    units : str
        Unit, for the data key.
    minimum : float, optional
        Lowest value accepted.
    choices : sequence, optional
        The values accepted.
    accept : callable, optional
        ``accept(value) -> value`` to store; raises `ValueError` if it is not accepted.
    """

    def __init__(
        self,
        *,
        value: Any,
        units: str = "",
        minimum: float | None = None,
        choices: Sequence[Any] | None = None,
        accept: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        types = {bool: "boolean", int: "integer", float: "number", str: "string"}
        super().__init__(dtype=types[type(value)], units=units, value=value, **kwargs)
        self._type = type(value)
        self._minimum = minimum
        self._choices = choices
        self._accept = accept

    def restrict(self, accept: Callable[[Any], Any], value: Any) -> None:
        """Accept what ``accept`` returns from now on, and take a first value."""
        self._accept = accept
        self._readback = value

    def check_value(self, value: Any, **_: Any) -> None:
        """Raise if the value is not accepted.

        Raises
        ------
        TypeError
            If it is not of the signal's type.
        ValueError
            If it is too low, or none of the choices.
        """
        self._convert(value)

    def put(self, value: Any, **kwargs: Any) -> None:
        """Check and store a value; the device may refuse it while it is busy."""
        refuse = getattr(self.device, "refuse_change", None)
        if refuse is not None:
            refuse(self)
        super().put(self._convert(value), **kwargs)

    def _convert(self, value: Any) -> Any:
        # Plans pass numpy scalars and whole floats; other conversions could change the value.
        converted: Any = None
        try:
            converted = self._type(value)
            same = converted == value and isinstance(value, str) == (self._type is str)
        except (TypeError, ValueError):
            same = False
        if not same:
            raise TypeError(f"{self.name} is {value!r}; accepted is {_TYPE_NAMES[self._type]}.")
        if isinstance(converted, float) and not math.isfinite(converted):
            raise ValueError(f"{self.name} is {value!r}; accepted is a finite number.")
        if self._minimum is not None and not converted >= self._minimum:
            raise ValueError(f"{self.name} is {value!r}; accepted is {self._minimum} or more.")
        if self._choices is not None and converted not in self._choices:
            choices = ", ".join(map(repr, self._choices))
            raise ValueError(f"{self.name} is {value!r}; accepted are {choices}.")
        if self._accept is not None:
            try:
                return self._accept(converted)
            except ValueError as error:
                raise ValueError(f"{self.name}: {error}") from None
        return converted


_TYPE_NAMES = {bool: "True or False", int: "an integer", float: "a number", str: "a string"}


class Fact(_TypedSignal):
    """A value from the configuration; read-only.

    Parameters
    ----------
    fact : callable
        ``fact(device) -> value`` for the signal's device: a bool, number, string or list of those.
    dtype : str
        ``integer``, ``number``, ``boolean``, ``string`` or ``array``.
    units : str
        Unit, for the data key.
    """

    def __init__(
        self,
        *,
        fact: Callable[[Any], Any],
        dtype: str,
        units: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, units=units, value=None, **kwargs)
        self._fact = fact
        self._metadata["write_access"] = False

    def get(self, **_: Any) -> Any:
        """Return the current value in the configuration."""
        value = self._fact(self.device)
        if isinstance(value, tuple):
            value = list(value)
        if value != self._readback:
            self._readback = value
            self._metadata["timestamp"] = time.time()
        return value


def counter(units: str, *, dtype: str = "integer", hinted: bool = False) -> Component:
    """Return the component of an `EngineSignalRO`; ``hinted``: worth plotting."""
    kind = Kind.hinted if hinted else Kind.normal
    precision = 0 if dtype == "number" else None
    return Component(EngineSignalRO, dtype=dtype, units=units, precision=precision, kind=kind)


def counter_array(units: str, length: int) -> Component:
    """Return the component of an `EngineSignalRO` whose value is a list of integers."""
    zeros = [0] * length
    return Component(EngineSignalRO, units=units, length=length, value=zeros, kind=Kind.normal)


def reading(units: str = "", *, dtype: str = "integer", value: Any = None, kind: Kind) -> Component:
    """Return the component of a `Reading`."""
    return Component(Reading, dtype=dtype, units=units, value=value, kind=kind)


def setting(value: Any, units: str = "", **limits: Any) -> Component:
    """Return the component of an `EngineSignal`, a part of the configuration."""
    return Component(EngineSignal, value=value, units=units, kind=Kind.config, **limits)


def fact(read: Callable[[Any], Any], dtype: str, units: str = "") -> Component:
    """Return the component of a `Fact`, a part of the configuration."""
    return Component(Fact, fact=read, dtype=dtype, units=units, kind=Kind.config)
