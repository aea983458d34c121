"""Configuration classes as keys and values of the configuration file."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable
from enum import Enum
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ._config import (
    CommonConfig,
    CommonQueueConfig,
    EcpriMatch,
    FlexItemConfig,
    FlexItemMatch,
    FlowAction,
    FlowConfig,
    FlowMatch,
    FlowRuleConfig,
    InterfaceConfig,
    MemoryRegionConfig,
    NetworkConfig,
    Ports,
    RoCEConfig,
    RxConfig,
    RxQueueConfig,
    SocketConfig,
    TunnelConfig,
    TxConfig,
    TxQueueConfig,
    VlanActionConfig,
)
from ._constants import MEM_ACCESS_LOCAL, MEM_ACCESS_RDMA_READ, MEM_ACCESS_RDMA_WRITE
from ._enums import (
    EngineType,
    FlowMatchType,
    FlowType,
    LoopbackType,
    RDMATransportMode,
    ReorderBase,
    ReorderByteOrder,
    ReorderColumnSource,
    ReorderMethod,
    SocketProtocol,
    TunnelType,
)
from ._reorder_config import (
    ReorderBitFieldConfig,
    ReorderColumnConfig,
    ReorderConditionConfig,
    ReorderConfig,
    ReorderDataTypesConfig,
    ReorderFrameConfig,
    ReorderModulesConfig,
    ReorderPositionConfig,
)

__all__ = ["ACCESS", "LOOPBACKS", "Keys", "endpoint_parts", "rule_keys", "to_keys"]

Keys = dict[str, Any]
_Class = TypeVar("_Class")
_Enum = TypeVar("_Enum", bound=Enum)

ACCESS = {
    "local": MEM_ACCESS_LOCAL,
    "rdma_read": MEM_ACCESS_RDMA_READ,
    "rdma_write": MEM_ACCESS_RDMA_WRITE,
}
LOOPBACKS = {LoopbackType.DISABLED: "", LoopbackType.LOOPBACK_TYPE_SW: "sw"}
_ENGINES = {EngineType.RDMA: "ibverbs"}
_NO_ENGINE = (EngineType.DEFAULT, EngineType.UNKNOWN)
_ETHERNET = ("outer_eth_src", "outer_eth_dst")
_TUNNEL_NUMBERS = {
    TunnelType.VXLAN: ("vni", "outer_udp_src", "outer_udp_dst"),
    TunnelType.GRE: ("gre_protocol",),
    TunnelType.NVGRE: ("tni", "flow_id"),
}


def endpoint_parts(uri: object) -> dict[str, str | int]:
    """Return ``ip`` and ``port`` of ``scheme://ip:port``, if present."""
    try:
        parts = urlsplit(uri if isinstance(uri, str) else "")
        found = {"ip": parts.hostname, "port": parts.port}
    except ValueError:
        # The schema check reports the problem.
        return {}
    return {key: value for key, value in found.items() if value}


def to_keys(config: NetworkConfig) -> Keys:
    """Return the configuration as keys and values of a configuration file.

    Raises
    ------
    TypeError
        If a member is of another class; the message names it.
    ValueError
        If two members contradict each other; the message names both.
    """
    common = _as(CommonConfig, config.common, "common")
    regions = _as(dict, config.memory_regions, "memory_regions")
    interfaces = [_interface(*each) for each in _each(config.interfaces, "interfaces")]
    _set_transport(interfaces, common.protocol)
    keys: Keys = {
        "version": common.version,
        "master_core": common.master_core,
        "stream_type": _word(common.stream_type),
        "loopback": LOOPBACKS.get(common.loopback, common.loopback),
        "log_level": _word(config.log_level),
        "debug": bool(config.debug),
        "tx_meta_buffers": config.tx_meta_buffers,
        "rx_meta_buffers": config.rx_meta_buffers,
        "memory_regions": [
            _region(name, region, f"memory_regions[{name!r}]") for name, region in regions.items()
        ],
        "interfaces": interfaces,
    }
    keys |= _given(loopback_drops=common.loopback_drops, ship_to=config.ship_to)
    if config.reorder_configs:
        plans = _each(config.reorder_configs, "reorder_configs")
        keys["reorder_configs"] = [_reorder(*each) for each in plans]
    engine = _engine(common)
    if engine not in _NO_ENGINE:
        keys["engine"] = _ENGINES.get(engine, _word(engine))
    return keys


def _engine(common: CommonConfig) -> EngineType:
    """Return the requested engine, from either of the two members."""
    engine, found = common.engine, common.engine_type
    if engine in _NO_ENGINE or found in _NO_ENGINE or engine == found:
        return found if engine in _NO_ENGINE else engine
    if found == EngineType.RDMA and engine in (EngineType.SOCKET, EngineType.IBVERBS):
        return engine
    raise ValueError(
        f"common.engine is {engine}, while common.engine_type is {found}; accepted is the same "
        "engine in both, or EngineType.DEFAULT in one"
    )


def _set_transport(interfaces: list[Keys], protocol: object) -> None:
    """Add the protocol to endpoints without a scheme, if no endpoint has one."""
    schemes = [
        (f"interfaces[{index}].socket.{key}", keys[key].partition("://")[0].replace("rdma", "roce"))
        for index, interface in enumerate(interfaces)
        for keys in [interface.get("socket_config", {})]
        for key in ("local_addr", "remote_addr")
        if isinstance(keys.get(key), str) and "://" in keys[key]
    ]
    # The default cannot be distinguished from an explicit value.
    chosen = protocol not in (SocketProtocol.UDP, SocketProtocol.INVALID)
    if schemes and chosen and _word(protocol) != schemes[0][1]:
        where, scheme = schemes[0]
        raise ValueError(
            f"common.protocol is {protocol}, while {where} has scheme {scheme!r}; accepted is one "
            "transport in a configuration"
        )
    if schemes or protocol == SocketProtocol.INVALID:
        return
    for interface in interfaces:
        keys = interface.get("socket_config", {})
        for side in ("local", "remote"):
            if keys.get(f"{side}_ip") and keys.get(f"{side}_port"):
                host, port = keys.pop(f"{side}_ip"), keys.pop(f"{side}_port")
                host = f"[{host}]" if ":" in str(host) else host
                keys[f"{side}_addr"] = f"{_word(protocol)}://{host}:{port}"


def _as(kind: type[_Class], value: object, path: str) -> _Class:
    if not isinstance(value, kind):
        raise TypeError(f"{path} is {value!r}; accepted is {kind.__name__}")
    return value


def _list(values: object, path: str) -> list[Any]:
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{path} is {values!r}; accepted is a list")
    return list(values)


def _each(values: object, path: str) -> Iterable[tuple[Any, str]]:
    return ((value, f"{path}[{index}]") for index, value in enumerate(_list(values, path)))


def _word(value: object) -> object:
    """Return the file's name for an enumerator; other values are left to the file's rules."""
    return value.name.lower() if isinstance(value, Enum) else value


def _given(**keys: Any) -> Keys:
    """Return the keys whose values are not empty, 0 or false."""
    return {key: value for key, value in keys.items() if value}


def _region(name: str, value: object, path: str) -> Keys:
    region = _as(MemoryRegionConfig, value, path)
    access = _as(int, region.access, f"{path}.access")
    if region.name not in ("", name):
        raise ValueError(f"{path}.name is {region.name!r}; accepted is its key in memory_regions")
    return {
        "name": name,
        "kind": _word(region.kind),
        "affinity": region.affinity,
        "access": [word for word, bit in ACCESS.items() if access & bit],
        "num_bufs": region.num_bufs,
        "buf_size": region.buf_size,
        "owned": region.owned,
    }


def _interface(value: object, path: str) -> Keys:
    interface = _as(InterfaceConfig, value, path)
    socket_config = _as(SocketConfig, interface.socket, f"{path}.socket")
    roce = _as(RoCEConfig, interface.roce, f"{path}.roce")
    keys: Keys = {"name": interface.name, "address": interface.address}
    if socket_config != SocketConfig():
        keys["socket_config"] = _socket(socket_config)
    mode = roce.transport_mode
    if mode != RDMATransportMode.INVALID:
        keys["roce_config"] = {
            "transport_mode": mode.name if isinstance(mode, RDMATransportMode) else mode
        }
    rx = _as(RxConfig, interface.rx, f"{path}.rx")
    if rx != RxConfig():
        keys["rx"] = _rx(rx, f"{path}.rx")
    tx = _as(TxConfig, interface.tx, f"{path}.tx")
    if tx != TxConfig():
        keys["tx"] = _tx(tx, f"{path}.tx")
    return keys


def _socket(config: SocketConfig) -> Keys:
    keys: Keys = {"mode": _word(config.mode)}
    for side in ("local", "remote"):
        uri = getattr(config, f"{side}_addr")
        keys |= _given(**{f"{side}_addr": uri})
        in_uri = endpoint_parts(uri)
        for part in ("ip", "port"):
            value = getattr(config, f"{side}_{part}")
            # Parts that the address already has are left out; a file may have only one of the two.
            if value and value != in_uri.get(part):
                keys[f"{side}_{part}"] = value
    keys |= {
        "max_payload_size": config.max_payload_size,
        "max_burst_interval_ms": config.max_burst_interval_ms,
        "min_ipg_ns": config.min_ipg_ns,
        "retry_connect_s": config.retry_connect_s,
    }
    return keys


def _rx(rx: RxConfig, path: str) -> Keys:
    return {
        "flow_isolation": rx.flow_isolation,
        "hardware_timestamps": rx.hardware_timestamps,
        "dynamic_flow_capacity": rx.dynamic_flow_capacity,
        **_given(filter=rx.filter),
        "receive_path": rx.receive_path,
        "queues": [_rx_queue(*each) for each in _each(rx.queues, f"{path}.queues")],
        "flex_items": [_flex_item(*each) for each in _each(rx.flex_items, f"{path}.flex_items")],
        "flows": [_flow(*each) for each in _each(rx.flows, f"{path}.flows")],
        "reorder_configs": [
            _reorder(*each) for each in _each(rx.reorder_configs, f"{path}.reorder_configs")
        ],
    }


def _tx(tx: TxConfig, path: str) -> Keys:
    return {
        "accurate_send": tx.accurate_send,
        "queues": [_tx_queue(*each) for each in _each(tx.queues, f"{path}.queues")],
        "flows": [_flow(*each) for each in _each(tx.flows, f"{path}.flows")],
    }


def _queue(value: object, path: str) -> Keys:
    common = _as(CommonQueueConfig, value, path)
    return {"name": common.name, "id": common.id} | _given(
        cpu_core=common.cpu_core,
        batch_size=common.batch_size,
        memory_regions=_list(common.memory_regions, f"{path}.memory_regions"),
        offloads=_list(common.offloads, f"{path}.offloads"),
        split_boundary=common.split_boundary,
    )


def _rx_queue(value: object, path: str) -> Keys:
    queue = _as(RxQueueConfig, value, path)
    keys = _queue(queue.common, f"{path}.common") | _given(timeout_us=queue.timeout_us)
    return keys | {"poll_mode": _word(queue.poll_mode)}


def _tx_queue(value: object, path: str) -> Keys:
    queue = _as(TxQueueConfig, value, path)
    keys = _queue(queue.common, f"{path}.common") | _given(
        pacing_mbps=queue.pacing_mbps,
        timeout_us=queue.timeout_us,
        realtime_priority=queue.realtime_priority,
    )
    return keys | {"poll_mode": _word(queue.poll_mode)}


def _flow(value: object, path: str) -> Keys:
    flow = _as(FlowConfig, value, path)
    keys: Keys = {"name": flow.name, "id": flow.id}
    if match := _match(flow.match, f"{path}.match"):
        keys["match"] = match
    actions = list(_each(flow.actions, f"{path}.actions"))
    if actions:
        keys["actions"] = [_action(*each) for each in actions]
    else:
        keys["action"] = _action(flow.action, f"{path}.action")
    return keys


def rule_keys(rule: FlowRuleConfig, path: str) -> Keys:
    """Return a flow to add at run time as keys and values of a configuration file.

    Raises
    ------
    TypeError, ValueError
        As for `to_keys`.
    """
    # Its own name and id, because a file requires them.
    flow = FlowConfig("flow", 1, rule.action, rule.actions, rule.match)
    return _flow(flow, path)


def _match(value: object, path: str) -> Keys:
    match = _as(FlowMatch, value, path)
    if match.type == FlowMatchType.FLEX_ITEM:
        flex = _as(FlexItemMatch, match.flex_item_match, f"{path}.flex_item_match")
        return {"flex_item_id": flex.flex_item_id, "val": flex.val, "mask": flex.mask}
    if match.type == FlowMatchType.ECPRI:
        ecpri = _as(EcpriMatch, match.ecpri_match, f"{path}.ecpri_match")
        keys: Keys = {}
        if ecpri.match_msg_type:
            keys["msg_type"] = ecpri.msg_type
        if ecpri.match_id:
            keys["rtc_id" if ecpri.msg_type == 2 else "pc_id"] = ecpri.id
        return {"ecpri": keys}
    return _given(
        udp_src=_ports(match.udp_src, f"{path}.udp_src"),
        udp_dst=_ports(match.udp_dst, f"{path}.udp_dst"),
        ipv4_len=match.ipv4_len,
        ipv4_src=_dotted(match.ipv4_src, f"{path}.ipv4_src"),
        ipv4_dst=_dotted(match.ipv4_dst, f"{path}.ipv4_dst"),
    )


def _ports(ports: Ports, path: str) -> int | str:
    if not isinstance(ports, tuple):
        return ports
    if len(ports) != 2:
        raise TypeError(f"{path} is {ports!r}; accepted are a port and (first, last)")
    return f"{ports[0]}-{ports[1]}"


def _dotted(address: int, path: str) -> str:
    """Return an in_addr_t as text; empty: any."""
    if not 0 <= _as(int, address, path) < 1 << 32:
        raise TypeError(f"{path} is {address}; accepted is an IPv4 address, 0 to 2**32 - 1")
    return socket.inet_ntoa(address.to_bytes(4, sys.byteorder)) if address else ""


def _action(value: object, path: str) -> Keys:
    action = _as(FlowAction, value, path)
    keys: Keys = {"type": _word(action.type)}
    if action.type == FlowType.QUEUE:
        ids = _list(action.ids, f"{path}.ids")
        return keys | ({"ids": ids} if ids else {"id": action.id})
    if action.type == FlowType.VLAN_PUSH:
        vlan = _as(VlanActionConfig, action.vlan, f"{path}.vlan")
        return keys | {name: getattr(vlan, name) for name in VlanActionConfig.__slots__}
    if action.type in (FlowType.TUNNEL_ENCAP, FlowType.TUNNEL_DECAP):
        keys["tunnel"] = _tunnel(_as(TunnelConfig, action.tunnel, f"{path}.tunnel"))
    return keys


def _tunnel(tunnel: TunnelConfig) -> Keys:
    addresses = {
        name: getattr(tunnel, name) for name in (*_ETHERNET, "outer_ipv4_src", "outer_ipv4_dst")
    }
    numbers = ("outer_ipv4_ttl", "outer_ipv4_tos", *_TUNNEL_NUMBERS.get(tunnel.type, ()))
    return (
        {"type": _word(tunnel.type)}
        | _given(**addresses)
        | {name: getattr(tunnel, name) for name in numbers}
    )


def _flex_item(value: object, path: str) -> Keys:
    item = _as(FlexItemConfig, value, path)
    return {name: getattr(item, name) for name in FlexItemConfig.__slots__}


_METHODS = {
    method: method.name.lower() for method in ReorderMethod if method != ReorderMethod.INVALID
}
_OF_ALL_MODES = (
    "name",
    "reorder_type",
    "memory_region",
    "flow_ids",
    "flows",
    "cpu_core",
    "columns",
)
_UNSET = {"conditions": [], "payload_base": "packet", "fill": 0}
# Values of a plan's keys that are equivalent to leaving them out.
_OPTIONAL = {"window": 0, "timeout_us": -1, "fill": 0, "flow_stride": 0, "payload_bytes": 0}


def _reorder(value: object, path: str) -> Keys:
    plan = _as(ReorderConfig, value, path)
    flows = _list(plan.flows, f"{path}.flows")
    keys: Keys = {
        "name": plan.name,
        "reorder_type": plan.reorder_type,
        "memory_region": plan.memory_region,
        "payload_byte_offset": plan.payload_byte_offset,
    }
    if flows:
        keys["flows"] = flows
    if plan.flow_ids or not flows:
        keys["flow_ids"] = _list(plan.flow_ids, f"{path}.flow_ids")
    if plan.payload_base != ReorderBase.PACKET:
        keys["payload_base"] = _word(plan.payload_base)
    if method := _METHODS.get(plan.method):
        keys["method"] = {method: _reorder_method(plan, method, f"{path}.{method}")}
    for name, default in _OPTIONAL.items():
        if (given := getattr(plan, name)) != default:
            keys[name] = given
    keys |= _given(cpu_core=_list(plan.cpu_cores, f"{path}.cpu_cores"))
    if plan.payload_offset_field != ReorderBitFieldConfig():
        offset = _bits(plan.payload_offset_field, f"{path}.payload_offset_field")
        keys["payload_offset_field"] = offset
    keys |= _given(
        conditions=[_condition(*each) for each in _each(plan.conditions, f"{path}.conditions")],
        columns={
            name: _column(column, f"{path}.columns[{name!r}]")
            for name, column in _as(dict, plan.columns, f"{path}.columns").items()
        },
    )
    frame = _as(ReorderFrameConfig, plan.frame, f"{path}.frame")
    if frame != ReorderFrameConfig():
        shape = _list(frame.shape, f"{path}.frame.shape")
        modules = _modules(frame.modules, f"{path}.frame.modules")
        keys["frame"] = {"shape": shape, **_given(dtype=frame.dtype, modules=modules)}
    types = _as(ReorderDataTypesConfig, plan.data_types, f"{path}.data_types")
    if types.enabled:
        keys["data_types"] = {
            "input_type": _word(types.input_type),
            "output_type": _word(types.output_type),
            "endianness": _word(types.input_endianness),
            "packing": _word(types.packing),
        }
    if plan.modes:
        keys["modes"] = {
            name: _differing(keys, _reorder(mode, f"{path}.modes.{name}"))
            for name, mode in plan.modes.items()
        }
    return keys


def _modules(given: Any, path: str) -> Keys:
    modules = _as(ReorderModulesConfig, given, path)
    if modules == ReorderModulesConfig():
        return {}
    keys: Keys = {"shape": _list(modules.shape, f"{path}.shape")}
    for name in ("tile", "chip", "chip_gap"):
        keys |= _given(**{name: _list(getattr(modules, name), f"{path}.{name}")})
    keys["positions"] = [
        {
            "origin": _list(position.origin, f"{at}.origin"),
            "flip": _word(position.flip),
            "rotate": position.rotate,
        }
        for each, at in _each(modules.positions, f"{path}.positions")
        for position in [_as(ReorderPositionConfig, each, at)]
    ]
    return keys


def _differing(plan: Keys, mode: Keys) -> Keys:
    """Return the keys of a mode that differ; those of all modes only if they are given."""
    # None, where a mode cannot be without what the plan has, is refused by name.
    unset = {name: _UNSET.get(name) for name in plan.keys() - mode.keys() - {*_OF_ALL_MODES}}
    given = {
        name: value
        for name, value in mode.items()
        if value != plan.get(name) and (value or name not in _OF_ALL_MODES)
    }
    return given | unset


def _reorder_method(plan: ReorderConfig, method: str, path: str) -> Keys:
    members = _as(type(getattr(ReorderConfig(), method)), getattr(plan, method), path)
    keys: Keys = {}
    for name in members.__slots__:
        value = getattr(members, name)
        if name.endswith("_number") or name == "byte_offset":
            keys[name] = _bits(value, f"{path}.{name}")
        elif method != "seq_batch_number":  # its packets follow from the widths
            keys[name] = value
    if first := _list(plan.first_packet, f"{path}.first_packet"):
        keys["first_packet"] = first
    return keys


def _condition(value: object, path: str) -> Keys:
    condition = _as(ReorderConditionConfig, value, path)
    keys = _bits(condition.field, f"{path}.field")
    for name in ("mask", "at_least", "at_most"):
        if (given := getattr(condition, name)) != getattr(ReorderConditionConfig(), name):
            keys[name] = given
    # At least one value is needed.
    return keys if keys.keys() & {"at_least", "at_most"} else keys | {"at_least": 0}


def _column(value: object, path: str) -> Keys:
    column = _as(ReorderColumnConfig, value, path)
    keys = _bits(column.field, f"{path}.field")
    if column.source != ReorderColumnSource.FIRST:
        keys["from"] = _word(column.source)
    return keys


def _bits(value: object, path: str) -> Keys:
    field = _as(ReorderBitFieldConfig, value, path)
    keys: Keys = {"bit_offset": field.bit_offset, "bit_width": field.bit_width}
    if field.byte_order != ReorderByteOrder.BIG:
        keys["byte_order"] = _word(field.byte_order)
    if field.base != ReorderBase.PACKET:
        keys["base"] = _word(field.base)
    if field.step != 1:
        keys["step"] = field.step or "any"
    if field.unit != 1:
        keys["unit"] = field.unit
    return keys
