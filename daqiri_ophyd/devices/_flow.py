"""Flows as devices: which packets a port steers to which queue."""

import json
from collections.abc import Mapping
from typing import Any

from ._base import EngineDevice
from ._signals import fact

__all__ = [
    "Flow",
    "change_flow",
    "find_named",
    "flow_table",
    "inner_configuration",
    "region_table",
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


def find_named(items: list[dict[str, Any]], name: str, kind: str, where: str) -> dict[str, Any]:
    """Return the item with a name; `LookupError` names those that there are."""
    for item in items:
        if item["name"] == name:
            return item
    known = ", ".join(repr(item["name"]) for item in items) or "none"
    raise LookupError(f"{where} has no {kind} {name!r}; there are {known}.")


def change_flow(interface: dict[str, Any], name: str, keys: Mapping[str, Any]) -> None:
    """Change keys of a receive flow in the configuration of a port; see `Daq.change_flows`."""
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
            flow["match"].pop(key, None)
        else:
            flow["match"][key] = value


class Flow(EngineDevice):
    """A static receive flow.

    Flows are fixed while the engine is open. The plan `daqiri_ophyd.plans.configure_flows` changes
    them by opening it again.
    """

    flow_name = fact(lambda flow: flow.member_name, "string")
    flow_id = fact(lambda flow: flow.configured["id"], "integer")
    match = fact(lambda flow: json.dumps(flow.configured["match"]), "string")
    action = fact(lambda flow: json.dumps(flow.actions), "string")
    queues = fact(lambda flow: flow.queue_names, "array")

    @property
    def configured(self) -> dict[str, Any]:
        """The flow as configured, with all defaults."""
        flows = flow_table(self.daq.configuration_dict)[self.port_name]
        return next(flow for flow in flows if flow["name"] == self.member_name)

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
