"""Flows as devices: which packets a port steers to which queue, and how many."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ophyd import Component as Cpt
from ophyd.ophydobj import Kind

from daqiri_ophyd.engine import FlowCounters, NetworkConfig

from ._base import CounterDevice
from ._flow_key import FlowKey, QueueOfFlow, flow_key
from ._signals import counter, fact

__all__ = [
    "EcpriFlow",
    "FlexFlow",
    "Flow",
    "UdpFlow",
    "configuration_hash",
    "find_named",
    "flow_class",
    "flow_table",
    "inner_configuration",
    "region_table",
    "require_free_flows",
    "with_flows",
]


def flow_table(configuration: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the receive flows of each port, as configured.

    Parameters
    ----------
    configuration : dict
        From ``NetworkConfig.to_dict()``, or its inner map.
    """
    inner = inner_configuration(configuration)
    return {
        interface["name"]: interface.get("rx", {}).get("flows", [])
        for interface in inner["interfaces"]
    }


def region_table(configuration: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the memory regions, as configured.

    Parameters
    ----------
    configuration : dict
        From ``NetworkConfig.to_dict()``, or its inner map.
    """
    return inner_configuration(configuration)["memory_regions"]


def inner_configuration(configuration: dict[str, Any]) -> dict[str, Any]:
    """Return what is below ``daqiri: cfg:``, or the map itself if it is that already."""
    return configuration.get("daqiri", {}).get("cfg", configuration)


def configuration_hash(configuration: dict[str, Any]) -> str:
    """Return the SHA-256 of a configuration with every default written out."""
    written = json.dumps(configuration, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(written.encode()).hexdigest()


def find_named(items: list[dict[str, Any]], name: str, kind: str, where: str) -> dict[str, Any]:
    """Return the item with a name; `LookupError` names those that there are."""
    for item in items:
        if item["name"] == name:
            return item
    known = ", ".join(repr(item["name"]) for item in items) or "none"
    raise LookupError(f"{where} has no {kind} {name!r}; there are {known}.")


def require_free_flows(daq: str, busy: Mapping[str, str]) -> None:
    """Raise `RuntimeError` if parts are ``staged`` or ``sending``: flows are fixed then."""
    for part, what in busy.items():
        raise RuntimeError(
            f"{part} is {what}, and the flows of {daq} are fixed until it is "
            f"{'unstaged' if what == 'staged' else 'done'}. Configure flows before that."
        )


def with_flows(
    configuration: NetworkConfig,
    changes: Mapping[str, Mapping[str, Mapping[str, Any]]],
    where: str,
) -> dict[str, Any]:
    """Return a configuration with changed flows, not checked yet; see `Daq.change_flows`."""
    # A deep copy, through JSON.
    changed = json.loads(json.dumps(configuration.to_dict()))
    for port, flows in changes.items():
        interface = find_named(inner_configuration(changed)["interfaces"], port, "port", where)
        for name, keys in flows.items():
            _change_flow(interface, name, keys)
    return changed


def _change_flow(interface: dict[str, Any], name: str, keys: Mapping[str, Any]) -> None:
    port = f"Port {interface['name']!r}"
    flow = find_named(interface.get("rx", {}).get("flows", []), name, "flow", port)
    for key, value in keys.items():
        if key == "id":
            flow["id"] = value
        elif key == "match":
            flow["match"] = dict(value)
        elif key == "queue":
            queue = find_named(interface["rx"]["queues"], value, "receive queue", port)
            actions = flow.get("actions") or [flow["action"]]
            actions[-1].pop("ids", None)
            actions[-1]["id"] = queue["id"]
        elif value is None:
            flow.get("match", {}).pop(key, None)
        else:
            flow.setdefault("match", {})[key] = value


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

    def change(self, keys: Mapping[str, Any]) -> None:
        """Change keys of the flow; see `Daq.change_flows`."""
        self.daq.change_flows({self.port_name: {self.member_name: keys}})

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
