"""Text of the configuration that makes frames of a packet format."""

import ipaddress
import json
import math
from textwrap import indent

from ._packet_format import PacketField, PacketFormat

__all__ = ["configuration_text"]

# Around a UDP payload: Ethernet, two VLAN tags, IPv6 and UDP.
_AROUND = 70
_PACKETS_BYTES, _FRAMES_BYTES = 32 << 20, 128 << 20
# Packets that wait to be read, of each port.
_PORT_PACKETS = 512
# More than the header, where packets say how much there is before the pixels.
_BEFORE_PIXELS = 1024

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
{interfaces}"""

_INTERFACE = """\
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
"""

_PLAN = """\
reorder_configs:
- name: images  # the detector daq.{owner}frames.images
  reorder_type: cpu
  memory_region: frames
  {flows}
{stride}  payload_base: udp_payload
  payload_byte_offset: {offset}  # after the header
{payload}  timeout_us: 1000000  # a frame whose last packets do not come is closed after 1 s
  # window: 4  # frames that are open at once: more if modules or packets overtake others
  # fill: 0  # value of pixels that did not arrive
{types}{frame}  method:
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
    offset = form.field("payload_offset")
    more = max(_BEFORE_PIXELS, offset.unit) if offset else 0
    buffer = -(-(packet + more + _AROUND) // 64) * 64
    frame = math.prod(form.shape) * form.dtype.itemsize
    sockets = len(form.ports) if form.has_sockets else 1
    plan = _plan(form)
    flows = _flows(form)
    if form.has_sockets:
        interfaces = "".join(
            _interface(form, f"{form.name}_{number}", port, [(name, match, number + 1)])
            for number, (port, (name, match)) in enumerate(zip(form.ports, flows, strict=True))
        )
        interfaces += f"\n{indent(plan, 4 * ' ')}"
    else:
        numbered = [(name, match, number) for number, (name, match) in enumerate(flows, 1)]
        interfaces = _interface(form, form.name, form.ports[0], numbered) + indent(plan, 8 * " ")
    return _TEXT.format(
        file=file,
        stream_type="raw" if raw else "socket",
        engine="    engine: packet\n" if raw else "",
        packet=packet,
        packets=max(min(max(_PACKETS_BYTES // buffer, 1024), 16384), _PORT_PACKETS * sockets),
        packet_buffer=buffer,
        frames=min(max(_FRAMES_BYTES // frame, 8), 64),
        frame_buffer=frame,
        interfaces=interfaces,
    )


def _interface(form: PacketFormat, name: str, port: int, flows: list[tuple[str, str, int]]) -> str:
    only = "        flow_isolation: true  # other packets are not received\n"
    return _INTERFACE.format(
        name=name,
        # Others have an attribute with another name.
        attribute=f"  # daq.{name}" if name.isidentifier() else "",
        address=_address(form, port),
        # Nobody reads packets of no flow; they would take the buffers of those of frames.
        isolation=only if form.on_interface or any(match for _, match, _ in flows) else "",
        flex=_flex_items(form),
        flows="\n".join(
            f"        - {{name: {name}, id: {number}, match: {{{match}}}, "
            "action: {type: queue, id: 0}}"
            for name, match, number in flows
        ),
    )


def _plan(form: PacketFormat) -> str:
    dtype = form.dtype.name
    if form.has_sockets:
        owner, numbers = "", range(form.modules)
        flows = ", ".join(f"{form.name}_{number}/module{number}" for number in numbers)
        flows = f"flows: [{flows}]"
    else:
        owner = f"{form.name}."
        flows = f"flow_ids: [{', '.join(str(number + 1) for number in range(form.modules))}]"
    whose = "flows" if form.has_sockets else "flow_ids"
    return _PLAN.format(
        owner=owner,
        flows=flows,
        stride=f"  flow_stride: {form.packets}  # packets of a module, in the order of {whose}\n"
        if form.modules > 1
        else "",
        offset=_offset(form),
        payload=_payload(form) + _conditions(form) + _columns(form),
        types=_types(form, dtype),
        frame=_frame(form, dtype),
        method=_method(form),
    )


def _offset(form: PacketFormat) -> int:
    field = form.field("payload_offset")
    return form.header_bytes - (field.first * field.unit if field else 0)


def _frame(form: PacketFormat, dtype: str) -> str:
    shape = f"shape: {list(form.shape)}"
    if form.layout is None:
        return f"  frame: {{{shape}, dtype: {dtype}}}\n"
    modules = form.layout.modules
    lines = [
        "frame:",
        f"  {shape}",
        f"  dtype: {dtype}",
        "  modules:  # where they are in the image",
    ]
    for key in ("shape", "tile", "chip", "chip_gap"):
        if pair := getattr(modules, key):
            lines.append(f"    {key}: {list(pair)}")
    lines.append("    positions:")
    for each in modules.positions:
        flip = f", flip: {each.flip}" if each.flip != "none" else ""
        rotate = f", rotate: {each.rotate}" if each.rotate else ""
        lines.append(f"    - {{origin: {list(each.origin)}{flip}{rotate}}}")
    return "".join(f"  {line}\n" for line in lines)


def _columns(form: PacketFormat) -> str:
    lines = [
        f"    {json.dumps(field.name)}: {{{_bits(field)}, from: {field.column}}}\n"
        for field in form.header
        if field.column
    ]
    if not lines:
        return ""
    return "  columns:  # numbers that go with a frame\n" + "".join(lines)


def _address(form: PacketFormat, port: int) -> str:
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
        f"        local_addr: 'udp://{host}:{port}'  # 0.0.0.0: any address of this host\n"
    )


def _flows(form: PacketFormat) -> list[tuple[str, str]]:
    """Return name and conditions of the flow of each module."""
    port = f"udp_dst: {form.ports[0]}" if form.on_interface else ""
    how = form.modules_by
    if how == "nothing":
        return [("pixels", port)]
    if how == "port":
        matches = [f"udp_dst: {each}" if form.on_interface else "" for each in form.ports]
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
    before = ""
    if (field := form.field("payload_offset")) is not None:
        unit = f", unit: {field.unit}" if field.unit > 1 else ""
        before = f"  payload_offset_field: {{{_bits(field)}{unit}}}  # and as much more\n"
    short = form.last_bytes != form.payload_bytes
    split = form.payload_bytes % form.group_bytes != 0
    # A byte offset tells where a short packet belongs.
    if form.numbered_by == "offset" or not (short or split or before):
        return before
    whose = "of a module " if form.modules > 1 else ""
    last = f"  # the last packet {whose}in a frame has {form.last_bytes}" if short else ""
    return f"{before}  payload_bytes: {form.payload_bytes}{last}\n"


def _conditions(form: PacketFormat) -> str:
    conditions = [
        f"  - {{{_bits(field)}, equal: {field.value:#x}}}\n"
        for field in form.header
        if field.required
    ]
    if not conditions:
        return ""
    return "  conditions:  # other packets are left out, and counted\n" + "".join(conditions)


def _bits(field: PacketField) -> str:
    """Return the keys of a bit field with the bits that a plan can read."""
    offset, width, order = field.bits(field.most_bits) or (0, 0, "")
    little = ", byte_order: little" if order == "little" else ""
    return f"bit_offset: {offset}, bit_width: {width}{little}, base: udp_payload"


def _types(form: PacketFormat, dtype: str) -> str:
    big = form.byte_order == "big" and form.pixels not in ("int8", "uint8")
    if not form.is_packed and not big and form.pixels == dtype:
        return ""
    order = f", packing: {form.packing}" if form.is_packed else ""
    if big and not form.is_packed:
        order = ", endianness: network"
    # Plans name floating-point types otherwise.
    types = [name.replace("float", "fp") for name in (form.pixels, dtype)]
    return f"  data_types: {{input_type: {types[0]}, output_type: {types[1]}{order}}}\n"


def _number(form: PacketFormat, role: str) -> str:
    """Return the bit field of a number."""
    field = _field(form, role)
    step = "" if field.step == 1 else f", step: {field.step or 'any'}"
    unit = "" if field.unit == 1 else f", unit: {field.unit}"
    low = f"  # the lowest of {field.width} bits" if field.most_bits < field.width else ""
    return f"{{{_bits(field)}{step}{unit}}}{low}"


def _method(form: PacketFormat) -> str:
    count = form.modules * form.packets
    how = form.numbered_by
    if how == "offset":
        keys: dict[str, object] = {
            "batch_number": _number(form, "frame_number"),
            "byte_offset": _number(form, "byte_offset"),
            "batch_bytes": form.frame_bytes,
        }
        return _lines("batch_byte_offset", keys)
    if how in ("sequence", "single"):
        role = "sequence_number" if how == "sequence" else "frame_number"
        keys = {"sequence_number": _number(form, role), "packets_per_batch": count}
        field = _field(form, role)
        if field.first and (how == "sequence" or field.step > 1):
            keys["first_packet"] = field.first
        return _lines("seq_packets_per_batch", keys)
    keys = {"batch_number": _number(form, "frame_number")}
    role = "sequence_number" if how == "running" else "packet_number"
    keys["packet_number"] = _number(form, role)
    if first := _field(form, role).first:
        keys["first_packet"] = first
    keys["packets_per_batch"] = count
    if how == "running" and form.runs_on:
        keys["running"] = "true  # the number goes on from frame to frame"
    return _lines("batch_packet_number", keys)


def _lines(method: str, keys: dict[str, object]) -> str:
    return "\n".join([f"    {method}:", *(f"      {key}: {each}" for key, each in keys.items())])
