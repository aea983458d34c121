"""Signals for readings, settings and configuration of the engine."""

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import numpy as np
from bluesky.protocols import Reading
from event_model.documents import DataKey
from event_model.documents.event_descriptor import Dtype
from ophyd import Component
from ophyd.ophydobj import Kind
from ophyd.signal import Signal
from ophyd.utils import ReadOnlyError

from ._status import TypedStatus

__all__ = [
    "EngineSignal",
    "EngineSignalRO",
    "Fact",
    "ReadingSignal",
    "TypedSignal",
    "counter",
    "counter_array",
    "fact",
    "reading",
    "setting",
]

Value = TypeVar("Value")
Readings = dict[str, Reading[Any]]
"""Readings by name."""
DataKeys = dict[str, DataKey]
"""Data keys by name."""

_DTYPES: dict[type, Dtype] = {bool: "boolean", int: "integer", float: "number", str: "string"}
_NUMPY = {"integer": "<i8", "number": "<f8", "boolean": "|b1"}


class TypedSignal(Signal, Generic[Value]):
    """A signal with a declared type, unit and source: it can be described without a reading."""

    def __init__(
        self,
        *,
        dtype: Dtype,
        value: Any,
        units: str = "",
        precision: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(value=value, **kwargs)
        self._dtype: Dtype = dtype
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

    if TYPE_CHECKING:

        def read(self) -> Readings: ...

    def describe(self) -> DataKeys:
        """Return the data key, which does not depend on the value."""
        key: DataKey = {"source": self.source_name, "dtype": self._dtype, "shape": []}
        if self._dtype == "array":
            values: Any = self._readback
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

    def get(self, **kwargs: Any) -> Value:
        """Return the value."""
        return super().get(**kwargs)

    def set(
        self,
        value: Value,
        *,
        timeout: float | None = None,
        settle_time: Any = None,
        **_: Any,
    ) -> TypedStatus:
        """Set at once; a value that is not accepted raises here, not in the status."""
        self.put(value)
        status = TypedStatus(self, settle_time=settle_time or 0)
        status.set_finished()
        return status


class ReadingSignal(TypedSignal[Value]):
    """A read-only value that its device updates.

    Parameters
    ----------
    value : bool, int, float, str or list of int
        Initial value; its type is that of the signal.
    units : str
        Unit, for the data key.
    precision : int, optional
        Digits to show after the decimal point.
    """

    def __init__(self, *, value: Value, **kwargs: Any) -> None:
        super().__init__(dtype=_DTYPES.get(type(value), "array"), value=value, **kwargs)
        self._metadata["write_access"] = False

    def update(self, value: Value, timestamp: float) -> None:
        """Store a value and call the subscribers."""
        self.put(value, timestamp=timestamp, force=True)


class EngineSignalRO(ReadingSignal[Value]):
    """A counter or another reading of the engine.

    Its device reads all of its signals at once (`CounterDevice`), so their values are consistent.
    Reading the signal reads the engine; subscribers are called periodically. An array always has
    the length of its initial value.

    Parameters are those of `ReadingSignal`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._told: Value | None = None

    def update_if_changed(self, value: Value, timestamp: float) -> None:
        """Call the subscribers if the value differs from the one last passed to them."""
        if value != self._told and not (value != value and self._told != self._told):
            self._told = value
            self.update(value, timestamp)

    def get(self, **_: Any) -> Value:
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
            # The first call passes the current value, not that of an earlier subscription.
            self.update_if_changed(self.get(), time.time())
        cid = super().subscribe(callback, event_type=event_type, run=run)
        self.device.monitor()
        return cid


class EngineSignal(TypedSignal[Value]):
    """A setting of a device, checked when it is set.

    Parameters
    ----------
    value : bool, int, float or str
        Initial value; its type is that of the signal.
    units : str
        Unit, for the data key.
    minimum, maximum : float, optional
        Lowest and highest value accepted.
    choices : sequence, optional
        The values accepted.
    accept : callable, optional
        ``accept(value)`` returns the value to store, or raises `ValueError` to reject it.
    """

    def __init__(
        self,
        *,
        value: Value,
        minimum: float | None = None,
        maximum: float | None = None,
        choices: Sequence[Value] | None = None,
        accept: Callable[[Value], Value] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=_DTYPES[type(value)], value=value, **kwargs)
        self._type: Any = type(value)
        self._minimum = minimum
        self._maximum = maximum
        self._choices = choices
        self._offered: Sequence[Value] = ()
        self._accept = accept

    def restrict(self, accept: Callable[[Value], Value], value: Value) -> None:
        """Check values with ``accept`` from now on, and store a first value."""
        self._accept = accept
        self._readback = value

    def offer(self, choices: Sequence[Value]) -> None:
        """Accept these values only from now on; the data key has them."""
        self._choices = self._offered = choices

    def describe(self) -> DataKeys:
        """Return the data key, with the values that are offered."""
        keys = super().describe()
        if self._offered:
            keys[self.name]["choices"] = [str(choice) for choice in self._offered]
        return keys

    def check_value(self, value: Any, **_: Any) -> None:
        """Raise if the value is not accepted.

        Raises
        ------
        TypeError
            If it is not of the signal's type.
        ValueError
            If it is too low, too high, or not one of the choices.
        """
        self._convert(value)

    def put(self, value: Any, **kwargs: Any) -> None:
        """Check and store a value; the device may reject it while busy."""
        refuse = getattr(self.device, "refuse_change", None)
        if refuse is not None:
            refuse(self)
        super().put(self._convert(value), **kwargs)

    def _convert(self, value: Any) -> Value:
        # Plans pass NumPy scalars and whole floats; other conversions could change the value.
        converted: Any = None
        try:
            converted = self._type(value)
            same = converted == value and isinstance(value, str) == (self._type is str)
        except (TypeError, ValueError, OverflowError):
            same = False
        if not same:
            raise TypeError(f"{self.name} is {value!r}; accepted is {_TYPE_NAMES[self._type]}.")
        if self._type is float and not math.isfinite(converted):
            raise ValueError(f"{self.name} is {value!r}; accepted is a finite number.")
        if self._type is int and not -(1 << 63) <= converted < 1 << 63:
            raise ValueError(f"{self.name} is {value!r}; accepted are 64 bits, up to 2**63 - 1.")
        if self._minimum is not None and not converted >= self._minimum:
            raise ValueError(f"{self.name} is {value!r}; accepted is {self._minimum} or more.")
        if self._maximum is not None and converted > self._maximum:
            raise ValueError(f"{self.name} is {value!r}; accepted is {self._maximum:g} or less.")
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


class Fact(TypedSignal[Value]):
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
        fact: "_Read",
        dtype: Dtype,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, value=None, **kwargs)
        self._fact = fact
        self._metadata["write_access"] = False

    def describe(self) -> DataKeys:
        """Return the data key; for an array, it has the length of the current value."""
        if self._dtype == "array":
            self.get()
        return super().describe()

    def get(self, **_: Any) -> Value:
        """Return the current value in the configuration."""
        value: Any = self._fact(self.device)
        if isinstance(value, tuple):
            value = list(value)
        if value != self._readback:
            self._readback = value
            self._metadata["timestamp"] = time.time()
        return value


@overload
def counter(units: str, *, hinted: bool = False) -> Component[EngineSignalRO[int]]: ...
@overload
def counter(units: str, *, dtype: Literal["number"]) -> Component[EngineSignalRO[float]]: ...
def counter(units: str, *, dtype: str = "integer", hinted: bool = False) -> Component[Any]:
    """Return the component of an `EngineSignalRO`; ``hinted`` values are plotted."""
    kind = Kind.hinted if hinted else Kind.normal
    value, precision = (0.0, 0) if dtype == "number" else (0, None)
    return Component(EngineSignalRO, value=value, units=units, precision=precision, kind=kind)


def counter_array(units: str, length: int) -> Component[EngineSignalRO[list[int]]]:
    """Return the component of an `EngineSignalRO` whose value is a list of integers."""
    return Component(EngineSignalRO, value=[0] * length, units=units, kind=Kind.normal)


def reading(value: Value, units: str = "", *, kind: Kind) -> Component[ReadingSignal[Value]]:
    """Return the component of a `ReadingSignal`."""
    return Component(ReadingSignal, value=value, units=units, kind=kind)


def setting(value: Value, units: str = "", **limits: Any) -> Component[EngineSignal[Value]]:
    """Return the component of an `EngineSignal`, a part of the configuration."""
    return Component(EngineSignal, value=value, units=units, kind=Kind.config, **limits)


_Read = Callable[[Any], Any]


@overload
def fact(read: _Read, dtype: Literal["integer"], units: str = "") -> Component[Fact[int]]: ...
@overload
def fact(read: _Read, dtype: Literal["string"]) -> Component[Fact[str]]: ...
@overload
def fact(read: _Read, dtype: Literal["array"], units: str = "") -> Component[Fact[list[Any]]]: ...
def fact(read: _Read, dtype: Dtype, units: str = "") -> Component[Any]:
    """Return the component of a `Fact`, a part of the configuration."""
    return Component(Fact, fact=read, dtype=dtype, units=units, kind=Kind.config)
