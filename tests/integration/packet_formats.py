"""Descriptions of packets of any kind that a plan can make frames of, or nearly."""

import re
from typing import Any

from hypothesis import strategies as st

from daqiri_ophyd.simulate import PacketFormat, PacketFormatError

Document = dict[str, Any]
PORT = 5005
# A frame must fit into the buffer of a socket, in which each packet takes some hundred bytes more.
_MOST_BYTES, _MOST_PACKETS = 4096, 128


@st.composite
def sizes(draw: st.DrawFn, modules: int) -> Document:
    """Keys of the frame, which has whole packets."""
    pixels = draw(
        st.sampled_from(["int4", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float32"])
        | st.sampled_from(["int64", "uint64", "float16", "float64"])
    )
    bits = 4 if pixels == "int4" else int(re.sub(r"\D", "", pixels))
    payload = draw(st.integers(1, 64)) * max(bits, 8) // 8
    most = max(1, min(_MOST_BYTES // payload, _MOST_PACKETS) // modules)
    packets = draw(st.integers(1, most) | st.sampled_from([2**n for n in range(most.bit_length())]))
    elements = modules * packets * payload * 8 // bits
    rows = draw(st.sampled_from([n for n in range(1, elements + 1) if elements % n == 0]))
    frame = draw(
        st.sampled_from([[elements], [rows, elements // rows], [rows, 1, elements // rows]])
    )
    return {"pixels": pixels, "payload_bytes": payload, "frame": frame}


@st.composite
def headers(draw: st.DrawFn, roles: list[str]) -> list[Document]:
    """Fields with the roles, of any size and order, and others between them."""
    fields = []
    for role in roles:
        of_bits = {"bits": draw(st.integers(1, 64))}
        field = {"role": role, **draw(st.just(of_bits) | st.builds(_bytes, st.integers(1, 8)))}
        if role not in ("byte_offset", "sequence_number"):
            field["first"] = draw(st.integers(0, 3))
        fields.append(field)
    for _ in range(draw(st.integers(0, 3))):
        fields.append({"bytes": draw(st.integers(1, 9)), "value": draw(st.integers(0, 255))})
    fields = draw(st.permutations(fields))
    for number, field in enumerate(fields):
        field["name"] = f"field {number}"
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
    order = draw(st.sampled_from(["big", "little"]))
    if document["pixels"].startswith("float") or document["pixels"].endswith("64"):
        order = "little"
    document["byte_order"] = order
    roles = list(draw(st.sampled_from(ROLES)))
    if modules > 1:
        how = draw(
            st.sampled_from(["source", "port", "field"] if engine == "packet" else ["source"])
        )
        if how == "field":
            roles.append("module")
        elif how == "source":
            document["source_ports"] = f"40001-{40000 + modules}"
        else:
            document["port"] = f"{PORT}-{PORT + modules - 1}"
    document["header"] = draw(headers(roles))
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
