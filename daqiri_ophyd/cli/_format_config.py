"""Text of the configuration that makes frames of a packet format."""

import ipaddress
import json
import math

from ..simulate import PacketField, PacketFormat

__all__ = ["configuration_text"]

# Around a UDP payload: Ethernet, two VLAN tags, IPv6 and UDP.
_AROUND = 70
_PACKETS_BYTES, _FRAMES_BYTES = 32 << 20, 128 << 20

_TEXT = """\
# Frames of the packets that {file} describes.
#
# - All keys with their defaults: daqiri-ophyd config show
# - Completion in an editor: daqiri-ophyd config schema > daqiri-schema.json, and as the first line
#   of this file: # yaml-language-server: $schema=daqiri-schema.json
daqiri:
  cfg:
    version: 1
    stream_type: {stream_type}
{engine}    master_core: 0
    log_level: warn

    memory_regions:
    - name: packets  # those that wait to be read; a packet has {packet} bytes
      kind: host
      num_bufs: {packets}
      buf_size: {packet_buffer}
    - name: frames  # those that are open, or wait for a file or a program
      kind: host
      num_bufs: {frames}
      buf_size: {frame_buffer}  # one frame

    interfaces:
    - name: {name}{attribute}
{address}      rx:
{isolation}        queues:
        - name: rx_q0
          id: 0
          cpu_core: any  # a core that does nothing else is better
          batch_size: 128
          timeout_us: 1000
          memory_regions: [packets]
{flex}        flows:
{flows}
        reorder_configs:
        - name: images  # the detector daq.{name}.frames.images
          reorder_type: cpu
          memory_region: frames
          flow_ids: [{flow_ids}]
{stride}          payload_base: udp_payload
          payload_byte_offset: {header_bytes}  # after the header
{payload}          timeout_us: 1000000  # a frame whose last packets do not come is closed after 1 s
          # window: 4  # frames that are open at once: more if modules or packets overtake others
          # fill: 0  # value of pixels that did not arrive
{types}          frame: {{shape: {shape}, dtype: {dtype}}}
          method:
{method}
"""


def configuration_text(form: PacketFormat, file: str) -> str:
    """
    Return a configuration, as YAML with comments, that makes frames of these packets.

    Parameters
    ----------
    form : PacketFormat
        The packets.
    file : str
        Name of their description.
    """
    raw = form.on_interface
    packet = form.header_bytes + form.payload_bytes
    buffer = -(-(packet + _AROUND) // 64) * 64
    frame = math.prod(form.shape) * form.dtype.itemsize
    dtype = form.dtype.name
    return _TEXT.format(
        file=file,
        name=form.name,
        # Others have an attribute with another name.
        attribute=f"  # daq.{form.name}" if form.name.isidentifier() else "",
        stream_type="raw" if raw else "socket",
        engine="    engine: packet\n" if raw else "",
        packet=packet,
        packets=min(max(_PACKETS_BYTES // buffer, 1024), 16384),
        packet_buffer=buffer,
        frames=min(max(_FRAMES_BYTES // frame, 8), 64),
        frame_buffer=frame,
        address=_address(form),
        isolation="        flow_isolation: true  # other packets are not received\n" if raw else "",
        flex=_flex_items(form),
        flows="\n".join(
            f"        - {{name: {name}, id: {number}, match: {{{match}}}, "
            "action: {type: queue, id: 0}}"
            for number, (name, match) in enumerate(_flows(form), 1)
        ),
        flow_ids=", ".join(str(number) for number in range(1, form.modules + 1)),
        stride=f"          flow_stride: {form.packets}  # packets of a module, in the order of "
        "flow_ids\n"
        if form.modules > 1
        else "",
        header_bytes=form.header_bytes,
        payload=_payload(form) + _conditions(form),
        types=_types(form, dtype),
        shape=list(form.shape),
        dtype=dtype,
        method=_method(form),
    )


def _address(form: PacketFormat) -> str:
    if form.on_interface:
        # A name may be a number, or begin with a sign of YAML's; JSON is YAML.
        return f"      address: {json.dumps(form.address)}  # the network interface\n"
    host = form.address
    if ipaddress.ip_address(host).version == 6:
        host = f"[{host}]"
    return (
        f"      address: {form.address!r}\n"
        "      socket_config:\n"
        "        mode: server\n"
        f"        local_addr: 'udp://{host}:{form.ports[0]}'  # 0.0.0.0: any address of this host\n"
    )


def _flows(form: PacketFormat) -> list[tuple[str, str]]:
    """Return name and conditions of the flow of each module."""
    port = f"udp_dst: {form.ports[0]}" if form.on_interface else ""
    how = form.modules_by
    if how == "nothing":
        return [("pixels", port)]
    if how == "port":
        matches = [f"udp_dst: {each}" for each in form.ports]
    elif how == "source_port":
        matches = [
            ", ".join(filter(None, (port, f"udp_src: {each}"))) for each in form.source_ports
        ]
    else:
        field = _field(form, "module")
        mask = _word(field, 2**field.width - 1)
        matches = [
            f"flex_item_id: 1, val: {_word(field, field.first + module):#x}, mask: {mask:#x}"
            for module in range(form.modules)
        ]
    return [(f"module{number}", match) for number, match in enumerate(matches)]


def _field(form: PacketFormat, role: str) -> PacketField:
    return next(field for field in form.header if field.role == role)


def _word(field: PacketField, number: int) -> int:
    """Return the 32-bit word of the header that has only this number of the field."""
    if field.byte_order == "little":
        number = int.from_bytes(number.to_bytes(field.width // 8, "little"), "big")
    return number << (32 - (field.offset + field.width)) % 32


def _flex_items(form: PacketFormat) -> str:
    if form.modules_by != "field":
        return ""
    first = _field(form, "module").offset // 32 * 4
    return (
        "        flex_items:  # the 32-bit word of the header with the module's number\n"
        f"        - {{name: module, id: 1, udp_dst_port: {form.ports[0]}, offset: {first}}}\n"
    )


def _payload(form: PacketFormat) -> str:
    # A byte offset tells where a short packet belongs.
    if form.last_bytes == form.payload_bytes or form.numbered_by == "offset":
        return ""
    whose = "of a module " if form.modules > 1 else ""
    return (
        f"          payload_bytes: {form.payload_bytes}  # the last packet {whose}in a frame has "
        f"{form.last_bytes}\n"
    )


def _conditions(form: PacketFormat) -> str:
    conditions = []
    for field in form.header:
        if field.required:
            offset, width, order = field.bits(field.width) or (0, 0, "")
            little = ", byte_order: little" if order == "little" else ""
            conditions.append(
                f"          - {{bit_offset: {offset}, bit_width: {width}{little}, "
                f"base: udp_payload, equal: {field.value:#x}}}\n"
            )
    if not conditions:
        return ""
    return "          conditions:  # other packets are left out, and counted\n" + "".join(
        conditions
    )


def _types(form: PacketFormat, dtype: str) -> str:
    big = form.byte_order == "big" and form.pixels not in ("int8", "uint8")
    if not form.is_packed and not big and form.pixels == dtype:
        return ""
    order = f", packing: {form.packing}" if form.is_packed else ""
    if big and not form.is_packed:
        order = ", endianness: network"
    # Plans name floating-point types otherwise.
    types = [name.replace("float", "fp") for name in (form.pixels, dtype)]
    return f"          data_types: {{input_type: {types[0]}, output_type: {types[1]}{order}}}\n"


def _number(form: PacketFormat, role: str, count: int | None = None) -> str:
    """Return the bit field of the lowest bits of a field; None: as many as a plan can read."""
    field = _field(form, role)
    offset, width, order = field.bits(count or field.most_bits) or (0, 0, "")
    order = ", byte_order: little" if order == "little" else ""
    low = f"  # the lowest of {field.width} bits" if width < field.width else ""
    return f"{{bit_offset: {offset}, bit_width: {width}{order}, base: udp_payload}}{low}"


def _method(form: PacketFormat) -> str:
    count = form.modules * form.packets
    how = form.numbered_by
    if how == "offset":
        keys = {
            "batch_number": _number(form, "frame_number"),
            "byte_offset": _number(form, "byte_offset"),
            "batch_bytes": form.frame_bytes,
        }
        return _lines("batch_byte_offset", keys)
    if how in ("sequence", "single"):
        role = "sequence_number" if how == "sequence" else "frame_number"
        keys = {"sequence_number": _number(form, role), "packets_per_batch": count}
        if how == "sequence" and (first := _field(form, role).first):
            keys["first_packet"] = first
        return _lines("seq_packets_per_batch", keys)
    keys: dict[str, object] = {"batch_number": _number(form, "frame_number")}
    if how == "low_bits":
        keys["packet_number"] = _number(form, "sequence_number", form.packets.bit_length() - 1)
    else:
        keys["packet_number"] = _number(form, "packet_number")
        if first := _field(form, "packet_number").first:
            keys["first_packet"] = first
    return _lines("batch_packet_number", keys | {"packets_per_batch": count})


def _lines(method: str, keys: dict[str, object]) -> str:
    return "\n".join(
        [f"            {method}:", *(f"              {key}: {each}" for key, each in keys.items())]
    )
