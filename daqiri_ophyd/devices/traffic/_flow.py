"""Flows as devices: their match, whose keys can be set, their queue and their counters."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ophyd import Component as Cpt
from ophyd.ophydobj import Kind

from daqiri_ophyd.engine import Engine, FlowCounters, InvalidParameterError, NotReadyError

from ..daq._configuration import find_named, flow_table
from ..parts._base import CounterDevice, Group
from ..parts._signals import DataKeys, TypedSignal, counter, fact
from ..parts._status import EngineStatus
from ..tree._naming import attribute_names

__all__ = [
    "EcpriFlow",
    "FlexFlow",
    "Flow",
    "FlowKey",
    "UdpFlow",
    "flow_attributes",
    "flow_class",
    "flow_classes",
    "follow_flows",
]


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


def flow_key(absent: int | str, units: str = "", **kwargs: Any) -> Cpt[FlowKey]:
    """Return the component of a `FlowKey`, a part of the configuration."""
    return Cpt(FlowKey, absent=absent, units=units, kind=Kind.config, **kwargs)


class Flow(CounterDevice):
    """A receive flow: its match, and counters of the packets that it has matched.

    `packets` and `bytes` are those of `daqiri_ophyd.engine.FlowCounters`. They begin at 0 whenever
    the engine is opened.

    `offload` names what selects the flow's packets before the engine does: ``hardware``, rules of
    the network card that bring them to the queue's core; ``xdp``, the program of AF_XDP with
    ``flow_isolation``, which keeps those of no flow away. With ``software``, the engine steers
    them alone, for the `offload_reason` that the card or the engine gives, if there was a choice.
    ``none``: the engine is closed.

    `queue` and the keys of the match are settable (`FlowKey`). If the engine can change its flows,
    they can be set while packets flow; otherwise only while no plan uses the engine, which is
    reopened. The plan `daqiri_ophyd.plans.configure_flows` changes any number of keys at once, and
    adds and removes flows together with their devices.
    """

    packets = counter("packets", hinted=True)
    bytes = counter("byte")

    queue = Cpt(QueueOfFlow, absent="", kind=Kind.config)

    flow_name = fact(lambda flow: flow.member_name, "string")
    flow_id = fact(lambda flow: flow.configured["id"], "integer")
    match = fact(lambda flow: json.dumps(flow.matched), "string")
    action = fact(lambda flow: json.dumps(flow.actions), "string")
    queues = fact(lambda flow: flow.queue_names, "array")
    offload = fact(lambda flow: flow.picked_by[0], "string")
    offload_reason = fact(lambda flow: flow.picked_by[1], "string")

    @property
    def picked_by(self) -> tuple[str, str]:
        """See `offload` and `offload_reason`."""
        # Another thread may close the engine or remove the flow.
        with contextlib.suppress(NotReadyError, InvalidParameterError):
            if self.daq.is_open:
                flow = self.daq.port(self.port_name).flow(self.member_name)
                return flow.offload or "software", flow.offload_reason
        return "none", ""

    @property
    def configured(self) -> dict[str, Any]:
        """The flow as configured, with all defaults."""
        flows = flow_table(self.daq.configuration_dict)[self.port_name]
        return find_named(flows, self.member_name, "flow", f"Port {self.port_name!r}")

    @property
    def matched(self) -> dict[str, Any]:
        """Match of the flow, by key; empty: every UDP packet."""
        match: dict[str, Any] = self.configured.get("match", {})
        return match

    @property
    def actions(self) -> list[dict[str, Any]]:
        """Actions, in order; the last one names the queues."""
        configured = self.configured
        return configured.get("actions") or [configured["action"]]

    @property
    def queue_names(self) -> list[str]:
        """Queues that matched packets go to."""
        last = self.actions[-1]
        ids = last.get("ids") or [last["id"]]
        return [queue.name for queue in self.interface.rx.queues if queue.id in ids]

    def change(self, keys: Mapping[Any, Any]) -> None:
        """Change keys of the flow; see `Daq.change_flows`."""
        self.daq.change_flows({self.port_name: {self.member_name: keys}})

    def begin_change(self, keys: Mapping[Any, Any]) -> Future[None]:
        """Change keys of the flow on a thread; see `Daq.begin_change`."""
        return self.daq.begin_change({self.port_name: {self.member_name: keys}})

    def follow_configuration(self) -> None:
        """Call the subscribers of keys that have changed."""
        for attribute in self.component_names:
            signal = getattr(self, attribute)
            if isinstance(signal, FlowKey):
                # Another thread may have removed the flow.
                with contextlib.suppress(LookupError):
                    signal.follow()

    def values_of(self, engine: Engine) -> dict[str, Any]:
        """Read the counters of the flow."""
        return asdict(engine.port(self.port_name).flow(self.member_name).counters())

    def take_copied(self, counters: NDArray[np.void]) -> dict[str, Any]:
        """Return the same values from the engine's periodic copy; empty for a removed flow."""
        row = counters["flows"]
        for name in (self.port_name, self.member_name):
            # The device of a removed flow is removed a moment later.
            if name not in (row.dtype.names or ()):
                return {}
            row = row[name]
        return asdict(FlowCounters.of_row(row))


class UdpFlow(Flow):
    """A flow that matches headers of UDP over IPv4, and over IPv6 where it names no IPv4 field.

    Ports are a number or a range (``"6000-6003"``). 0, and an empty address, match any.
    """

    udp_src = flow_key(0, text=True)
    udp_dst = flow_key(0, text=True)
    ipv4_len = flow_key(0, "byte")
    ipv4_src = flow_key("")
    ipv4_dst = flow_key("")


class FlexFlow(Flow):
    """A flow that matches a flex item, bits at a given position; -1: the key is absent."""

    flex_item_id = flow_key(-1)
    val = flow_key(-1)
    mask = flow_key(-1)


class EcpriFlow(Flow):
    """A flow that matches the header of eCPRI messages; -1 matches any."""

    msg_type = flow_key(-1, path=("ecpri", "msg_type"))
    pc_id = flow_key(-1, path=("ecpri", "pc_id"))
    rtc_id = flow_key(-1, path=("ecpri", "rtc_id"))


def follow_flows(group: Group, flows: list[dict[str, Any]]) -> None:
    """Create a device for each configured flow in a group, and remove the others.

    Devices of flows that stay are the same objects, with their subscribers.
    """
    wanted = flow_classes(flows)
    attributes = flow_attributes(wanted)
    kept = {
        flow.attr_name: flow.member_name
        for flow in group.members
        if type(flow) is wanted.get(flow.member_name)
    }
    if list(kept) == list(attributes.values()) == [flow.attr_name for flow in group.members]:
        return
    known = type(group)._sig_attrs  # noqa: SLF001 - ophyd has no other way
    components = {
        attribute: known[attribute]
        if attribute in kept
        else Cpt(wanted[name], port=group.port_name, member=name)
        for name, attribute in attributes.items()
    }
    gone = [flow for flow in group.members if flow.attr_name not in kept]
    group.become(components)
    for flow in gone:
        flow.destroy()


def flow_attributes(names: Iterable[str]) -> dict[str, str]:
    """Return the attributes of a port's flows by name; see `attribute_names`."""
    return attribute_names(names, "flow", Group)


def flow_classes(flows: list[dict[str, Any]]) -> dict[str, type[Flow]]:
    """Return the class of each flow of a port by name."""
    return {flow["name"]: flow_class(flow) for flow in flows}


def flow_class(flow: dict[str, Any]) -> type[Flow]:
    """Return the class for a configured flow, which has the keys of its kind of match."""
    match = flow.get("match", {})
    if "ecpri" in match:
        return EcpriFlow
    return FlexFlow if "flex_item_id" in match else UdpFlow
