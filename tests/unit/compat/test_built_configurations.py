"""Configurations built of classes have the same meaning as files."""

import copy
import dataclasses
import re
import socket
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from daqiri_ophyd import compat, profiles
from daqiri_ophyd.compat import Status
from daqiri_ophyd.compat._to_keys import to_keys
from daqiri_ophyd.engine import check_config, load_config

NATIVE = Path(__file__).parents[3] / "native"
CORPUS = sorted((NATIVE / "fuzz" / "corpus" / "config").iterdir())

EVERYTHING = """
version: 1
master_core: 3
stream_type: raw
engine: ibverbs
log_level: debug
debug: true
tx_meta_buffers: 100
rx_meta_buffers: 200
memory_regions:
- name: headers
  kind: huge
  affinity: 1
  access: [local, rdma_read]
  num_bufs: 20000
  buf_size: 64
  owned: false
- {name: data, kind: device, access: [rdma_write], num_bufs: 20000, buf_size: 9000}
- {name: frames, kind: host_pinned, num_bufs: 20000, buf_size: 4194304}
- {name: packets, kind: huge, num_bufs: 20000, buf_size: 9000}
interfaces:
- name: camera
  address: "0000:03:00.0"
  rx:
    flow_isolation: true
    hardware_timestamps: true
    dynamic_flow_capacity: 10
    receive_path: auto
    queues:
    - name: split
      id: 0
      cpu_core: 4
      batch_size: 64
      timeout_us: 100
      split_boundary: 42
      memory_regions: [headers, data]
    - {name: polled, id: 7, poll_mode: direct, memory_regions: [data]}
    - {name: whole, id: 8, cpu_core: 5, batch_size: 64, memory_regions: [data]}
    flows:
    - name: ranges
      id: 1
      match:
        udp_src: 4096
        udp_dst: 5000-5010
        ipv4_len: 1050
        ipv4_src: 10.0.0.1
        ipv4_dst: 10.0.0.2
      action: {type: queue, id: 8}
    - {name: spread, id: 2, match: {udp_dst: 6000}, action: {type: queue, ids: [0, 7]}}
    - name: tunnel
      id: 3
      match: {udp_dst: 6001}
      actions:
      - {type: vlan_pop}
      - type: tunnel_decap
        tunnel:
          type: vxlan
          outer_ipv4_src: 192.0.2.1
          vni: 77
          outer_udp_src: 1
          outer_udp_dst: 2
      - {type: queue, id: 0}
    - {name: everything, id: 4, action: {type: queue, id: 0}}
    reorder_configs:
    - name: counted
      reorder_type: gpu
      memory_region: frames
      payload_byte_offset: 50
      flow_ids: [1]
      method:
        seq_packets_per_batch:
          sequence_number: {bit_offset: 336, bit_width: 16}
          packets_per_batch: 16
      data_types: {input_type: int16, output_type: fp32, endianness: network}
  tx:
    accurate_send: true
    queues:
    - name: tx
      id: 0
      cpu_core: "9"
      batch_size: 64
      pacing_mbps: 1000
      realtime_priority: 5
      offloads: [tx_eth_src]
      memory_regions: [data]
    flows:
    - name: tagged
      id: 9
      match: {udp_dst: 1}
      action: {type: vlan_push, vlan_id: 5, pcp: 3, dei: 1, ethertype: 0x88a8}
    - name: wrapped
      id: 10
      actions:
      - type: tunnel_encap
        tunnel:
          type: nvgre
          outer_eth_src: 02:00:00:00:00:01
          outer_eth_dst: 02:00:00:00:00:02
          outer_ipv4_src: 192.0.2.1
          outer_ipv4_dst: 192.0.2.2
          outer_ipv4_ttl: 9
          outer_ipv4_tos: 8
          tni: 5
          flow_id: 6
    - name: routed
      id: 11
      match: {udp_dst: 2}
      action:
        type: tunnel_encap
        tunnel:
          type: gre
          outer_eth_src: 02:00:00:00:00:01
          outer_eth_dst: 02:00:00:00:00:02
          outer_ipv4_src: 192.0.2.1
          outer_ipv4_dst: 192.0.2.2
          gre_protocol: 0x6558
- name: radio
  address: "0000:03:00.1"
  rx:
    queues:
    - {name: rx, id: 0, cpu_core: 6, batch_size: 64, memory_regions: [data]}
    flows:
    - name: control
      id: 20
      match: {ecpri: {msg_type: 2, rtc_id: 9}}
      action: {type: queue, id: 0}
    - name: samples
      id: 21
      match: {ecpri: {msg_type: 0, pc_id: 8}}
      action: {type: queue, id: 0}
    - {name: any, id: 22, match: {ecpri: {}}, action: {type: queue, id: 0}}
- name: sensor
  address: "0000:03:00.2"
  rx:
    queues:
    - {name: rx, id: 0, cpu_core: 6, batch_size: 64, memory_regions: [data]}
    flex_items:
    - {name: kind, id: 3, offset: 8, udp_dst_port: 7000}
    flows:
    - name: flex
      id: 30
      match: {flex_item_id: 3, val: 5, mask: 0xff}
      action: {type: queue, id: 0}
    reorder_configs:
    - name: by_batch
      reorder_type: gpu
      memory_region: frames
      flow_ids: [30]
      method:
        seq_batch_number:
          sequence_number: {bit_offset: 336, bit_width: 10}
          batch_number: {bit_offset: 352, bit_width: 4}
- name: detector
  address: "0000:03:00.3"
  rx:
    queues:
    - {name: rx, id: 0, cpu_core: 7, batch_size: 64, memory_regions: [packets]}
    flows:
    - {name: left, id: 40, match: {udp_dst: 8000}, action: {type: queue, id: 0}}
    - {name: right, id: 41, match: {udp_dst: 8001}, action: {type: queue, id: 0}}
    - {name: heap, id: 42, match: {udp_dst: 8002}, action: {type: queue, id: 0}}
    reorder_configs:
    - name: modules
      reorder_type: cpu
      memory_region: frames
      payload_byte_offset: 48
      payload_base: udp_payload
      flow_ids: [40, 41]
      flow_stride: 128
      cpu_core: [2, any]
      window: 4
      timeout_us: 100000
      fill: 65535
      data_types: {input_type: uint16, output_type: uint16, endianness: host}
      frame: {shape: [1024, 1024], dtype: uint16}
      method:
        batch_packet_number:
          batch_number: {bit_offset: 0, bit_width: 32, byte_order: little, base: udp_payload}
          packet_number:
            {bit_offset: 96, bit_width: 32, byte_order: little, base: udp_payload, step: 2}
          packets_per_batch: 256
          first_packet: [1, 5]
          running: true
    - name: heaps
      reorder_type: cpu
      memory_region: frames
      payload_byte_offset: 64
      payload_offset_field: {bit_offset: 48, bit_width: 16, base: udp_payload, unit: 8}
      payload_bytes: 1024
      flow_ids: [42]
      conditions:
      - {bit_offset: 64, bit_width: 16, mask: 0xff, equal: 3}
      - {bit_offset: 64, bit_width: 64, at_least: 1}
      frame:
        shape: [1034, 1026]
        modules:
          shape: [512, 1024]
          tile: [4, 1024]
          chip: [256, 512]
          chip_gap: [2, 2]
          positions:
          - {origin: [0, 0]}
          - {origin: [520, 0], flip: rows, rotate: 180}
      columns:
        pulse_id: {bit_offset: 128, bit_width: 64, byte_order: little, base: udp_payload}
        triggers: {bit_offset: 60, bit_width: 4, from: sum}
      method:
        batch_byte_offset:
          batch_number: {bit_offset: 512, bit_width: 16, step: any}
          byte_offset: {bit_offset: 576, bit_width: 32, unit: 4}
          batch_bytes: 1048576
          first_packet: 7
      modes:
        short: {payload_bytes: 512, fill: 7}
        all: {conditions: []}
"""
ROCE = """
version: 1
master_core: 0
stream_type: socket
interfaces:
- name: sink
  address: 192.0.2.1
  socket_config: {mode: server, local_addr: "roce://192.0.2.1:4791"}
  roce_config: {transport_mode: UC}
  rx:
    queues: [{name: rx, id: 0, cpu_core: 1, batch_size: 4}]
"""
TEXTS = {
    "everything": EVERYTHING,
    "roce": ROCE,
    **{name: profiles.path(name).read_text() for name in profiles.names()},
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_was_read_is_what_is_started(name: str) -> None:
    status, config = compat.parse_network_config(TEXTS[name])
    assert status == Status.SUCCESS, compat.last_error()
    assert load_config(to_keys(config)) == load_config(TEXTS[name])
    assert copy.deepcopy(config) == config


def names(keys: Any) -> set[str]:
    """Return the names of all keys."""
    if isinstance(keys, list):
        return set().union(*map(names, keys))
    return set(keys).union(*map(names, keys.values())) if isinstance(keys, dict) else set()


def test_every_key_of_a_file_has_a_member() -> None:
    classes = [each for each in vars(compat).values() if dataclasses.is_dataclass(each)]
    members = {field.name for each in classes for field in dataclasses.fields(each)}
    # Keys that are called otherwise, or stand for an object.
    members |= {"daqiri", "cfg", "socket_config", "roce_config", "ecpri", "pc_id", "rtc_id"}
    members |= {"endianness", "equal", "from"}
    members |= {"pulse_id", "triggers"}  # names of columns
    members |= {"short", "all"}  # names of modes
    found = set().union(*(names(load_config(text).to_dict()) for text in TEXTS.values()))
    assert found <= members


def test_the_same_of_every_file_of_the_corpus() -> None:
    assert CORPUS
    for path in CORPUS:
        text = path.read_bytes().decode(errors="replace")
        status, config = compat.parse_network_config_from_yaml_string(text)
        assert (status == Status.SUCCESS) == check_config(text + "\n").ok, path
        if status == Status.SUCCESS:
            assert load_config(to_keys(config)) == load_config(text + "\n")


def test_members_have_the_values_of_the_file() -> None:
    _, config = compat.parse_network_config(EVERYTHING)
    common = config.common
    assert (common.engine, common.engine_type) == (compat.EngineType.IBVERBS,) * 2
    assert common.direction == compat.Direction.TX_RX
    assert list(config.memory_regions) == ["headers", "data", "frames", "packets"]
    headers = config.memory_regions["headers"]
    assert headers.kind == compat.MemoryKind.HUGE
    assert headers.access == compat.MEM_ACCESS_LOCAL | compat.MEM_ACCESS_RDMA_READ
    camera, radio, sensor, detector = config.interfaces
    assert [port.port_id for port in config.interfaces] == [0, 1, 2, 3]
    assert camera.rx.queues[0].common.cpu_core == "4"
    assert camera.rx.queues[1].poll_mode == compat.QueuePollMode.DIRECT
    ranges, spread, tunnel, everything = camera.rx.flows
    # As inet_addr has it.
    assert ranges.match.ipv4_src == int.from_bytes(socket.inet_aton("10.0.0.1"), sys.byteorder)
    assert (ranges.match.udp_src, ranges.match.udp_dst) == (4096, (5000, 5010))
    assert (ranges.action.type, ranges.action.id) == (compat.FlowType.QUEUE, 8)
    assert spread.action.ids == [0, 7]
    assert [action.type.name for action in tunnel.actions] == ["VLAN_POP", "TUNNEL_DECAP", "QUEUE"]
    assert tunnel.action == tunnel.actions[-1]
    assert everything.match == compat.FlowMatch()
    assert camera.rx.reorder_configs[0].seq_packets_per_batch.packets_per_batch == 16
    assert camera.rx.reorder_configs[0].data_types.input_type == compat.ReorderDataType.INT16
    assert camera.tx.flows[0].actions[0].vlan.ethertype == 0x88A8
    assert [flow.match.ecpri_match.id for flow in radio.rx.flows] == [9, 8, 0]
    assert sensor.rx.reorder_configs[0].seq_batch_number.packets_per_batch == 64
    assert sensor.rx.flows[0].match.flex_item_match.mask == 0xFF
    modules, heaps = detector.rx.reorder_configs
    assert modules.batch_packet_number.batch_number == compat.ReorderBitFieldConfig(
        0, 32, compat.ReorderByteOrder.LITTLE, compat.ReorderBase.UDP_PAYLOAD
    )
    assert (modules.window, modules.timeout_us, modules.fill, modules.flow_stride) == (
        4,
        100000,
        65535,
        128,
    )
    assert modules.cpu_cores == ["2", "any"]
    assert modules.frame == compat.ReorderFrameConfig([1024, 1024], "uint16")
    assert heaps.frame.modules == compat.ReorderModulesConfig(
        [512, 1024],
        [4, 1024],
        [256, 512],
        [2, 2],
        [
            compat.ReorderPositionConfig([0, 0]),
            compat.ReorderPositionConfig([520, 0], compat.ReorderFlip.ROWS, 180),
        ],
    )
    assert heaps.method == compat.ReorderMethod.BATCH_BYTE_OFFSET
    assert (heaps.window, heaps.timeout_us) == (0, -1)
    assert (modules.first_packet, heaps.first_packet) == ([1, 5], [7])
    assert modules.batch_packet_number.running
    assert modules.batch_packet_number.packet_number.step == 2
    assert modules.payload_offset_field == compat.ReorderBitFieldConfig()
    assert heaps.payload_offset_field == compat.ReorderBitFieldConfig(
        48, 16, base=compat.ReorderBase.UDP_PAYLOAD, unit=8
    )
    assert heaps.payload_bytes == 1024
    assert heaps.batch_byte_offset.batch_number.step == 0
    assert heaps.batch_byte_offset.byte_offset.unit == 4
    kind, size = heaps.conditions
    assert kind == compat.ReorderConditionConfig(
        compat.ReorderBitFieldConfig(64, 16), 0xFF, at_least=3, at_most=3
    )
    assert (size.field.bit_width, size.mask, size.at_least) == (64, 2**64 - 1, 1)
    assert modules.columns == {}
    little, payload = compat.ReorderByteOrder.LITTLE, compat.ReorderBase.UDP_PAYLOAD
    assert heaps.columns == {
        "pulse_id": compat.ReorderColumnConfig(
            compat.ReorderBitFieldConfig(128, 64, little, payload)
        ),
        "triggers": compat.ReorderColumnConfig(
            compat.ReorderBitFieldConfig(60, 4), compat.ReorderColumnSource.SUM
        ),
    }
    short, every = heaps.modes["short"], heaps.modes["all"]
    assert (short.name, short.payload_bytes, short.fill, short.modes) == ("heaps", 512, 7, {})
    assert (short.conditions, every.conditions) == (heaps.conditions, [])
    assert (every.payload_bytes, every.fill) == (1024, 0)


def test_endpoints_are_there_in_both_forms() -> None:
    _, config = compat.parse_network_config(ROCE)
    assert config.common.engine_type == compat.EngineType.RDMA
    assert config.common.protocol == compat.SocketProtocol.ROCE
    assert config.common.direction == compat.Direction.RX
    sink = config.interfaces[0]
    assert (sink.socket.local_ip, sink.socket.local_port) == ("192.0.2.1", 4791)
    assert sink.roce.transport_mode == compat.RDMATransportMode.UC
    assert sink.rdma == compat.RDMAConfig(compat.RDMAMode.SERVER, compat.RDMATransportMode.UC, 4791)
    keys = to_keys(config)["interfaces"][0]["socket_config"]
    assert keys["local_addr"] == "roce://192.0.2.1:4791"
    assert not {"local_ip", "local_port"} & keys.keys()
    # Either is enough for a program that builds one.
    sink.socket.local_addr = ""
    keys = to_keys(config)["interfaces"][0]["socket_config"]
    assert keys["local_addr"] == "roce://192.0.2.1:4791"
    assert not {"local_ip", "local_port"} & keys.keys()


MISTAKES: list[tuple[str, Any, str]] = [
    ("common", None, "common is None; accepted is CommonConfig"),
    ("common.version", 2, "version: found '2'"),
    ("common.stream_type", compat.StreamType.INVALID, "stream_type: found 'invalid'"),
    ("common.stream_type", "row", "stream_type: found 'row'"),
    ("common.loopback", 5, "loopback: found '5'"),
    ("log_level", object(), "accepted are plain Python values"),
    ("memory_regions", [], "memory_regions is []; accepted is dict"),
    ("memory_regions", {"rx": None}, "memory_regions['rx'] is None"),
    ("interfaces", None, "interfaces is None; accepted is a list"),
    ("interfaces", [None], "interfaces[0] is None; accepted is InterfaceConfig"),
    ("interfaces.0.rx", 5, "interfaces[0].rx is 5; accepted is RxConfig"),
    ("interfaces.0.rx.queues.0.common", {}, "rx.queues[0].common is {}"),
    ("interfaces.0.rx.queues.0.common.batch_size", -1, "rx.queues[0].batch_size: found '-1'"),
    ("interfaces.0.rx.queues.0.common.memory_regions", 5, "memory_regions is 5"),
    ("interfaces.0.rx.queues.0.common.memory_regions", ["none"], "none"),
    ("interfaces.0.rx.flows.0.match", None, "rx.flows[0].match is None"),
    ("interfaces.0.rx.flows.0.match.ipv4_src", 1 << 32, "match.ipv4_src is 4294967296"),
    ("interfaces.0.rx.flows.0.match.udp_dst", 70000, "match.udp_dst: found '70000'"),
    ("interfaces.0.rx.flows.0.match.udp_dst", (1, 2, 3), "match.udp_dst is (1, 2, 3)"),
    ("interfaces.0.rx.flows.0.action.id", 99, "action.id: found 99"),
    ("interfaces.0.socket", None, "interfaces[0].socket is None"),
    ("interfaces.0.roce.transport_mode", compat.RDMATransportMode.RC, "roce_config"),
]


@pytest.mark.parametrize(
    "path, value, text", MISTAKES, ids=[f"{p}={v!r:.20}" for p, v, _ in MISTAKES]
)
def test_mistakes_are_told_with_their_place(path: str, value: Any, text: str) -> None:
    _, config = compat.parse_network_config(TEXTS["loopback"])
    *parents, last = path.split(".")
    target: Any = config
    for name in parents:
        target = target[int(name)] if name.isdigit() else getattr(target, name)
    setattr(target, last, value)
    assert compat.daqiri_init(config) == Status.INVALID_PARAMETER
    assert text in compat.last_error()


def test_enumerators_have_the_numbers_of_the_headers() -> None:
    text = "".join(path.read_text() for path in (NATIVE / "include" / "daqiri").glob("*.h"))
    found = dict(re.findall(r"enum(?: class)? (\w+)(?: : [\w:]+)? \{([^}]*)\}", text))
    found["LogLevel"] = found.pop("Level")
    for name in compat.__all__:
        enum = getattr(compat, name)
        if not (isinstance(enum, type) and issubclass(enum, Enum)):
            continue
        number, numbers = 0, {}
        for entry in re.sub(r"//.*", "", found[name]).replace("\n", "").split(","):
            if word := entry.strip():
                member, _, given = word.partition(" = ")
                number = int(given) if given else number
                numbers[member] = number
                number += 1
        assert {member.name: member.value for member in enum} == numbers, name
    constants = dict(re.findall(r"(\w+)(?:\{| = )(\d+U? << \d+|\d+)(?:U?\}|U?);", text))
    for name in ("MAX_NUM_SEGS", "MAX_NUM_RX_QUEUES", "MAX_INTERFACES", "MEM_ACCESS_RDMA_WRITE"):
        value = constants[name].replace("U", "").split(" << ")
        wanted = int(value[0]) << int(value[1]) if len(value) == 2 else int(value[0])
        assert getattr(compat, name) == wanted


def test_words() -> None:
    assert compat.engine_type_from_string("ibverbs") == compat.EngineType.RDMA
    assert compat.engine_type_from_string("dpdk") == compat.EngineType.DPDK
    assert compat.engine_type_to_string(compat.EngineType.RDMA) == "rdma"
    for unknown in ("", "unknown", "other", "DPDK"):
        with pytest.raises(ValueError, match="accepted are default, dpdk"):
            compat.engine_type_from_string(unknown)
    assert compat.stream_type_from_string("raw") == compat.StreamType.RAW
    assert compat.stream_type_from_string("RAW") == compat.StreamType.INVALID
    assert compat.socket_protocol_from_string("sctp") == compat.SocketProtocol.INVALID
    assert compat.socket_protocol_to_string(compat.SocketProtocol.ROCE) == "roce"
    assert compat.reorder_data_type_from_string("bf16") == compat.ReorderDataType.BF16
    assert compat.reorder_data_type_from_string("same") == compat.ReorderDataType.INVALID
    assert compat.reorder_data_type_to_string(compat.ReorderDataType.SAME) == "same"
    assert compat.reorder_endianness_from_string("network") == compat.ReorderEndianness.NETWORK
    assert compat.reorder_endianness_to_string(compat.ReorderEndianness.HOST) == "host"
    assert compat.log_level_from_string("WARN") == compat.LogLevel.WARN
    assert compat.log_level_to_string(compat.LogLevel.OFF) == "off"
    with pytest.raises(RuntimeError, match="accepted are trace"):
        compat.log_level_from_string("loud")
    for name in ("stream_type", "engine_type", "log_level", "socket_protocol"):
        with pytest.raises(ValueError, match="99"):
            getattr(compat, f"{name}_to_string")(99)


def server(**changes: Any) -> compat.NetworkConfig:
    """Return a UDP server whose socket has these members."""
    status, config = compat.parse_network_config_from_yaml_string("""
version: 1
master_core: 0
stream_type: socket
memory_regions:
- {name: buffers, kind: host, num_bufs: 64, buf_size: 2048}
interfaces:
- name: server
  address: 127.0.0.1
  socket_config: {mode: server, local_addr: "udp://127.0.0.1:5000"}
  rx: {queues: [{name: in, id: 0, cpu_core: any, batch_size: 8, memory_regions: [buffers]}]}
""")
    assert status == Status.SUCCESS
    for name, value in changes.items():
        setattr(config.interfaces[0].socket, name, value)
    return config


@pytest.mark.parametrize("protocol", ["UDP", "TCP"])
def test_endpoints_in_parts_have_the_protocol_of_the_configuration(protocol: str) -> None:
    config = server(local_addr="")
    config.common.protocol = compat.SocketProtocol[protocol]
    keys = load_config(to_keys(config)).to_dict()["daqiri"]["cfg"]
    address = keys["interfaces"][0]["socket_config"]["local_addr"]
    assert address == f"{protocol.lower()}://127.0.0.1:5000"


def test_an_rdma_scheme_is_roce() -> None:
    config = server(local_addr="rdma://127.0.0.1:5000")
    config.common.protocol = compat.SocketProtocol.ROCE
    config.common.engine = config.common.engine_type = compat.EngineType.RDMA
    assert to_keys(config)["interfaces"][0]["socket_config"]["local_addr"].startswith("rdma://")


def refusal(config: compat.NetworkConfig) -> str:
    assert compat.daqiri_init(config) == Status.INVALID_PARAMETER
    return compat.last_error()


def test_what_contradicts_itself_is_refused_with_both_values() -> None:
    text = refusal(server(local_port=45999))
    assert "found 45999 with local_addr: udp://127.0.0.1:5000" in text
    text = refusal(server(local_ip="127.0.0.2"))
    assert "found '127.0.0.2' with local_addr: udp://127.0.0.1:5000" in text

    config = server()
    config.common.protocol = compat.SocketProtocol.TCP
    text = refusal(config)
    assert "TCP" in text and "interfaces[0].socket.local_addr has scheme 'udp'" in text

    config = server()
    config.common.engine_type = compat.EngineType.DPDK
    text = refusal(config)
    assert "SOCKET" in text and "DPDK" in text and "the same engine in both" in text

    config = server()
    config.memory_regions["buffers"].name = "other"
    assert "memory_regions['buffers'].name is 'other'" in refusal(config)


def test_members_of_another_class_are_a_status() -> None:
    config = server()
    mode: Any = "RX"
    config.interfaces[0].roce.transport_mode = mode
    assert "transport_mode: found 'RX'" in refusal(config)

    for change, path in (
        ({"seq_batch_number": None}, "seq_batch_number is None"),
        ({"seq_batch_number.batch_number": 3}, "seq_batch_number.batch_number is 3"),
        ({"seq_batch_number.sequence_number": "x"}, "seq_batch_number.sequence_number is 'x'"),
    ):
        config = server()
        plan = compat.ReorderConfig(method=compat.ReorderMethod.SEQ_BATCH_NUMBER)
        for names, value in change.items():
            *owners, name = names.split(".")
            owner: Any = plan
            for each in owners:
                owner = getattr(owner, each)
            setattr(owner, name, value)
        config.interfaces[0].rx.reorder_configs = [plan]
        assert f"rx.reorder_configs[0].{path}" in refusal(config)
