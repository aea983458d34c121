"""Configuration classes as keys and values of the configuration file, and back."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Mapping
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
    InterfaceConfig,
    MemoryRegionConfig,
    NetworkConfig,
    Ports,
    RDMAConfig,
    ReorderBitFieldConfig,
    ReorderConfig,
    ReorderDataTypesConfig,
    ReorderSeqBatchNumberConfig,
    ReorderSeqPacketsPerBatchConfig,
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
    Direction,
    EngineType,
    FlowMatchType,
    FlowType,
    LogLevel,
    LoopbackType,
    MemoryKind,
    QueuePollMode,
    RDMAMode,
    RDMATransportMode,
    ReorderDataType,
    ReorderEndianness,
    ReorderMethod,
    SocketMode,
    SocketProtocol,
    StreamType,
    TunnelType,
)

__all__ = ["from_keys", "to_keys"]

Keys = dict[str, Any]
_Class = TypeVar("_Class")
_Enum = TypeVar("_Enum", bound=Enum)

_ACCESS = {
    "local": MEM_ACCESS_LOCAL,
    "rdma_read": MEM_ACCESS_RDMA_READ,
    "rdma_write": MEM_ACCESS_RDMA_WRITE,
}
_LOOPBACK = {LoopbackType.DISABLED: "", LoopbackType.LOOPBACK_TYPE_SW: "sw"}
_ENGINES = {EngineType.RDMA: "ibverbs"}
_ETHERNET = ("outer_eth_src", "outer_eth_dst")
_TUNNEL_DEFAULTS = TunnelConfig()
_TUNNEL_NUMBERS = {
    TunnelType.VXLAN: ("vni", "outer_udp_src", "outer_udp_dst"),
    TunnelType.GRE: ("gre_protocol",),
    TunnelType.NVGRE: ("tni", "flow_id"),
}


def to_keys(config: NetworkConfig) -> Keys:
    """Return what a configuration file would say.

    Raises
    ------
    TypeError
        If a member is of another class; the text says which.
    """
    common = _as(CommonConfig, config.common, "common")
    regions = _as(dict, config.memory_regions, "memory_regions")
    keys: Keys = {
        "version": common.version,
        "master_core": common.master_core,
        "stream_type": _word(common.stream_type),
        "loopback": _LOOPBACK.get(common.loopback, common.loopback),
        "log_level": _word(config.log_level),
        "debug": bool(config.debug),
        "tx_meta_buffers": config.tx_meta_buffers,
        "rx_meta_buffers": config.rx_meta_buffers,
        "memory_regions": [
            _region(name, region, f"memory_regions[{name!r}]") for name, region in regions.items()
        ],
        "interfaces": [_interface(*each) for each in _each(config.interfaces, "interfaces")],
    }
    keys |= _given(loopback_drops=common.loopback_drops)
    if common.engine != EngineType.DEFAULT:
        keys["engine"] = _ENGINES.get(common.engine, _word(common.engine))
    return keys


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
    """Return the file's word for an enumerator; its rules are for anything else."""
    return value.name.lower() if isinstance(value, Enum) else value


def _given(**keys: Any) -> Keys:
    """Return the keys whose values are not empty, 0 or false."""
    return {key: value for key, value in keys.items() if value}


def _region(name: str, value: object, path: str) -> Keys:
    region = _as(MemoryRegionConfig, value, path)
    access = _as(int, region.access, f"{path}.access")
    return {
        "name": region.name or name,
        "kind": _word(region.kind),
        "affinity": region.affinity,
        "access": [word for word, bit in _ACCESS.items() if access & bit],
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
    if roce.transport_mode != RDMATransportMode.INVALID:
        keys["roce_config"] = {"transport_mode": roce.transport_mode.name}
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
        if uri:
            keys[f"{side}_addr"] = uri
            continue
        for part in ("ip", "port"):
            if value := getattr(config, f"{side}_{part}"):
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


def _reorder(value: object, path: str) -> Keys:
    plan = _as(ReorderConfig, value, path)
    keys: Keys = {
        "name": plan.name,
        "reorder_type": plan.reorder_type,
        "memory_region": plan.memory_region,
        "payload_byte_offset": plan.payload_byte_offset,
        "flow_ids": _list(plan.flow_ids, f"{path}.flow_ids"),
    }
    if plan.method == ReorderMethod.SEQ_BATCH_NUMBER:
        by_batch = plan.seq_batch_number
        keys["method"] = {
            "seq_batch_number": {
                "sequence_number": _bits(by_batch.sequence_number),
                "batch_number": _bits(by_batch.batch_number),
            }
        }
    elif plan.method == ReorderMethod.SEQ_PACKETS_PER_BATCH:
        counted = plan.seq_packets_per_batch
        keys["method"] = {
            "seq_packets_per_batch": {
                "sequence_number": _bits(counted.sequence_number),
                "packets_per_batch": counted.packets_per_batch,
            }
        }
    types = _as(ReorderDataTypesConfig, plan.data_types, f"{path}.data_types")
    if types.enabled:
        keys["data_types"] = {
            "input_type": _word(types.input_type),
            "output_type": _word(types.output_type),
            "endianness": _word(types.input_endianness),
        }
    return keys


def _bits(field: ReorderBitFieldConfig) -> Keys:
    return {"bit_offset": field.bit_offset, "bit_width": field.bit_width}


def from_keys(document: Mapping[str, Any], engine_type: EngineType) -> NetworkConfig:
    """Return the configuration that a checked file describes.

    Parameters
    ----------
    document : mapping
        With every default written out, as ``daqiri_ophyd.engine.NetworkConfig.to_dict`` has it.
    engine_type : EngineType
        The engine that was found.
    """
    keys = document["daqiri"]["cfg"]
    loopbacks = {word: kind for kind, word in _LOOPBACK.items()}
    config = NetworkConfig(
        common=CommonConfig(
            version=keys["version"],
            master_core=keys["master_core"],
            stream_type=_of(StreamType, keys["stream_type"]),
            engine_type=engine_type,
            loopback=loopbacks[keys["loopback"]],
            loopback_drops=keys.get("loopback_drops", False),
        ),
        memory_regions={region["name"]: _region_of(region) for region in keys["memory_regions"]},
        interfaces=[_interface_of(*each) for each in enumerate(keys["interfaces"])],
        debug=keys["debug"],
        tx_meta_buffers=keys["tx_meta_buffers"],
        rx_meta_buffers=keys["rx_meta_buffers"],
        log_level=_of(LogLevel, keys["log_level"]),
    )
    if "engine" in keys:
        config.common.engine = engine_type
    receives, sends = (any(side in each for each in keys["interfaces"]) for side in ("rx", "tx"))
    if receives != sends:
        config.common.direction = Direction.RX if receives else Direction.TX
    protocols = {_scheme(each.socket) for each in config.interfaces} - {""}
    if protocols:
        config.common.protocol = _of(SocketProtocol, protocols.pop())
    return config


def _of(kind: type[_Enum], word: str) -> _Enum:
    return kind[word.upper()]


def _scheme(config: SocketConfig) -> str:
    return (config.local_addr or config.remote_addr).partition("://")[0]


def _members(kind: type[_Class], keys: Mapping[str, Any], *names: str) -> _Class:
    """Return an object whose members of these names are as the file says, if it does."""
    return kind(**{name: keys[name] for name in names if name in keys})


def _region_of(keys: Keys) -> MemoryRegionConfig:
    region = _members(MemoryRegionConfig, keys, "name", "affinity", "buf_size", "num_bufs", "owned")
    region.kind = _of(MemoryKind, keys["kind"])
    region.access = sum(_ACCESS[word] for word in keys["access"])
    return region


def _interface_of(port_id: int, keys: Keys) -> InterfaceConfig:
    interface = InterfaceConfig(keys["name"], keys["address"], port_id)
    if "socket_config" in keys:
        interface.socket = _socket_of(keys["socket_config"])
    if "roce_config" in keys:
        mode = RDMATransportMode[keys["roce_config"]["transport_mode"]]
        interface.roce = RoCEConfig(mode)
    if _scheme(interface.socket) == "roce":
        side = "remote" if interface.socket.remote_port else "local"
        interface.rdma = RDMAConfig(
            RDMAMode[interface.socket.mode.name],
            interface.roce.transport_mode,
            getattr(interface.socket, f"{side}_port"),
        )
    if "rx" in keys:
        interface.rx = _rx_of(keys["rx"])
    if "tx" in keys:
        interface.tx = _tx_of(keys["tx"])
    return interface


def _socket_of(keys: Keys) -> SocketConfig:
    numbers = ("max_payload_size", "max_burst_interval_ms", "min_ipg_ns", "retry_connect_s")
    config = _members(SocketConfig, keys, "local_addr", "remote_addr", *numbers)
    config.mode = _of(SocketMode, keys["mode"])
    for side in ("local", "remote"):
        endpoint = urlsplit(getattr(config, f"{side}_addr"))
        if endpoint.hostname:
            setattr(config, f"{side}_ip", endpoint.hostname)
            setattr(config, f"{side}_port", endpoint.port or 0)
    return config


def _rx_of(keys: Keys) -> RxConfig:
    flags = ("flow_isolation", "hardware_timestamps", "dynamic_flow_capacity")
    rx = _members(RxConfig, keys, *flags)
    for each in keys["queues"]:
        queue = _members(RxQueueConfig, each, "timeout_us")
        queue.common, queue.poll_mode = _queue_of(each), _poll_mode_of(each)
        rx.queues.append(queue)
    rx.flows = [_flow_of(flow) for flow in keys["flows"]]
    rx.flex_items = [FlexItemConfig(**item) for item in keys["flex_items"]]
    rx.reorder_configs = [_reorder_of(plan) for plan in keys["reorder_configs"]]
    return rx


def _tx_of(keys: Keys) -> TxConfig:
    numbers = ("pacing_mbps", "timeout_us", "realtime_priority")
    queues = []
    for each in keys["queues"]:
        queue = _members(TxQueueConfig, each, *numbers)
        queue.common, queue.poll_mode = _queue_of(each), _poll_mode_of(each)
        queues.append(queue)
    return TxConfig(keys["accurate_send"], queues, [_flow_of(flow) for flow in keys["flows"]])


def _queue_of(keys: Keys) -> CommonQueueConfig:
    names = ("name", "id", "batch_size", "split_boundary", "memory_regions", "offloads")
    common = _members(CommonQueueConfig, keys, *names)
    common.cpu_core = str(keys.get("cpu_core", ""))
    return common


def _poll_mode_of(keys: Keys) -> QueuePollMode:
    return _of(QueuePollMode, keys["poll_mode"])


def _flow_of(keys: Keys) -> FlowConfig:
    actions = [_action_of(action) for action in keys.get("actions", ())]
    queues = [action for action in actions if action.type == FlowType.QUEUE]
    action = _action_of(keys["action"]) if "action" in keys else FlowAction()
    return FlowConfig(
        keys["name"],
        keys["id"],
        queues[-1] if queues else action,
        actions,
        _match_of(keys.get("match", {})),
    )


def _match_of(keys: Keys) -> FlowMatch:
    if "flex_item_id" in keys:
        flex = _members(FlexItemMatch, keys, "flex_item_id", "val", "mask")
        return FlowMatch(FlowMatchType.FLEX_ITEM, flex_item_match=flex)
    if "ecpri" in keys:
        ecpri = keys["ecpri"]
        body = ecpri.get("pc_id", ecpri.get("rtc_id"))
        match = EcpriMatch(
            "msg_type" in ecpri, ecpri.get("msg_type", 0), body is not None, body or 0
        )
        return FlowMatch(FlowMatchType.ECPRI, ecpri_match=match)
    return FlowMatch(
        udp_src=_ports_of(keys.get("udp_src", 0)),
        udp_dst=_ports_of(keys.get("udp_dst", 0)),
        ipv4_len=keys.get("ipv4_len", 0),
        ipv4_src=_address_of(keys.get("ipv4_src", "0.0.0.0")),
        ipv4_dst=_address_of(keys.get("ipv4_dst", "0.0.0.0")),
    )


def _ports_of(ports: int | str) -> Ports:
    if isinstance(ports, int):
        return ports
    low, high = ports.split("-")
    return int(low), int(high)


def _address_of(text: str) -> int:
    return int.from_bytes(socket.inet_aton(text), sys.byteorder)


def _action_of(keys: Keys) -> FlowAction:
    action = FlowAction(_of(FlowType, keys["type"]), keys.get("id", 0), keys.get("ids", []))
    if action.type == FlowType.VLAN_PUSH:
        action.vlan = _members(VlanActionConfig, keys, *VlanActionConfig.__slots__)
    if "tunnel" in keys:
        action.tunnel = _members(TunnelConfig, keys["tunnel"], *TunnelConfig.__slots__)
        action.tunnel.type = _of(TunnelType, keys["tunnel"]["type"])
    return action


def _reorder_of(keys: Keys) -> ReorderConfig:
    names = ("name", "reorder_type", "memory_region", "payload_byte_offset", "flow_ids")
    plan = _members(ReorderConfig, keys, *names)
    ((method, values),) = keys["method"].items()
    plan.method = _of(ReorderMethod, method)
    sequence = ReorderBitFieldConfig(**values["sequence_number"])
    if plan.method == ReorderMethod.SEQ_BATCH_NUMBER:
        batch = ReorderBitFieldConfig(**values["batch_number"])
        packets = 1 << (sequence.bit_width - batch.bit_width)
        plan.seq_batch_number = ReorderSeqBatchNumberConfig(sequence, batch, packets)
    else:
        packets = values["packets_per_batch"]
        plan.seq_packets_per_batch = ReorderSeqPacketsPerBatchConfig(sequence, packets)
    if types := keys.get("data_types"):
        plan.data_types = ReorderDataTypesConfig(
            True,
            _of(ReorderDataType, types["input_type"]),
            _of(ReorderDataType, types["output_type"]),
            _of(ReorderEndianness, types["endianness"]),
        )
    return plan
