"""Flows as devices: which packets a port steers to which queue."""

import json
from typing import Any

from ._base import EngineDevice
from ._signals import fact

__all__ = ["Flow", "flow_table", "inner_configuration", "region_table"]


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
