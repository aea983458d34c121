"""The engine's configuration as plain data: finding parts of it, and changing its flows."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from daqiri_ophyd.engine import NetworkConfig

from ._requests import Request

__all__ = [
    "configuration_hash",
    "find_named",
    "flow_table",
    "gpu_indices",
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


def gpu_indices(configuration: dict[str, Any]) -> list[int]:
    """Return the CUDA indices of the GPUs that regions and reorder plans use.

    Parameters
    ----------
    configuration : dict
        From ``NetworkConfig.to_dict()``, or its inner map.
    """
    regions = inner_configuration(configuration)["memory_regions"]
    used = {region["affinity"] for region in regions if region["kind"] == "device"}
    # Plans run where their frames are; pinned memory belongs to CUDA's first GPU.
    if any(region["kind"] == "host_pinned" for region in regions):
        used.add(0)
    return sorted(used)


def inner_configuration(configuration: dict[str, Any]) -> dict[str, Any]:
    """Return the map under ``daqiri: cfg:``, or the map itself if it is that already."""
    return configuration.get("daqiri", {}).get("cfg", configuration)


def configuration_hash(configuration: dict[str, Any]) -> str:
    """Return the SHA-256 of a configuration with every default written out."""
    written = json.dumps(configuration, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(written.encode()).hexdigest()


def find_named(items: list[dict[str, Any]], name: str, kind: str, where: str) -> dict[str, Any]:
    """Return the item with a name; if there is none, `LookupError` lists the names."""
    for item in items:
        if item["name"] == name:
            return item
    known = ", ".join(repr(item["name"]) for item in items) or "none"
    raise LookupError(f"{where} has no {kind} {name!r}; there are {known}.")


def require_free_flows(daq: str, busy: Mapping[str, str], reason: str = "") -> None:
    """Raise `RuntimeError` if a part is ``staged`` or ``sending``, which fixes the flows.

    Parameters
    ----------
    daq : str
        Name of the device.
    busy : mapping
        State of the parts by name: ``staged`` or ``sending``.
    reason : str, optional
        Why the engine has to be reopened to change flows.
    """
    for part, what in busy.items():
        raise RuntimeError(
            f"{part} is {what}, and the flows of {daq} are fixed until it is "
            f"{'unstaged' if what == 'staged' else 'done'}. Configure flows before that."
            + (f" ({reason})" if reason else "")
        )


def with_flows(configuration: NetworkConfig, request: Request, where: str) -> dict[str, Any]:
    """Return a configuration with changed flows; the result is not checked.

    Parameters
    ----------
    configuration : NetworkConfig
        Configuration to change.
    request : Request
        Flows to restore, then to change.
    where : str
        Device that has the ports, for messages.
    """
    changed = configuration.to_dict()
    interfaces = inner_configuration(changed)["interfaces"]
    for port, names in request.restored.items():
        interface = find_named(interfaces, port, "port", where)
        for name in names:
            _restore_flow(interface, name, request.table[port])
    for port, keys_of in request.changes.items():
        interface = find_named(interfaces, port, "port", where)
        for name, keys in keys_of.items():
            _change_flow(interface, name, keys)
    return changed


def _restore_flow(interface: dict[str, Any], name: str, table: Sequence[Mapping[str, Any]]) -> None:
    """Restore the keys and the position of a flow from a table; keep other flows."""
    names = [flow["name"] for flow in table]
    flows = interface.get("rx", {}).get("flows", [])
    found = [flow["name"] for flow in flows]
    if name not in names:
        _change_flow(interface, name, None)
    elif name in found:
        flows[found.index(name)] = dict(table[names.index(name)])
    else:
        earlier = [found.index(each) + 1 for each in names[: names.index(name)] if each in found]
        flows.insert(max(earlier, default=0), dict(table[names.index(name)]))
        interface["rx"]["flows"] = flows


def _change_flow(interface: dict[str, Any], name: str, keys: Mapping[Any, Any] | None) -> None:
    port = f"Port {interface['name']!r}"
    flows = interface.get("rx", {}).get("flows", [])
    if keys is None:
        flows[:] = [flow for flow in flows if flow["name"] != name]
        return
    if {"id", "queue"} <= keys.keys() and all(flow["name"] != name for flow in flows):
        flows.append({"name": name, "action": {"type": "queue"}})
        interface["rx"]["flows"] = flows
    flow = find_named(flows, name, "flow", port)
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
        else:
            *path, last = (key,) if isinstance(key, str) else key
            level = flow.setdefault("match", {})
            for part in path:
                level = level.setdefault(part, {})
            if value is None:
                level.pop(last, None)
            else:
                level[last] = value
