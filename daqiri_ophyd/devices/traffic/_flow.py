"""Flows as devices: their match, their queue and their counters."""

import contextlib
import json
from collections.abc import Iterable, Mapping
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
from ..parts._signals import counter, fact
from ..tree._naming import attribute_names
from ._flow_key import FlowKey, QueueOfFlow, flow_key

__all__ = [
    "EcpriFlow",
    "FlexFlow",
    "Flow",
    "UdpFlow",
    "flow_attributes",
    "flow_class",
    "flow_classes",
    "follow_flows",
]


class Flow(CounterDevice):
    """A receive flow: its match, and counters of the packets that it has matched.

    `packets` and `bytes` are those of `daqiri_ophyd.engine.FlowCounters`. They begin at 0 whenever
    the engine is opened.

    `offload` names what selects the flow's packets before the engine does, and keeps those of no
    flow away: ``xdp``, the program of AF_XDP with ``flow_isolation``. With ``none``, all packets of
    the interface reach the engine, which steers them.

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
    offload = fact(lambda flow: flow.picked_by, "string")

    @property
    def picked_by(self) -> str:
        """See `offload`."""
        # Another thread may close the engine or remove the flow.
        with contextlib.suppress(NotReadyError, InvalidParameterError):
            if self.daq.is_open:
                flow = self.daq.port(self.port_name).flow(self.member_name)
                return flow.offload or "none"
        return "none"

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
