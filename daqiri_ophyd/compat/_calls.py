"""The functions that accept or return configurations and flows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from daqiri_ophyd import _native
from daqiri_ophyd._native import BurstParams
from daqiri_ophyd.engine import Status, check_config, read_config

from ._config import FlowOpResult, FlowRuleConfig, NetworkConfig
from ._enums import EngineType, FlowOpType, RDMAOpCode
from ._from_keys import from_keys
from ._to_keys import rule_keys, to_keys

__all__ = [
    "add_rx_flow_async",
    "add_rx_flows_async",
    "daqiri_init",
    "get_engine_type",
    "parse_network_config",
    "parse_network_config_from_yaml_file",
    "parse_network_config_from_yaml_string",
    "poll_flow_op",
    "rdma_get_opcode",
    "version_month",
    "version_patch",
    "version_string",
    "version_year",
]


def daqiri_init(config: Any) -> Status:
    """Start the engine.

    Parameters
    ----------
    config : str, PathLike, mapping, NetworkConfig or object
        The path of a file, YAML text, keys and values, or a configuration built in code, which
        receives every default and adjustment. Also an object whose ``value`` is one of these, or
        whose ``as_dict()`` returns keys and values.

    Returns
    -------
    Status
        SUCCESS; INTERNAL_ERROR if an engine is already running; INVALID_PARAMETER if there are
        errors, all of which `last_error` lists; otherwise the status of the missing resource.
    """
    if isinstance(config, bytes):
        config = config.decode(errors="replace")
    if isinstance(config, str):
        # Lone surrogates, which files cannot have.
        config = config.encode(errors="backslashreplace").decode()
        return _native.daqiri_init_from_path_or_text(config)
    if isinstance(config, os.PathLike):
        return _native.daqiri_init_from_yaml_file(os.fsdecode(config))
    if isinstance(config, Mapping):
        return _start(config, None)
    if isinstance(config, NetworkConfig):
        try:
            keys = to_keys(config)
        except (TypeError, ValueError) as error:
            return _native.fail(Status.INVALID_PARAMETER, "daqiri_init", str(error))
        return _start(keys, config)
    if hasattr(config, "value"):
        return daqiri_init(config.value)
    if hasattr(config, "as_dict"):
        return daqiri_init(config.as_dict())
    return _native.fail(
        Status.INVALID_PARAMETER,
        "daqiri_init",
        f"found {config!r} of {type(config)}; accepted are a path, YAML text, a dict and a "
        "NetworkConfig",
    )


def _start(keys: Mapping[str, Any], built: NetworkConfig | None) -> Status:
    """Start from keys and values; ``built`` receives the adjustments."""
    read, report = read_config(keys, None)
    if read is None or not report.ok:
        return _native.fail(Status.INVALID_PARAMETER, "daqiri_init", report.text())
    # The engine reports the others.
    told = {(each.path, each.message) for each in check_config(read.to_dict()).warnings}
    for warning in report.warnings:
        if (warning.path, warning.message) not in told:
            _native.log_warning(str(warning).replace(" warning: ", " ", 1))
    status, completed, engine, sizes = _native.daqiri_init(read)
    if built is not None and status == Status.SUCCESS:
        known = from_keys(completed.to_dict(), EngineType(engine))
        for name, (stride, total) in sizes.items():
            known.memory_regions[name].adj_size = stride
            known.memory_regions[name].ttl_size = total
        for each in fields(NetworkConfig):
            setattr(built, each.name, getattr(known, each.name))
    return status


def parse_network_config(yaml_string_or_path: str) -> tuple[Status, NetworkConfig]:
    """Read and check a file named by the text, or the text itself, without starting an engine.

    Parameters
    ----------
    yaml_string_or_path : str
        A path, or YAML text.

    Returns
    -------
    Status
        SUCCESS, or INVALID_PARAMETER with all errors in `last_error`.
    NetworkConfig
        Configuration with all defaults and adjustments; empty if there are errors.
    """
    return _parsed(*_native.parse_network_config(yaml_string_or_path))


def parse_network_config_from_yaml_string(yaml_string: str) -> tuple[Status, NetworkConfig]:
    """Read and check text; see `parse_network_config`."""
    return _parsed(*_native.parse_network_config_from_yaml_string(yaml_string))


def parse_network_config_from_yaml_file(yaml_path: str) -> tuple[Status, NetworkConfig]:
    """Read and check a file; see `parse_network_config`."""
    return _parsed(*_native.parse_network_config_from_yaml_file(yaml_path))


def _parsed(
    status: Status, read: _native.NetworkConfig, engine: int
) -> tuple[Status, NetworkConfig]:
    if status != Status.SUCCESS:
        return status, NetworkConfig()
    return status, from_keys(read.to_dict(), EngineType(engine))


def get_engine_type() -> EngineType:
    """Return the running engine; UNKNOWN if there is none."""
    return EngineType(_native.get_engine_type())


def add_rx_flow_async(port: int, flow: FlowRuleConfig) -> tuple[Status, int]:
    """Begin to add a flow; return the status and the operation's number for `poll_flow_op`.

    Raises
    ------
    TypeError
        If the flow is not a FlowRuleConfig.
    """
    return _begin_add("add_rx_flow_async", port, [flow])


def add_rx_flows_async(port: int, flows: Sequence[FlowRuleConfig]) -> tuple[Status, int]:
    """Begin to add several flows in one operation; see `add_rx_flow_async`."""
    return _begin_add("add_rx_flows_async", port, flows)


def _begin_add(call: str, port: int, flows: Sequence[FlowRuleConfig]) -> tuple[Status, int]:
    for flow in flows:
        if not isinstance(flow, FlowRuleConfig):
            raise TypeError(f"a flow is {flow!r}; accepted is FlowRuleConfig")
    try:
        keys = {"flows": [rule_keys(flow, f"flows[{i}]") for i, flow in enumerate(flows)]}
        # JSON is YAML, too.
        text, names = json.dumps(keys), [str(flow.name) for flow in flows]
    except (TypeError, ValueError) as error:
        return _native.fail(Status.INVALID_PARAMETER, call, str(error)), 0
    return getattr(_native, call)(port, text, names)


def poll_flow_op() -> tuple[Status, FlowOpResult]:
    """Return the status and the next completed operation; NOT_READY if there is none."""
    status, op_id, kind, result, flow_id, flow_ids = _native.poll_flow_op()
    return status, FlowOpResult(op_id, FlowOpType(kind), result, flow_id, flow_ids)


def rdma_get_opcode(burst: BurstParams | None) -> RDMAOpCode:
    """Return the operation of an RDMA burst; INVALID if there is none."""
    return RDMAOpCode(_native.rdma_get_opcode(burst))


def version_string() -> str:
    """Return the version, ``YYYY.MM.PATCH``."""
    return _native.version()


def version_year() -> int:
    """Return the year of the version."""
    return _version()[0]


def version_month() -> int:
    """Return the month of the version, 1 to 12."""
    return _version()[1]


def version_patch() -> int:
    """Return the number of the version in its month, from 0."""
    return _version()[2]


def _version() -> list[int]:
    return [int(part) for part in _native.version().split(".")]
