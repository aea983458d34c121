"""JSON Schema of configurations; a test compares it with the parser, key by key."""

from collections.abc import Sequence
from typing import Any

__all__ = ["config_schema"]

Schema = dict[str, Any]

_32_BITS = 2**32 - 1
_64_BITS = 2**64 - 1
_MOST_FLOW_ID = 8_388_607
_IPV4 = r"^(\d{1,3}\.){3}\d{1,3}$"


def _integer(first: int, last: int, meaning: str, default: int | None = None) -> Schema:
    made: Schema = {"type": "integer", "minimum": first, "maximum": last, "description": meaning}
    return made if default is None else made | {"default": default}


def _word(words: Sequence[str], meaning: str, default: str | None = None) -> Schema:
    made: Schema = {"enum": list(words), "description": meaning}
    return made if default is None else made | {"default": default}


def _flag(meaning: str, default: bool = False) -> Schema:
    return {"type": "boolean", "description": meaning, "default": default}


def _text(meaning: str) -> Schema:
    return {"type": "string", "minLength": 1, "description": meaning}


def _list(items: Schema, meaning: str, least: int = 0) -> Schema:
    # A key without a value is an empty list or map.
    kinds = "array" if least else ["array", "null"]
    return {"type": kinds, "items": items, "description": meaning, "minItems": least}


def _ref(name: str, meaning: str) -> Schema:
    # In draft 7, keys beside $ref are ignored.
    return {"allOf": [{"$ref": f"#/definitions/{name}"}], "description": meaning}


def _each(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


def _map(properties: dict[str, Schema], required: Sequence[str] = (), **more: Any) -> Schema:
    return {
        "type": "object" if required else ["object", "null"],
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def config_schema() -> Schema:
    """
    Return the JSON Schema (draft 7) of a configuration file.

    It has the keys and values that do not depend on others. What else is wrong,
    ``daqiri-ophyd config check`` finds.
    """
    top, required = _top(), ["version", "master_core", "stream_type", "interfaces"]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Configuration of daqiri-ophyd",
        "type": "object",
        # Other keys at the root belong to other programs.
        "if": {"required": ["daqiri"]},
        "then": {"properties": {"daqiri": _map({"cfg": _each("configuration")}, ["cfg"])}},
        "else": {"properties": top, "required": required},
        "definitions": {
            **_forms(),
            "configuration": _map(top, required),
            "memory_region": _memory_region(),
            "interface": _interface(),
            "socket_config": _socket_config(),
            "roce_config": _map({"transport_mode": _word(("RC", "UC", "UD"), "transport", "RC")}),
            "rx": _rx(),
            "rx_queue": _queue("receive"),
            "flex_item": _flex_item(),
            "rx_flow": _flow("rx"),
            "rx_match": _match("rx"),
            "ecpri": _ecpri(),
            "rx_action": _rx_action(),
            "tx": _tx(),
            "tx_queue": _queue("transmit"),
            "tx_flow": _flow("tx"),
            "tx_match": _match("tx"),
            "tx_action": _tx_action(),
            "vlan": _map(_vlan(), ["vlan_id"]),
            "tunnel": _tunnel(),
            "reorder_config": _reorder_config(_flow_ids()),
            "joint_reorder_config": _reorder_config(_flow_names()),
            "data_types": _data_types(),
            "method": _method(),
            **_methods(),
            "batch_number": _bit_field({"step": _ref("batch_step", "difference of two numbers")}),
            "packet_number": _bit_field({"step": _step()}),
            "byte_offset": _bit_field({"unit": _integer(1, _32_BITS, "bytes of one", 1)}),
            "condition": _condition(),
            "column": _column(),
            "frame": _frame(),
            "modules": _modules(),
            "position": _position(),
        },
    }


def _forms() -> dict[str, Schema]:
    """Return values with a format of their own."""
    scheme = r"^(udp|tcp)://.+:\d+$|^(roce|rdma)://.+$"
    return {
        "batch_step": {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": _32_BITS},
                {"enum": ["any"]},
            ]
        },
        "core": {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 8191},
                {"enum": ["any"]},
            ]
        },
        "endpoint": {"type": "string", "pattern": scheme},
        "ip": {"type": "string", "pattern": r"^[0-9a-fA-F:.]+(%\S+)?$"},
        "ipv4": {"type": "string", "pattern": _IPV4},
        "mac": {"type": "string", "pattern": "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$"},
        "name": {"type": "string", "minLength": 1, "maxLength": 200, "not": {"enum": [".", ".."]}},
        "ports": {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 65535},
                {"type": "string", "pattern": r"^\d+(-\d+)?$"},
            ]
        },
        "rotation": {"enum": [0, 90, 180, 270]},
        "store": {"type": "string", "pattern": r"^(s3|gs|az)://[A-Za-z0-9._-]+(/[^?#]*)?$"},
        "real": {"anyOf": [{"type": "number"}, {"enum": ["nan"]}]},
    }


def _top() -> dict[str, Schema]:
    levels = ("trace", "debug", "info", "warn", "error", "critical", "off")
    return {
        "version": _integer(1, 1, "version of this format"),
        "master_core": _integer(0, 8191, "core of the housekeeping threads, not of a poller"),
        "stream_type": _word(("raw", "socket"), "Ethernet frames, or sockets and RDMA"),
        # Modules can add engines.
        "engine": _text("I/O engine: dpdk, ibverbs, socket, packet, default, or that of a module"),
        "log_level": _word([*levels, *(each.upper() for each in levels)], "lowest level", "warn"),
        "debug": _flag("no effect; use log_level: debug"),
        "loopback": _word(("", "sw"), "sw: transmit queues feed receive queues in memory", ""),
        "loopback_drops": _flag("loopback: drop packets that do not fit; else senders wait"),
        "tx_meta_buffers": _integer(1, 1_048_576, "bursts of all transmit queues", 256),
        "rx_meta_buffers": _integer(1, 1_048_576, "bursts of each receive queue", 256),
        "ship_to": _ref("store", "object store to which devices upload recorded files"),
        "memory_regions": _list(_each("memory_region"), "memory of packets and frames"),
        "interfaces": _list(_each("interface"), "ports", 1),
        "reorder_configs": _list(
            _each("joint_reorder_config"), "reorder plans of packets from several interfaces"
        ),
    }


def _memory_region() -> Schema:
    return _map(
        {
            "name": _ref("name", "unique"),
            "kind": _word(
                ("huge", "device", "host_pinned", "host"),
                "host: ordinary memory; huge: reserved hugepages; host_pinned: pinned for the "
                "GPU; device: memory of a GPU",
            ),
            "affinity": _integer(0, 1023, "the GPU of kind device, otherwise the NUMA node", 0),
            "access": _list(
                _word(("local", "rdma_read", "rdma_write"), "access that RDMA may have"),
                "access that RDMA may have",
                1,
            ),
            "num_bufs": _integer(1, 2**31, "number of buffers"),
            "buf_size": _integer(1, _32_BITS, "bytes of a buffer"),
            "owned": _flag("the engine allocates it", True),
        },
        ["name", "kind", "num_bufs", "buf_size"],
    )


def _interface() -> Schema:
    return _map(
        {
            "name": _ref("name", "name of the port, unique"),
            "address": _text("PCI address, network interface, IP address, or loopback"),
            "socket_config": _ref("socket_config", "the socket, for stream_type: socket"),
            "roce_config": _ref("roce_config", "for roce:// addresses"),
            "rx": _ref("rx", "receive side"),
            "tx": _ref("tx", "transmit side"),
        },
        ["name", "address"],
    )


def _socket_config() -> Schema:
    return _map(
        {
            "mode": _word(("client", "server"), "side"),
            "local_addr": _ref("endpoint", "udp://ip:port, tcp://ip:port or roce://ip[:port]"),
            "local_ip": _ref("ip", "older spelling of local_addr"),
            "local_port": _integer(1, 65535, "older spelling of local_addr"),
            "remote_addr": _ref("endpoint", "udp://ip:port, tcp://ip:port or roce://ip[:port]"),
            "remote_ip": _ref("ip", "older spelling of remote_addr"),
            "remote_port": _integer(1, 65535, "older spelling of remote_addr"),
            "max_payload_size": _integer(0, _32_BITS, "bytes; 0: as much as buffers allow", 0),
            "max_burst_interval_ms": _integer(0, _32_BITS, "ms", 0),
            "min_ipg_ns": _integer(0, _32_BITS, "shortest gap between packets, ns", 0),
            "retry_connect_s": _integer(-(2**31), 86400, "s between attempts to connect", 1),
        },
        ["mode"],
    )


def _rx() -> Schema:
    return _map(
        {
            "flow_isolation": _flag("only packets that match a flow are received"),
            "hardware_timestamps": _flag("receive times of the network card"),
            "dynamic_flow_capacity": _integer(
                0, 8_388_608, "flows added at run time that may exist at once; 0: the most", 0
            ),
            "filter": _text("engine packet: pcap-filter expression of packets to receive"),
            "receive_path": _word(
                ("af_packet", "af_xdp", "auto"), "engine packet: how frames are received",
                "af_packet",
            ),
            "queues": _list(_each("rx_queue"), "receive queues", 1),
            "flex_items": _list(_each("flex_item"), "fields of custom protocols, for match"),
            "flows": _list(_each("rx_flow"), "which packets go to which queue"),
            "reorder_configs": _list(_each("reorder_config"), "reorder plans: packets to frames"),
        },
        ["queues"],
    )  # fmt: skip


def _tx() -> Schema:
    return _map(
        {
            "accurate_send": _flag("the kernel or hardware keeps launch times"),
            "queues": _list(_each("tx_queue"), "transmit queues", 1),
            "flows": _list(_each("tx_flow"), "changes of packets: tags, tunnels"),
        },
        ["queues"],
    )


def _queue(side: str) -> Schema:
    receives = side == "receive"
    properties = {
        "name": _ref("name", "unique"),
        "id": _integer(0, 65535, "unique"),
        "poll_mode": _word(
            ("indirect", "direct"), "direct: no thread; the caller does the work", "indirect"
        ),
        "cpu_core": _ref("core", "core of its thread; any: not pinned"),
        "batch_size": _integer(1, 1_048_576, "packets in a burst"),
        "memory_regions": {
            **_list({"type": "string"}, "one: whole packets; two: headers, then data"),
            "maxItems": 4,
        },
        "timeout_us": _integer(0, _32_BITS, "a burst that is not full is delivered after this", 0),
    }
    with_thread = [
        {"required": ["cpu_core", "batch_size"]},
        {"properties": {"poll_mode": {"const": "direct"}}, "required": ["poll_mode"]},
    ]
    if receives:
        properties["split_boundary"] = _integer(
            0, 2**31 - 1, "bytes of a packet in the first of two regions; 0: its buffer", 0
        )
        return _map(properties, ["name", "id"], anyOf=with_thread)
    words = _word(("tx_eth_src",), "fill in the source MAC")
    properties["offloads"] = _list(words, "work of the engine")
    properties["pacing_mbps"] = _integer(0, _32_BITS, "limit, Mb/s; 0: none", 0)
    properties["realtime_priority"] = _integer(0, 99, "SCHED_FIFO priority; 0: ordinary", 0)
    return _map(properties, ["name", "id"], anyOf=with_thread)


def _flex_item() -> Schema:
    return _map(
        {
            "name": _ref("name", "unique"),
            "id": _integer(0, 2**31 - 1, "unique on the interface"),
            "offset": _integer(0, 60, "bytes after the UDP header") | {"multipleOf": 4},
            "udp_dst_port": _integer(1, 65535, "UDP port of packets that have it"),
        },
        ["name", "id", "offset", "udp_dst_port"],
    )


def _flow(side: str) -> Schema:
    properties = {
        "name": _ref("name", "unique"),
        "id": _integer(0, _MOST_FLOW_ID, "of its packets; unique, except 0: no match"),
        "action": _ref(f"{side}_action", "one action"),
        "actions": _list(_each(f"{side}_action"), "several actions"),
        "match": _ref(f"{side}_match", "conditions; default: any packet"),
    }
    if side == "tx":
        return _map(properties, ["name", "id"])
    either = [{"required": ["action"]}, {"required": ["actions"]}]
    return _map(properties, ["name", "id"], anyOf=either)


def _match(side: str) -> Schema:
    flex = {
        "flex_item_id": _integer(0, 2**31 - 1, "id of a flex item"),
        "val": _integer(0, _32_BITS, "its word, with the mask"),
        "mask": _integer(0, _32_BITS, "bits that are compared", _32_BITS),
    }
    return _map(
        {
            "udp_src": _ref("ports", "source port, or LOW-HIGH"),
            "udp_dst": _ref("ports", "destination port, or LOW-HIGH"),
            "ipv4_len": _integer(0, 65535, "total length"),
            "ipv4_src": _ref("ipv4", "source address"),
            "ipv4_dst": _ref("ipv4", "destination address"),
            **(flex if side == "rx" else {}),
            "ecpri": _ref("ecpri", "eCPRI message"),
        }
    )


def _ecpri() -> Schema:
    return _map(
        {
            "msg_type": _integer(0, 255, "message type"),
            "pc_id": _integer(0, 65535, "PC_ID"),
            "rtc_id": _integer(0, 65535, "RTC_ID"),
        }
    )


def _rx_action() -> Schema:
    return _map(
        {
            "type": _word(("queue", "vlan_pop", "tunnel_decap"), "what is done"),
            "id": _integer(0, 65535, "queue"),
            "ids": _list(
                _integer(0, 65535, "queue"), "queues over which packets are distributed", 1
            ),
            "tunnel_type": _word(("vxlan", "gre", "nvgre"), "type of tunnel"),
            "tunnel": _ref("tunnel", "tunnel to remove"),
        },
        ["type"],
    )


def _tx_action() -> Schema:
    return _map(
        {
            "type": _word(("vlan_push", "tunnel_encap"), "what is done"),
            **_vlan(),
            "vlan": _ref("vlan", "tag to add"),
            "tunnel_type": _word(("vxlan", "gre", "nvgre"), "type of tunnel"),
            "tunnel": _ref("tunnel", "tunnel to add"),
        },
        ["type"],
    )


def _vlan() -> dict[str, Schema]:
    return {
        "vlan_id": _integer(0, 4095, "VLAN"),
        "pcp": _integer(0, 7, "priority", 0),
        "dei": _integer(0, 1, "drop eligible", 0),
        "ethertype": _integer(1, 65535, "of the tag", 0x8100),
    }


def _tunnel() -> Schema:
    return _map(
        {
            "type": _word(("vxlan", "gre", "nvgre"), "type of tunnel"),
            "outer_eth_src": _ref("mac", "source MAC"),
            "outer_eth_dst": _ref("mac", "destination MAC"),
            "outer_ipv4_src": _ref("ipv4", "source address"),
            "outer_ipv4_dst": _ref("ipv4", "destination address"),
            "outer_ipv4_ttl": _integer(1, 255, "time to live", 64),
            "outer_ipv4_tos": _integer(0, 255, "type of service", 0),
            "vni": _integer(0, 0xFFFFFF, "network of VXLAN"),
            "outer_udp_src": _integer(0, 65535, "source port of VXLAN; 0: by the packet", 0),
            "outer_udp_dst": _integer(1, 65535, "destination port of VXLAN", 4789),
            "gre_protocol": _integer(1, 65535, "protocol of GRE", 0x0800),
            "tni": _integer(0, 0xFFFFFF, "network of NVGRE"),
            "flow_id": _integer(0, 255, "flow of NVGRE", 0),
        }
    )


def _flow_ids() -> dict[str, Schema]:
    return {"flow_ids": _list(_integer(0, _MOST_FLOW_ID, "flow"), "flows of its packets", 1)}


def _flow_names() -> dict[str, Schema]:
    return {"flows": _list(_text("interface/flow"), "flows of its packets, of any interface", 1)}


def _reorder_config(flows: dict[str, Schema]) -> Schema:
    cores = {"anyOf": [_each("core"), {"type": "array", "items": _each("core")}]}
    keys = _mode_keys()
    modes: Schema = {
        "type": ["object", "null"],
        "propertyNames": _each("name"),
        "additionalProperties": _map(keys),
        "description": "variants of the plan, by name: the keys that differ",
    }
    return _map(
        {
            "name": _ref("name", "unique among the plans of its list"),
            "reorder_type": _word(("gpu", "cpu"), "where payloads are moved and converted"),
            "memory_region": _text("of the frames"),
            **flows,
            **keys,
            "columns": {
                "type": ["object", "null"],
                "propertyNames": {"pattern": "^[A-Za-z][A-Za-z0-9_]{0,63}$"},
                "additionalProperties": _each("column"),
                "maxProperties": 64,
                "description": "numbers in packets that go with their frame, by their names",
            },
            "cpu_core": cores | {"description": "cores of threads that move payloads"},
            "modes": modes,
        },
        ["name", "reorder_type", "memory_region", *flows, "method"],
    )


def _mode_keys() -> dict[str, Schema]:
    """Return the keys in which a mode of a plan may differ from it."""
    return {
        "payload_byte_offset": _integer(0, _32_BITS, "where the payload begins", 0),
        "data_types": _ref("data_types", "conversion of elements; default: none"),
        "method": _ref("method", "how the frame of a packet, and its place, are found"),
        "payload_offset_field": _ref(
            "byte_offset", "number in the packet that is added to payload_byte_offset"
        ),
        "payload_bytes": _integer(
            1, _32_BITS, "payload of a packet; default: as the frame, or the packets, have it"
        ),
        "conditions": _list(_each("condition"), "a packet fulfils all of them"),
        "payload_base": _word(
            ("packet", "udp_payload"), "from where payload_byte_offset counts", "packet"
        ),
        "window": _integer(1, 64, "frames that are open at once; default: 2 or more"),
        "timeout_us": _integer(0, _32_BITS, "after which a frame is closed; 0: none", 0),
        "fill": _ref("real", "value of missing elements"),
        "flow_stride": _integer(1, _32_BITS, "packets of each flow in a frame"),
        "frame": _ref("frame", "shape and type of a frame"),
    }


def _data_types() -> Schema:
    integers = tuple(
        f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 10, 12, 14, 16, 24, 32, 64)
    )
    inputs = (*integers, "fp16", "fp32", "fp64")
    outputs = ("fp16", "bf16", "fp32", "fp64", "int32", "int8", "int16", "int64")
    outputs += ("uint8", "uint16", "uint32", "uint64")
    orders = ("host", "network")
    return _map(
        {
            "input_type": _word(inputs, "type in packets"),
            "output_type": _word(outputs, "type in frames"),
            "endianness": _word(orders, "network: elements are big-endian in packets", "host"),
            "packing": _word(
                ("msb", "lsb"),
                "of 4, 10, 12 and 14 bits: the bit of a byte that elements begin with",
                "msb",
            ),
            "input": _word(inputs, "input_type"),
            "output": _word(outputs, "output_type"),
            "input_endianness": _word(orders, "endianness"),
        }
    )


def _method() -> Schema:
    meanings = {
        "seq_batch_number": "a number that goes on, and the frame number",
        "seq_packets_per_batch": "a number that goes on",
        "batch_packet_number": "frame number, and packet number in the frame",
        "batch_byte_offset": "frame number, and byte offset in the frame",
    }
    each = {name: _ref(name, meaning) for name, meaning in meanings.items()}
    return _map(each, minProperties=1, maxProperties=1)


def _methods() -> dict[str, Schema]:
    batch = _ref("batch_number", "frame number")
    sequence = _ref("packet_number", "number that goes on")
    packets = {"packets_per_batch": _integer(1, _32_BITS, "packets of a frame")}
    number = _integer(0, _32_BITS, "number, or offset, of a frame's first packet", 0)
    each = {key: value for key, value in number.items() if key != "description"}
    first = {
        "first_packet": {
            "anyOf": [each, {"type": "array", "items": each, "minItems": 1}],
            "description": f"{number['description']}; or one for each flow",
        }
    }
    running = {"running": _flag("packet numbers go on from frame to frame")}
    by_packet = {
        "batch_number": batch,
        "packet_number": _ref("packet_number", "number in the frame"),
        **packets,
        **running,
    }
    by_offset = {
        "batch_number": batch,
        "byte_offset": _ref("byte_offset", "position of the payload in the frame"),
        "batch_bytes": _integer(1, _32_BITS, "bytes of a frame in packets"),
    }
    made = {
        "seq_batch_number": {"sequence_number": sequence, "batch_number": batch},
        "seq_packets_per_batch": {"sequence_number": sequence, **packets},
        "batch_packet_number": by_packet,
        "batch_byte_offset": by_offset,
    }
    return {
        name: _map(keys | first, [key for key in keys if key not in running])
        for name, keys in made.items()
    }


def _bit_field(more: dict[str, Schema]) -> Schema:
    return _map(
        {
            "bit_offset": _integer(0, _32_BITS, "first bit"),
            "bit_width": _integer(1, 64, "bits"),
            "byte_order": _word(("big", "little"), "order of its bytes", "big"),
            "base": _word(("packet", "udp_payload"), "from where bit_offset counts", "packet"),
            **more,
        },
        ["bit_offset", "bit_width"],
    )


def _step() -> Schema:
    return _integer(1, _32_BITS, "difference of two numbers", 1)


def _condition() -> Schema:
    numbers = {
        "mask": "bits that count; default: all",
        "equal": "the number is this one",
        "at_least": "the number is this one or larger",
        "at_most": "the number is this one or smaller",
    }
    made = {name: _integer(0, _64_BITS, meaning) for name, meaning in numbers.items()}
    choice = [{"required": ["equal"]}, {"required": ["at_least"]}, {"required": ["at_most"]}]
    return _bit_field(made) | {"anyOf": choice}


def _column() -> Schema:
    meaning = "packet with the lowest position that came; sum of all; or a number for each packet"
    made = _word(("first", "sum", "packets"), meaning, "first")
    return _bit_field({"from": made})


def _frame() -> Schema:
    kinds = [f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")]
    floats = ["float16", "float32", "float64"]
    return _map(
        {
            "shape": _list(_integer(1, _32_BITS, "elements"), "shape", 1),
            "dtype": _word([*kinds, *floats], "numpy type; default: the output type"),
            "modules": _ref("modules", "modules of an image; default: pixels as they are sent"),
        },
        ["shape"],
    )


def _modules() -> Schema:
    def pair(meaning: str, least: int = 1) -> Schema:
        return {**_list(_integer(least, _32_BITS, "pixels"), meaning, 2), "maxItems": 2}

    return _map(
        {
            "shape": pair("rows and columns of a module, as it is sent"),
            "tile": pair("parts in which a module is sent, row after row; default: the module"),
            "chip": pair("rows and columns of a chip"),
            "chip_gap": pair("rows and columns between chips, which are not sent", 0),
            "positions": _list(_each("position"), "place of each module in the image", 1),
        },
        ["shape", "positions"],
    )


def _position() -> Schema:
    origin = _list(_integer(0, _32_BITS, "pixels"), "row and column of the upper left pixel", 2)
    flips = ("none", "rows", "columns", "both")
    return _map(
        {
            "origin": {**origin, "maxItems": 2},
            "flip": _word(flips, "reversed before the rotation", "none"),
            "rotate": _ref("rotation", "degrees counterclockwise") | {"default": 0},
        },
        ["origin"],
    )
