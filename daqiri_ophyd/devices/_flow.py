"""Flows as devices: which packets a port steers to which queue, and how many."""

import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ophyd import Component as Cpt
from ophyd.ophydobj import Kind

from daqiri_ophyd.engine import FlowCounters

from ._base import CounterDevice
from ._configuration import flow_table
from ._flow_key import FlowKey, QueueOfFlow, flow_key
from ._signals import counter, fact

__all__ = ["EcpriFlow", "FlexFlow", "Flow", "UdpFlow", "flow_class"]


class Flow(CounterDevice):
    """A static receive flow: what it matches, and how many packets it has matched.

    `packets` and `bytes` are those of `daqiri_ophyd.engine.FlowCounters`. They begin at 0 whenever
    the engine is opened.

    `queue` and the keys of the match are settable while no plan uses the engine (`FlowKey`); each
    change opens an open engine anew. The plan `daqiri_ophyd.plans.configure_flows` changes any
    number of keys at once.
    """

    packets = counter("packets", hinted=True)
    bytes = counter("byte")

    queue = Cpt(QueueOfFlow, absent="", kind=Kind.config)

    flow_name = fact(lambda flow: flow.member_name, "string")
    flow_id = fact(lambda flow: flow.configured["id"], "integer")
    match = fact(lambda flow: json.dumps(flow.matched), "string")
    action = fact(lambda flow: json.dumps(flow.actions), "string")
    queues = fact(lambda flow: flow.queue_names, "array")

    @property
    def configured(self) -> dict[str, Any]:
        """The flow as configured, with all defaults."""
        flows = flow_table(self.daq.configuration_dict)[self.port_name]
        return next(flow for flow in flows if flow["name"] == self.member_name)

    @property
    def matched(self) -> dict[str, Any]:
        """What it matches, by key; empty: every UDP packet."""
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
                signal.follow()

    def take_values(self) -> dict[str, Any]:
        """Read the counters of the flow; opens the engine if it is closed."""
        flow = self.daq.open().port(self.port_name).flow(self.member_name)
        return asdict(flow.counters())

    def take_copied(self, counters: NDArray[np.void]) -> dict[str, Any]:
        """Return the same values from the engine's periodic copy."""
        return asdict(FlowCounters.of_row(counters["flows"][self.port_name][self.member_name]))


class UdpFlow(Flow):
    """A flow that matches IPv4/UDP headers.

    Ports are a number or a range (``"6000-6003"``). 0, and an empty address, match any.
    """

    udp_src = flow_key(0, text=True)
    udp_dst = flow_key(0, text=True)
    ipv4_len = flow_key(0, "byte")
    ipv4_src = flow_key("")
    ipv4_dst = flow_key("")


class FlexFlow(Flow):
    """A flow that matches a flex item: bits at a set place; -1: a key that is not given."""

    flex_item_id = flow_key(-1)
    val = flow_key(-1)
    mask = flow_key(-1)


class EcpriFlow(Flow):
    """A flow that matches the header of eCPRI messages; -1 matches any."""

    msg_type = flow_key(-1, path=("ecpri", "msg_type"))
    pc_id = flow_key(-1, path=("ecpri", "pc_id"))
    rtc_id = flow_key(-1, path=("ecpri", "rtc_id"))


def flow_class(flow: dict[str, Any]) -> type[Flow]:
    """Return the class for a flow as configured, which has the keys of its kind of match."""
    match = flow.get("match", {})
    if "ecpri" in match:
        return EcpriFlow
    return FlexFlow if "flex_item_id" in match else UdpFlow
