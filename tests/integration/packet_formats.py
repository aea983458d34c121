"""Descriptions of packets of any kind that a plan can make frames of, or nearly."""

import math
from typing import Any

from hypothesis import strategies as st

from daqiri_ophyd.simulate import PacketFormat, PacketFormatError, pixel_bits

Document = dict[str, Any]
PORT = 5005
# A frame must fit into the buffer of a socket, in which each packet takes some hundred bytes more.
_MOST_BYTES, _MOST_PACKETS = 4096, 128


@st.composite
def sizes(draw: st.DrawFn, modules: int) -> Document:
    """Keys of the frame, whose last packets may be shorter."""
    pixels = draw(st.sampled_from(PacketFormat.pixel_types))
    bits = pixel_bits(pixels)
    payload = draw(st.integers(1, 64)) * math.lcm(bits, 8) // 8
    most = max(1, min(_MOST_BYTES // payload, _MOST_PACKETS) // modules)
    packets = draw(st.integers(1, most) | st.sampled_from([2**n for n in range(most.bit_length())]))
    groups = payload * 8 // math.lcm(bits, 8)
    short = draw(st.just(0) | st.integers(0, groups - 1)) * math.lcm(bits, 8) // 8
    elements = modules * (packets * payload - short) * 8 // bits
    rows = draw(st.sampled_from([n for n in range(1, elements + 1) if elements % n == 0]))
    frame = draw(
        st.sampled_from([[elements], [rows, elements // rows], [rows, 1, elements // rows]])
    )
    keys: Document = {"pixels": pixels, "payload_bytes": payload, "frame": frame}
    if draw(st.booleans()):
        keys |= draw(images(elements))
    if bits % 8:
        keys["packing"] = draw(st.sampled_from(["msb", "lsb"]))
    return keys


@st.composite
def images(draw: st.DrawFn, elements: int) -> Document:
    """Keys of an image: modules one below the other, a row and two columns apart."""
    count = draw(st.sampled_from([n for n in (1, 2, 3) if elements % n == 0]))
    of_module = elements // count
    rows = draw(st.sampled_from([n for n in range(1, of_module + 1) if of_module % n == 0]))
    columns = of_module // rows
    layout: Document = {"shape": [rows, columns]}
    height, width = rows, columns
    if draw(st.booleans()) and rows % 2 == 0:
        layout |= {"chip": [rows // 2, columns], "chip_gap": [3, 1]}
        height += 3
    if draw(st.booleans()):
        tiles = [n for n in (1, 2, 3) if columns % n == 0]
        layout["tile"] = [rows, columns // draw(st.sampled_from(tiles))]
    layout["positions"] = [
        {
            "origin": [module * (height + 1), 2 * module],
            "flip": draw(st.sampled_from(["none", "rows", "columns", "both"])),
            "rotate": draw(st.sampled_from([0, 180])),
        }
        for module in range(count)
    ]
    return {"layout": layout, "frame": [count * (height + 1), width + 2 * count]}


@st.composite
def headers(draw: st.DrawFn, roles: list[str]) -> list[Document]:
    """Fields with the roles, of any size and order, and others between them."""
    fields = []
    for role in roles:
        of_bits = {"bits": draw(st.integers(1, 64))}
        field = {"role": role, **draw(st.just(of_bits) | st.builds(_bytes, st.integers(1, 8)))}
        if role != "byte_offset":
            field["first"] = draw(st.integers(0, 3))
        if role in ("packet_number", "sequence_number"):
            field["step"] = draw(st.sampled_from([1, 1, 2, 3]))
        elif role == "frame_number":
            field["step"] = draw(st.sampled_from([1, 1, 1, 2, 3, "any"]))
        elif role in ("byte_offset", "payload_offset"):
            field["unit"] = draw(st.sampled_from([1, 1, 2, 3]))
        fields.append(field)
    for _ in range(draw(st.integers(0, 3))):
        other = {"value": draw(st.integers(0, 255)), "required": draw(st.booleans())}
        if draw(st.booleans()):
            # With offsets, packets have no number in the frame.
            each = [] if "byte_offset" in roles else ["packets"]
            other["column"] = draw(st.sampled_from(["first", "sum", *each]))
        fields.append({"bytes": draw(st.integers(1, 9)), **other})
    fields = draw(st.permutations(fields))
    for number, field in enumerate(fields):
        field["name"] = f"field_{number}"
        if draw(st.booleans()):
            field["byte_order"] = draw(st.sampled_from(["big", "little"]))
    rest = -sum(field.get("bits", 0) for field in fields) % 8
    return [*fields, {"name": "rest", "bits": rest}] if rest else list(fields)


def _bytes(count: int) -> Document:
    return {"bytes": count}


ROLES = [
    *(["frame_number", role] for role in ("packet_number", "byte_offset", "sequence_number")),
    *(["sequence_number"], ["frame_number"]),
]


@st.composite
def documents(draw: st.DrawFn, engine: str) -> Document:
    """A description; most are accepted."""
    modules = draw(st.sampled_from([1, 1, 2, 3, 4]))
    document: Document = {
        **{"name": "any", "engine": engine, "modules": modules, "port": PORT},
        **draw(sizes(modules)),
    }
    document["byte_order"] = draw(st.sampled_from(["big", "little"]))
    roles = list(draw(st.sampled_from(ROLES)))
    if modules > 1:
        how = draw(st.sampled_from(["source", "port", "field"]))
        if how == "field":
            roles.append("module")
        elif how == "source":
            document["source_ports"] = f"40001-{40000 + modules}"
        else:
            document["port"] = f"{PORT}-{PORT + modules - 1}"
    if draw(st.sampled_from([False, False, True])):
        roles.append("payload_offset")
    document["header"] = draw(headers(roles))
    if any(field.get("required") for field in document["header"]):
        document |= {"leaders": draw(st.integers(0, 2)), "trailers": draw(st.integers(0, 2))}
    return document


def is_accepted(document: Document) -> bool:
    try:
        PacketFormat.from_document(document)
    except PacketFormatError:
        return False
    return True


def accepted(engine: str) -> st.SearchStrategy[Document]:
    """Descriptions that are accepted."""
    return documents(engine).filter(is_accepted)
