"""Keys and values of the configuration file as configuration classes."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

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
    RoCEConfig,
    RxConfig,
    RxQueueConfig,
    SocketConfig,
    TunnelConfig,
    TxConfig,
    TxQueueConfig,
    VlanActionConfig,
)
from ._enums import (
    Direction,
    EngineType,
    FlowMatchType,
    FlowType,
    LogLevel,
    MemoryKind,
    QueuePollMode,
    RDMAMode,
    RDMATransportMode,
    ReorderBase,
    ReorderByteOrder,
    ReorderColumnSource,
    ReorderDataType,
    ReorderEndianness,
    ReorderFlip,
    ReorderMethod,
    ReorderPacking,
    SocketMode,
    SocketProtocol,
    StreamType,
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
from ._to_keys import ACCESS, LOOPBACKS, Keys, endpoint_parts

__all__ = ["from_keys"]

_Class = TypeVar("_Class")
_Enum = TypeVar("_Enum", bound=Enum)


def from_keys(document: Mapping[str, Any], engine_type: EngineType) -> NetworkConfig:
    """Return the configuration that a checked file describes.

    Parameters
    ----------
    document : mapping
        Keys with every default written out, as from ``daqiri_ophyd.engine.NetworkConfig.to_dict``.
    engine_type : EngineType
        The selected engine.
    """
    keys = document["daqiri"]["cfg"]
    loopbacks = {word: kind for kind, word in LOOPBACKS.items()}
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
        ship_to=keys.get("ship_to", ""),
        reorder_configs=[_reorder_of(plan) for plan in keys.get("reorder_configs", ())],
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
    """Return an object whose members of these names have the file's values, if given."""
    return kind(**{name: keys[name] for name in names if name in keys})


def _region_of(keys: Keys) -> MemoryRegionConfig:
    region = _members(MemoryRegionConfig, keys, "name", "affinity", "buf_size", "num_bufs", "owned")
    region.kind = _of(MemoryKind, keys["kind"])
    region.access = sum(ACCESS[word] for word in keys["access"])
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
        for part, value in endpoint_parts(getattr(config, f"{side}_addr")).items():
            setattr(config, f"{side}_{part}", value)
    return config


def _rx_of(keys: Keys) -> RxConfig:
    settings = ("flow_isolation", "hardware_timestamps", "dynamic_flow_capacity", "receive_path")
    rx = _members(RxConfig, keys, *settings, "filter")
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
    plan = _members(
        ReorderConfig,
        keys,
        *("name", "reorder_type", "memory_region", "payload_byte_offset", "flow_ids", "flows"),
        *("window", "timeout_us", "fill", "flow_stride", "payload_bytes"),
    )
    plan.cpu_cores = [str(core) for core in keys.get("cpu_core", [])]
    plan.payload_base = _of(ReorderBase, keys["payload_base"])
    ((method, values),) = keys["method"].items()
    plan.method = _of(ReorderMethod, method)
    first = values.get("first_packet", [])
    plan.first_packet = first if isinstance(first, list) else [first]
    values = {
        name: _bits_of(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if name != "first_packet"
    }
    if plan.method == ReorderMethod.SEQ_BATCH_NUMBER:
        sequence, batch = (values[name] for name in ("sequence_number", "batch_number"))
        numbers = 1 << (sequence.bit_width - batch.bit_width)
        values["packets_per_batch"] = numbers // sequence.step
    setattr(plan, method, type(getattr(plan, method))(**values))
    if types := keys.get("data_types"):
        plan.data_types = ReorderDataTypesConfig(
            True,
            _of(ReorderDataType, types["input_type"]),
            _of(ReorderDataType, types["output_type"]),
            _of(ReorderEndianness, types["endianness"]),
            _of(ReorderPacking, types["packing"]),
        )
    if frame := keys.get("frame"):
        plan.frame = _frame_of(frame)
    if offset := keys.get("payload_offset_field"):
        plan.payload_offset_field = _bits_of(offset)
    plan.conditions = [_condition_of(each) for each in keys.get("conditions", [])]
    for name, column in keys.get("columns", {}).items():
        source = _of(ReorderColumnSource, column.get("from", "first"))
        plan.columns[name] = ReorderColumnConfig(_bits_of(column), source)
    whole = {name: value for name, value in keys.items() if name != "modes"}
    plan.modes = {
        name: _reorder_of(whole | differing) for name, differing in keys.get("modes", {}).items()
    }
    return plan


def _frame_of(keys: Keys) -> ReorderFrameConfig:
    frame = _members(ReorderFrameConfig, keys, "shape", "dtype")
    if modules := keys.get("modules"):
        frame.modules = _members(ReorderModulesConfig, modules, "shape", "tile", "chip", "chip_gap")
        for each in modules["positions"]:
            position = _members(ReorderPositionConfig, each, "origin", "rotate")
            position.flip = _of(ReorderFlip, each["flip"])
            frame.modules.positions.append(position)
    return frame


def _condition_of(keys: Keys) -> ReorderConditionConfig:
    given = _members(ReorderConditionConfig, keys, "mask", "at_least", "at_most")
    if "equal" in keys:
        given.at_least = given.at_most = keys["equal"]
    given.field = _bits_of(keys)
    return given


def _bits_of(keys: Keys) -> ReorderBitFieldConfig:
    field = _members(ReorderBitFieldConfig, keys, "bit_offset", "bit_width", "step", "unit")
    if field.step == "any":
        field.step = 0
    field.byte_order = _of(ReorderByteOrder, keys["byte_order"])
    field.base = _of(ReorderBase, keys["base"])
    return field
