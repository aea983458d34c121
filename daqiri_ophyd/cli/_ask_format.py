"""Questions on a terminal that describe the packets of a detector."""

import math
import re
import sys
from contextlib import nullcontext, redirect_stdout
from typing import Any

import typer
import yaml

from ..simulate import PacketField, PacketFormat, PacketFormatError, pixel_bits
from ._output import print_error, print_message

__all__ = ["ask_format", "format_text"]

_END, _NONE = "end", "none"
_FIRST_SOURCE_PORT = 50101
_PAYLOAD_BYTES = 8192
_FIELDS = ("frame 4 frame_number", "packet 4 packet_number")
_HEADER_HELP = """\
Fields of the header in their order, one a line: NAME BYTES, or NAME 12bits, and if it has one
  a role:   {roles};
            first=1 if it counts from 1, step=10 if it counts in tens, unit=8 for units of 8 bytes
  a column: column=first, column=sum or column=packets, if its number goes with the image
  a value:  =0xCAFE
  an order: big or little, if it is not that of the pixels"""
_FIELD = re.compile(
    r"(?P<name>\S+)\s+(?P<size>\d+)\s?(?:(?P<bits>bits?)|bytes?)?(?P<rest>(?:\s+\S+)*)"
)
_COMMENTS = {
    "engine": "socket: UDP sockets; packet: all frames of a network interface (privileged)",
    "address": "where packets arrive: an IP address of this host, or a network interface",
    "port": "UDP port; FIRST-LAST: one for each module",
    "source_ports": "UDP ports that the modules send from",
    "modules": "stacked along the first axis of the frame",
    "frame": "shape of the whole frame",
    "pixels": "their type",
    "byte_order": "of pixels, and of fields that give none: big or little",
    "packing": "bit of a byte that a pixel begins with: msb or lsb",
    "payload_bytes": "pixels of a packet",
    "header": "its fields in order; the others are 0 in simulated packets",
}


def ask_format(name: str) -> dict[str, Any]:
    """
    Ask for the packets of a detector, and return their description.

    Wrong answers are asked again.

    Parameters
    ----------
    name : str
        Name of the detector.

    Raises
    ------
    typer.Abort
        If the input ends.
    """
    found: dict[str, Any] = {
        **{"name": name, "engine": "socket", "address": None, "modules": 1, "port": 6000},
        **{"frame": [256, 256], "pixels": "uint16", "byte_order": "little"},
    }
    print_message("Enter accepts what is in brackets; Ctrl-C ends, and nothing is written.")
    _ask(found, "engine", f"engine: {', '.join(PacketFormat.engines)}")
    is_socket = found["engine"] == "socket"
    where = "IP address of this host" if is_socket else "network interface"
    _ask(found, "address", f"{where} where packets arrive", "127.0.0.1" if is_socket else "lo")
    _ask(found, "modules", "modules, stacked along the first axis: 1 to 4096")
    ranges = "" if found["modules"] == 1 else ", or FIRST-LAST for one each"
    _ask(found, "port", f"UDP port to which they send{ranges}")
    if found["modules"] > 1 and "-" not in str(found["port"]):
        other = f", or {_NONE}: a field of the header is the module's number"
        question = f"UDP ports that the modules send from: FIRST-LAST{other}"
        _ask(found, "source_ports", question, _source_ports(found["modules"]))
        if found["source_ports"] == _NONE:
            del found["source_ports"]
    _ask(found, "frame", "shape of the whole frame: ROWS COLUMNS")
    _ask(found, "pixels", f"pixels: {', '.join(PacketFormat.pixel_types)}")
    _ask(found, "byte_order", "order of their bytes: big, little", "big")
    if pixel_bits(found["pixels"]) % 8:
        _ask(found, "packing", "bit of a byte that a pixel begins with: msb, lsb", "msb")
    _ask(found, "payload_bytes", "bytes of pixels in a packet", _usual_payload(found))
    _ask_header(found)
    return found


def _source_ports(modules: int) -> str:
    return f"{_FIRST_SOURCE_PORT}-{_FIRST_SOURCE_PORT + modules - 1}"


def _typed(question: str, default: str) -> str:
    try:
        # Without it, Python edits lines; a stdout that goes to a file has no place for questions.
        with nullcontext() if sys.stdout.isatty() else redirect_stdout(sys.stderr):
            return input(f"{question} [{default}]: ").strip() or default
    except EOFError:
        raise typer.Abort from None


def _problems(found: dict[str, Any], *keys: str) -> list[str]:
    """Return what is wrong with these keys, if those not asked yet have usual values."""
    usual: dict[str, Any] = {"payload_bytes": 1, "header": [_field(line) for line in _FIELDS]}
    document = usual | found
    if "source_ports" not in found and isinstance(found["modules"], int) and found["modules"] > 1:
        document["source_ports"] = _source_ports(found["modules"])
    try:
        PacketFormat.from_document(
            {key: value for key, value in document.items() if value != _NONE}
        )
    except PacketFormatError as error:
        return [each for each in error.problems if re.split(r"[\[:.]", each)[0] in keys]
    return []


def _ask(found: dict[str, Any], key: str, question: str, default: Any = None) -> None:
    """Ask for the value of a key until it is accepted."""
    default = found.get(key) if default is None else default
    shown = " ".join(map(str, default)) if isinstance(default, list) else str(default)
    keys = (key, "pixels") if key == "byte_order" else (key,)
    while True:
        found[key] = _value(key, _typed(question, shown))
        problems = _problems(found, *keys)
        if not problems:
            return
        print_error("\n".join(problems))


def _value(key: str, text: str) -> Any:
    if key == "frame" and re.fullmatch(r"\[?\s*\d+(?:[\s,x×]+\d+)*\s*\]?", text):
        return [int(number) for number in re.findall(r"\d+", text)]
    return int(text) if re.fullmatch(r"\d{1,9}", text) else text


def _usual_payload(found: dict[str, Any]) -> int:
    """Return the largest number of whole rows, or else of pixels, that fits into a packet."""
    bits = pixel_bits(found["pixels"])
    group = math.lcm(bits, 8) // 8
    of_module = math.prod(found["frame"]) * bits // 8 // found["modules"]
    row, rest = divmod(found["frame"][-1] * bits, 8 * group)
    for unit in ([] if rest else [row * group]) + [group]:
        for size in range(_PAYLOAD_BYTES // unit * unit, 0, -unit):
            if of_module % size == 0:
                return size
    return group


def _field(line: str) -> dict[str, Any]:
    """Return the field of a line.

    Raises
    ------
    ValueError
        If the line is not one.
    """
    match = _FIELD.fullmatch(line)
    if match is None:
        raise ValueError(f"found {line!r}; accepts NAME BYTES, such as frame 4, or {_END}")
    field: dict[str, Any] = {
        "name": match["name"],
        ("bits" if match["bits"] else "bytes"): int(match["size"]),
    }
    for word in match["rest"].split():
        if word in ("big", "little"):
            field["byte_order"] = word
        elif word.startswith("="):
            field["value"] = _number(word, "=")
        elif word.startswith(("first=", "unit=")) or re.fullmatch(r"step=\d.*", word):
            key = word.partition("=")[0]
            field[key] = _number(word, f"{key}=")
        elif word.startswith(("step=", "column=")):
            key, _, field_value = word.partition("=")
            field[key] = field_value
        else:
            field["role"] = word
    return field


def _number(word: str, before: str) -> int:
    try:
        return int(word.removeprefix(before), 0)
    except ValueError:
        raise ValueError(
            f"found {word!r}; accepts {before} and a number, such as 7 or 0x1F"
        ) from None


def _ask_header(found: dict[str, Any]) -> None:
    """Ask for the fields until a plan can make frames of the packets."""
    print_message(_HEADER_HELP.format(roles=", ".join(PacketField.roles)))
    while True:
        found["header"] = []
        while _ask_field(found):
            pass
        try:
            PacketFormat.from_document(found)
            return
        except PacketFormatError as error:
            print_error("\n".join([*error.problems, "the header again, or Ctrl-C"]))


def _ask_field(found: dict[str, Any]) -> bool:
    """Ask for the next field; returns False if there is none."""
    number = len(found["header"])
    usual = _FIELDS[number] if number < len(_FIELDS) else _END
    while True:
        line = _typed(f"field {number + 1}", usual)
        if line == _END:
            return False
        try:
            field = _field(line)
        except ValueError as error:
            print_error(str(error))
            continue
        document = found | {"header": [*found["header"], field]}
        problems = [each for each in _problems(document, "header") if each.startswith("header[")]
        if not problems:
            found["header"].append(field)
            return True
        print_error("\n".join(problems))


def format_text(document: dict[str, Any]) -> str:
    """Return a description as YAML, with comments."""
    lines = ["# Packets of a detector, for `daqiri-ophyd config new --format` and `simulate`."]
    for key, value in document.items():
        if key == "header":
            lines.append(f"header:  # {_COMMENTS[key]}")
            lines += [f"- {_flow(field)}" for field in value]
            continue
        comment = f"  # {_COMMENTS[key]}" if key in _COMMENTS else ""
        lines.append(f"{key}: {_flow(value)}{comment}")
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    return yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=1000, allow_unicode=True
    ).removesuffix("\n").removesuffix("\n...")  # fmt: skip
