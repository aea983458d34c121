"""Base classes of the devices of an engine."""

import contextlib
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from ophyd import Device
from ophyd.device import Staged, create_device_from_components
from ophyd.ophydobj import Kind, OphydObject

from daqiri_ophyd.engine import Engine, InterfaceConfig, NotReadyError

from ..tree._naming import device_name
from ._owner import Owner
from ._signals import DataKeys, EngineSignalRO, Readings
from ._status import EngineStatus
from ._ticker import default_ticker

__all__ = ["CounterDevice", "EngineDevice", "Group", "ThreadedDevice", "TypedDevice"]


class _ReadAttributes(Device.OphydAttrList):
    """Names of the parts that a device reads, and of the detectors in it, which are read alone.

    Bluesky finds devices by label in this list: `get_labeled_devices`, and ``%ct`` of IPython.
    """

    def __init__(self, device: Device) -> None:
        super().__init__(device, Kind.normal, Kind.hinted, "read_attrs")

    def _names(self) -> list[str]:
        names = list(super().__iter__())
        for attribute in self._parent.component_names:
            part = getattr(self._parent, attribute)
            if attribute in names or not isinstance(part, Device):
                continue
            inner = [name for name in part.read_attrs if _is_detector(_part_of(part, name))]
            if inner or _is_detector(part):
                names += [attribute, *(f"{attribute}.{name}" for name in inner)]
        return names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __getitem__(self, key: Any) -> Any:
        return self._names()[key]

    def __contains__(self, value: object) -> bool:
        return value in self._names()


def _part_of(device: Device, dotted: str) -> Any:
    return attrgetter(dotted)(device)


def _is_detector(part: OphydObject) -> bool:
    return "detectors" in part._ophyd_labels_  # noqa: SLF001 - ophyd has no other way


class TypedDevice(Device):
    """A device typed by Bluesky's protocols, from which ophyd's own types differ."""

    @Device.read_attrs.getter
    def read_attrs(self) -> Any:
        """Names of the parts that are read, and of the detectors among the parts."""
        return _ReadAttributes(self)

    def __repr__(self) -> str:
        """Return class and name; plans store it in start documents."""
        return f"<{type(self).__name__} {self.name!r}>"

    if TYPE_CHECKING:

        def read(self) -> Readings: ...
        def describe(self) -> DataKeys: ...
        def read_configuration(self) -> Readings: ...
        def describe_configuration(self) -> DataKeys: ...


class ThreadedDevice(TypedDevice):
    """A device whose `trigger` works on a separate thread."""

    def trigger(self) -> EngineStatus:
        """Start the work; the status is done or has failed when the work has ended."""
        status = EngineStatus(self, action="trigger", timeout=math.inf)
        threading.Thread(target=self._run, args=(status,), name=self.name, daemon=True).start()
        return status

    def work(self) -> None:
        """Do the work of a reading; an exception that it raises becomes that of the status."""
        raise NotImplementedError

    def _run(self, status: EngineStatus) -> None:
        try:
            self.work()
        except Exception as error:  # reported by the status
            status.fail(error)
        else:
            status.finish()


class EngineDevice(TypedDevice):
    """A part of a `Daq`, which owns the engine.

    Its name is that of the `Daq` and its attributes, joined by ``_``. Where a data key would be
    longer than catalogs store, the names of the configuration in it are shortened.

    Parameters
    ----------
    port : str
        Name of the port in the configuration.
    parent : Device
        Device that it is a part of.
    attr_name : str
        Its attribute there.
    member : str, optional
        Name of the queue, flow or plan in the configuration.
    """

    if TYPE_CHECKING:
        __getattr__: None  # type: ignore[assignment] # every attribute is declared

    def __init__(
        self,
        prefix: str = "",
        *,
        port: str,
        parent: Device,
        attr_name: str,
        member: str = "",
        **kwargs: Any,
    ) -> None:
        self._port_name = port
        self._member_name = member
        kwargs["name"] = device_name(parent, attr_name, type(self), port=port)
        super().__init__(prefix, parent=parent, attr_name=attr_name, **kwargs)

    @property
    def daq(self) -> Owner:
        """The device that owns the engine."""
        root: Any = self.root
        return root

    @property
    def port_name(self) -> str:
        """Name of the port in the configuration."""
        return self._port_name

    @property
    def member_name(self) -> str:
        """Name in the configuration."""
        return self._member_name

    @property
    def busy(self) -> str:
        """``staged`` or ``sending``; empty if a change of flows disturbs nothing."""
        return "" if self._staged == Staged.no else "staged"

    @property
    def source(self) -> str:
        """Source of the readings, for data keys."""
        path = [*self.dotted_name.split(".")[1:-1], self._member_name or self.attr_name]
        return f"daqiri://{self._port_name}/{'/'.join(path)}"

    @property
    def interface(self) -> InterfaceConfig:
        """Configuration of the port, with every default and adjustment."""
        return next(i for i in self.daq.config.interfaces if i.name == self._port_name)

    def receive_path_of(self, queue: str) -> str:
        """Return the receive path of a queue; empty while the engine is closed."""
        with contextlib.suppress(NotReadyError):
            if self.daq.is_open:
                return self.daq.port(self._port_name).receive_path(queue)
        return ""

    def read_configuration(self) -> Readings:
        """Return the configuration of this part and of the whole engine."""
        own = super().read_configuration()
        own.update(self.daq.read_facts())
        return own

    def describe_configuration(self) -> DataKeys:
        """Return the data keys of `read_configuration`."""
        own = super().describe_configuration()
        own.update(self.daq.describe_facts())
        return own


class Group(EngineDevice):
    """Devices of one kind, such as the receive queues of a port.

    Its configuration is that of its members.
    """

    if TYPE_CHECKING:
        # Members are named as in the configuration; `typed_tree` declares them.
        def __getattr__(self, name: str) -> Any: ...  # type: ignore[override]

    @property
    def members(self) -> list[Any]:
        """Devices of the group, in the order of the configuration."""
        parts = (getattr(self, attribute) for attribute in self.component_names)
        return [part for part in parts if isinstance(part, Device)]

    def become(self, components: Mapping[str, Any]) -> None:
        """Replace the components; devices that the group already has stay the same objects.

        Parameters
        ----------
        components : mapping
            Component by attribute.
        """
        before = type(self)._sig_attrs  # noqa: SLF001 - ophyd has no other way
        cls = create_device_from_components(
            type(self).__name__, docstring=type(self).__doc__, base_class=Group, **components
        )
        # ophyd keeps the components of a device in its class.
        self.__class__ = cls
        for attribute in before.keys() - components.keys():
            del self._signals[attribute], self._component_kinds[attribute]
        for attribute, component in components.items():
            if before.get(attribute) is not component:
                self._component_kinds[attribute] = component.kind
                self._signals.pop(attribute, None)
                getattr(self, attribute)

    def read_configuration(self) -> Readings:
        """Return the configuration of the members."""
        return Device.read_configuration(self)

    def describe_configuration(self) -> DataKeys:
        """Return the data keys of `read_configuration`."""
        return Device.describe_configuration(self)


class CounterDevice(EngineDevice):
    """A device that reads all of its counters from the engine at once.

    `read` takes one consistent snapshot, so sums over its values are exact. Reading a single signal
    also takes a snapshot. While the engine is open, subscribed signals are updated from
    `Engine.counters` ten times a second and call their subscribers when the value has changed.
    These values may be one period old, also after the engine is closed. Rates are those of the last
    second, no matter when the device was last read.
    """

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        self._seen = 0
        super().__init__(prefix, **kwargs)

    def values_of(self, engine: Engine) -> dict[str, Any]:
        """Read an open engine; return values by attribute name."""
        raise NotImplementedError

    def take_values(self) -> dict[str, Any]:
        """Read the engine, which is opened if it is closed; return values by attribute name."""
        return self.values_of(self.daq.open().engine)

    def take_copied(self, counters: NDArray[np.void]) -> dict[str, Any]:
        """Return the same values from the engine's periodic copy, those that it has.

        Parameters
        ----------
        counters : ndarray
            `Engine.counters`.
        """
        return self.values_of(self.daq.engine)

    def read(self) -> Readings:
        """Return one consistent snapshot of the readings; subscribers are not called."""
        return self.readings_of(self.take_values(), time.time())

    def readings_of(self, values: dict[str, Any], timestamp: float) -> Readings:
        """Return readings with these values, by attribute name; read the other signals."""
        reading: Readings = OrderedDict()
        for attribute, component in self._get_components_of_kind(Kind.normal):
            if attribute in values:
                reading[component.name] = {"value": values[attribute], "timestamp": timestamp}
            else:
                reading.update(component.read())
        return reading

    def monitor(self) -> None:
        """Update subscribed signals for as long as the engine is open."""
        if self._is_monitored():
            default_ticker().add(self._notify_subscribers)

    def _is_monitored(self) -> bool:
        return self.daq.is_open and any(signal.monitored for signal in self._counters())

    def _notify_subscribers(self) -> None:
        """Update the signals from the engine's latest copy of its counters."""
        if not self._is_monitored():
            default_ticker().remove(self._notify_subscribers)
            self.monitor()  # another thread may have opened the engine
            return
        try:
            counters = self.daq.engine.counters
            taken = int(counters["time_ns"])
            if taken == self._seen:
                return
            self._seen = taken
            values = self.take_copied(counters)
        except NotReadyError:
            return  # another thread has closed it
        for attribute, value in values.items():
            getattr(self, attribute).update_if_changed(value, taken / 1e9)

    def _counters(self) -> list[EngineSignalRO[Any]]:
        signals = (getattr(self, attribute) for attribute in self.component_names)
        return [signal for signal in signals if isinstance(signal, EngineSignalRO)]
