"""Descriptions of a detector's packets, as far as a reorder plan can make frames of them."""

from __future__ import annotations

import ipaddress
import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import yaml

from daqiri_ophyd.engine import check_config

from ._frame_layout import FrameLayout, ModuleLayout, ModulePosition
from ._pixel_bytes import pixel_dtype

__all__ = ["PacketField", "PacketFormat", "PacketFormatError"]

# Engines, and their default addresses.
_ENGINES = {"socket": "127.0.0.1", "packet": "lo"}
# Those that receive all of an interface's packets, with their headers.
_OF_INTERFACES = ("packet",)
_ROLES = (
    *("frame_number", "packet_number", "sequence_number", "byte_offset", "module"),
    "payload_offset",
)
_COUNTED = ("frame_number", "packet_number", "sequence_number")
_BYTES = ("byte_offset", "payload_offset")
_SOURCES = ("first", "sum", "packets")
_FLIPS = ("none", "rows", "columns", "both")
_ANY = "any"
# Bits of the pixels that frames can have.
_PIXELS = {
    **{
        f"{sign}int{bits}": bits
        for sign in ("", "u")
        for bits in (4, 8, 10, 12, 14, 16, 24, 32, 64)
    },
    **{f"float{bits}": bits for bits in (16, 32, 64)},
}
_PACKINGS = ("msb", "lsb")

_KEYS = {
    *("name", "engine", "address", "port", "source_ports", "modules", "frame", "pixels"),
    *("byte_order", "packing", "payload_bytes", "header", "layout", "leaders", "trailers"),
}
_FIELD_KEYS = {
    *("name", "bytes", "bits", "role", "value", "required", "first", "byte_order"),
    *("step", "unit", "column"),
}
_LAYOUT_KEYS = {"shape", "tile", "chip", "chip_gap", "positions"}
_POSITION_KEYS = {"origin", "flip", "rotate"}
# What readers of a manual look for, and no plan has.
_ABSENT = {
    "trailer": "no plan skips bytes at the end of packets; make them part of payload_bytes and of "
    "the frame, as further columns, and cut them off in numpy",
    "crc": "no plan checks or skips a checksum; make it part of payload_bytes and of the frame, as "
    "further columns, and cut it off in numpy",
    "transport": "packets are UDP datagrams; leave it out",
    "packets_per_frame": "it follows from frame, pixels, modules and payload_bytes; leave it out",
}
_BIG, _LITTLE = "big", "little"
# The largest bytes of a UDP packet over IPv4.
_UDP_BYTES = 65_507
# A plan reads a number within so many bits that begin with a byte; sequence numbers of so many and
# more may be divided by any number of packets.
_NUMBER_BITS, _ANY_PACKETS_BITS = 64, 32
_MOST_ANY_PACKETS = 1 << 17
_NEVER_WRAPS_BITS = 48
_FLEX_WORDS = 16
# A device such as /dev/zero does not end.
_FILE_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,24}")


class PacketFormatError(ValueError):
    """A packet format has mistakes, or no reorder plan makes frames of it.

    Parameters
    ----------
    problems : list of str
        Each with the key, the value found, and what is accepted or can be used instead.
    file : str
        Name of the description.
    """

    def __init__(self, problems: list[str], file: str) -> None:
        super().__init__("\n".join(f"{file}: {problem}" for problem in problems))
        self.problems = problems


@dataclass(frozen=True, kw_only=True)
class PacketField:
    """A field of the header of packets.

    Attributes
    ----------
    name : str
        Name of the field.
    offset, width : int
        First bit in the UDP payload, and number of bits.
    byte_order : {"big", "little"}
        Order of its bytes.
    role : str or None
        Meaning of the number in it, one of `roles`.
    value : int
        Value of a field without a role.
    required : bool
        Whether packets with another value are left out of frames: leaders, trailers and others.
    first : int
        First number of a field with a role; of ``payload_offset``, that of packets whose pixels
        begin right after the header.
    step : int
        Difference of two numbers; 0: they grow irregularly.
    unit : int
        Bytes that a number of bytes counts as one.
    column : {"first", "sum", "packets"} or None
        Whether its number goes with a frame, and of which packets.
    roles : tuple of str
        Roles that a field can have.
    """

    roles: ClassVar[tuple[str, ...]] = _ROLES

    name: str
    offset: int
    width: int
    byte_order: Literal["big", "little"] = "big"
    role: str | None = None
    value: int = 0
    required: bool = False
    first: int = 0
    step: int = 1
    unit: int = 1
    column: str | None = None

    @property
    def most_bits(self) -> int:
        """Number of its lowest bits that a plan can read."""
        return min(self.width, _NUMBER_BITS - -(self.offset + self.width) % 8)

    def bits(self, count: int) -> tuple[int, int, str] | None:
        """Return offset, width and byte order of its lowest bits; None if a plan cannot read them.

        Parameters
        ----------
        count : int
            Number of bits, up to `most_bits`.
        """
        if self.byte_order == _BIG:
            return self.offset + self.width - count, count, _BIG
        if count % 8 == 0:
            return self.offset, count, _BIG if count == 8 else _LITTLE
        return (self.offset + 8 - count, count, _BIG) if count < 8 else None


@dataclass(frozen=True, kw_only=True)
class PacketFormat:
    """The packets of a detector: their header, and the frame that their payloads make.

    Attributes
    ----------
    name : str
        Name of the detector.
    engine : {"socket", "packet"}
        How packets are received.
    address : str
        IP address of a socket, or name of the network interface of engine ``packet``.
    ports, source_ports : tuple of int
        UDP ports to send to, and from: none, one, or one for each module.
    modules : int
        Modules, stacked along the first axis of the frame.
    shape : tuple of int
        Shape of a frame.
    pixels : str
        Type of its elements, one of `pixel_types`.
    byte_order : {"big", "little"}
        Order of the bytes of an element in packets.
    packing : {"msb", "lsb"}
        Bit of a byte that elements of 4, 10, 12 or 14 bits begin with.
    payload_bytes : int
        Bytes after the header; the last packet of a module in a frame may have fewer.
    header : tuple of PacketField
        Fields in order.
    layout : FrameLayout or None
        Where the modules of an image are; None: pixels follow one another.
    leaders, trailers : int
        Packets of another kind, without pixels, that simulated modules send before and after those
        of a frame.
    engines, pixel_types : tuple of str
        Engines and types that a format can have.
    """

    engines: ClassVar[tuple[str, ...]] = tuple(_ENGINES)
    pixel_types: ClassVar[tuple[str, ...]] = tuple(_PIXELS)

    name: str
    engine: str
    address: str
    ports: tuple[int, ...]
    source_ports: tuple[int, ...]
    modules: int
    shape: tuple[int, ...]
    pixels: str
    byte_order: Literal["big", "little"]
    packing: Literal["msb", "lsb"]
    payload_bytes: int
    header: tuple[PacketField, ...]
    layout: FrameLayout | None = None
    leaders: int = 0
    trailers: int = 0

    @property
    def on_interface(self) -> bool:
        """Whether the engine receives all packets of a network interface, with their headers."""
        return self.engine in _OF_INTERFACES

    @classmethod
    def read(cls, path: str | Path) -> PacketFormat:
        """Read a description.

        Parameters
        ----------
        path : str or Path
            YAML file.

        Raises
        ------
        PacketFormatError
            If there are mistakes, or no reorder plan makes frames of these packets; all are named.
        OSError
            If the file cannot be read.
        """
        try:
            with Path(path).open("rb") as file:
                text = file.read(_FILE_BYTES + 1)
            if len(text) > _FILE_BYTES:
                raise PacketFormatError([f"is larger than {_FILE_BYTES} bytes"], str(path))
            # A subclass of the safe loader.
            document = yaml.load(text.decode(), _Loader)  # noqa: S506
        except PacketFormatError:
            raise
        except RecursionError:
            raise PacketFormatError(["is nested too deeply for YAML"], str(path)) from None
        # Numbers and dates that Python does not have are value errors, as is what is no text.
        except (yaml.YAMLError, ValueError) as error:
            raise PacketFormatError([f"is not YAML: {error}"], str(path)) from None
        return cls.from_document(document, str(path))

    @classmethod
    def from_document(cls, document: Any, file: str = "<format>") -> PacketFormat:
        """Return the packet format with the keys and values of a description.

        Parameters
        ----------
        document : dict
            Keys and values.
        file : str
            Name of the description in messages.

        Raises
        ------
        PacketFormatError
            As for `read`.
        """
        reader = _Reader()
        made = reader.format(document)
        if made is not None and not reader.problems:
            reader.problems += _not_in_plans(made) or _of_plan(made)
        if made is None or reader.problems:
            raise PacketFormatError(reader.problems, file)
        return made

    @property
    def header_bytes(self) -> int:
        """Bytes of the header."""
        return sum(field.width for field in self.header) // 8

    @property
    def is_packed(self) -> bool:
        """Whether pixels begin or end within a byte."""
        return _PIXELS[self.pixels] % 8 != 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements of frames."""
        return pixel_dtype(self.pixels)

    @property
    def pixels_sent(self) -> int:
        """Pixels of a frame that packets have."""
        if self.layout is None:
            return math.prod(self.shape)
        modules = self.layout.modules
        return len(modules.positions) * math.prod(modules.shape)

    @property
    def frame_bytes(self) -> int:
        """Bytes of the packets' payloads of a frame."""
        return self.pixels_sent * _PIXELS[self.pixels] // 8

    @property
    def group_bytes(self) -> int:
        """Bytes that have a whole number of pixels."""
        return math.lcm(_PIXELS[self.pixels], 8) // 8

    @property
    def packets(self) -> int:
        """Packets of a module in a frame."""
        return -(-self.frame_bytes // self.modules // self.payload_bytes)

    @property
    def last_bytes(self) -> int:
        """Bytes after the header of the last packet of a module in a frame."""
        return self.frame_bytes // self.modules - (self.packets - 1) * self.payload_bytes

    def field(self, role: str) -> PacketField | None:
        """Return the field with this role; None if there is none."""
        return next((field for field in self.header if field.role == role), None)

    @property
    def numbered_by(self) -> str:
        """How packets are numbered: ``single``, ``packet``, ``running``, ``offset``, ``sequence``.

        By frame number alone, with the packet's number, with a packet number that goes on, with the
        position of the payload, or by a number that goes on alone.
        """
        if self.field("frame_number") is None:
            return "sequence"
        for role, how in (("packet_number", "packet"), ("byte_offset", "offset")):
            if self.field(role) is not None:
                return how
        return "single" if self.field("sequence_number") is None else "running"

    @property
    def runs_on(self) -> bool:
        """Whether a plan can take the sequence number modulo the packets of a frame."""
        field = self.field("sequence_number")
        if field is None:
            return False
        numbers = self.packets * field.step
        power = numbers.bit_count() == 1 and numbers < 2**field.most_bits
        return power or field.most_bits >= _NEVER_WRAPS_BITS

    @property
    def begins_with_frames(self) -> bool:
        """Whether the sequence number counts the packets of a frame, and wraps with each."""
        field = self.field("sequence_number")
        if field is None:
            return False
        return not field.first and self.packets * field.step == 2**field.most_bits

    @property
    def modules_by(self) -> str:
        """How modules differ: ``nothing`` (one module), ``port``, ``source_port`` or ``field``."""
        if self.modules == 1:
            return "nothing"
        if len(self.ports) > 1:
            return "port"
        return "source_port" if self.source_ports else "field"

    @property
    def has_sockets(self) -> bool:
        """Whether each module has a socket of its own."""
        return not self.on_interface and len(self.ports) > 1


class _Loader(yaml.SafeLoader):
    """Reads YAML, and rejects a key that is given twice, of which PyYAML takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for (key, _), name in zip(node.value, keys, strict=False):
            if keys.count(name) > 1:
                raise yaml.MarkedYAMLError(
                    problem=f"{name}: given {keys.count(name)} times; accepts a key once",
                    problem_mark=key.start_mark,
                )
        return super().construct_mapping(node, deep)


def _shown(found: Any) -> str:
    """Return a value as it is in a message; aliases can make a small file an endless value."""
    short = reprlib.Repr()
    short.maxlevel, short.maxlist, short.maxdict = 2, 8, 8
    short.maxstring = short.maxother = 120
    try:
        return short.repr(found)
    except ValueError:
        return "an integer of thousands of digits"


def _word(found: Any) -> str:
    """Return a text or a number as text; anything else is an empty one."""
    if isinstance(found, int):
        return str(found) if abs(found) < 2**64 else ""
    return found if isinstance(found, str) else ""


class _Reader:
    """Reads keys and values, and collects what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def wrong(self, key: str, found: Any, accepts: str) -> None:
        self.problems.append(f"{key}: found {_shown(found)}; accepts {accepts}")

    def keys(self, found: Any, at: str, known: set[str]) -> Mapping[str, Any] | None:
        if not isinstance(found, Mapping):
            accepted = ", ".join(sorted(known))
            self.problems.append(
                f"{at or 'the description'}: found {_shown(found)}; accepts a map with {accepted}"
            )
            return None
        for key in found:
            if key in known:
                continue
            name = key if isinstance(key, str) else _shown(key)
            path = f"{at}.{name}" if at else name
            why = next((why for word, why in _ABSENT.items() if name.startswith(word)), None)
            self.problems.append(
                f"{path}: {why}"
                if why
                else f"{path}: unknown key; accepts {', '.join(sorted(known))}"
            )
        return found

    def integer(self, key: str, found: Any, first: int, last: int, default: int) -> int:
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int) or not first <= found <= last:
            self.wrong(key, found, f"an integer, {first} to {last}")
            return default
        return found

    def word(self, key: str, found: Any, accepted: Any, default: str) -> str:
        if found is None:
            return default
        if found not in tuple(accepted):
            self.wrong(key, found, ", ".join(accepted))
            return default
        return found

    def ports(self, key: str, found: Any) -> tuple[int, ...]:
        if found is None:
            return ()
        first, dash, last = _word(found).partition("-")
        ends = [end.strip() for end in ((first, last) if dash else (first, first))]
        if all(re.fullmatch("[0-9]{1,5}", end) for end in ends):
            low, high = map(int, ends)
            if 0 < low <= high < 65536:
                return tuple(range(low, high + 1))
        self.wrong(key, found, "a UDP port, 1 to 65535, or FIRST-LAST")
        return ()

    def format(self, document: Any) -> PacketFormat | None:
        found = self.keys(document, "", _KEYS)
        if found is None:
            return None
        for key in ("name", "port", "frame", "pixels", "payload_bytes", "header"):
            if found.get(key) is None:
                self.problems.append(f"{key}: required, but not given")
        name = found.get("name")
        if name is not None and not (
            isinstance(name, str) and _NAME.fullmatch(name) and yaml.safe_load(name) == name
        ):
            self.wrong(
                "name", name, "a letter, and up to 24 letters, digits and _; no word such as on"
            )
        engine = self.word("engine", found.get("engine"), _ENGINES, "socket")
        order = self._order("byte_order", found.get("byte_order"), _BIG)
        shape = self._shape(found.get("frame"))
        return PacketFormat(
            name=_word(name),
            engine=engine,
            address=self._address(found.get("address"), engine),
            ports=self.ports("port", found.get("port")),
            source_ports=self.ports("source_ports", found.get("source_ports")),
            modules=self.integer("modules", found.get("modules"), 1, 4096, 1),
            shape=shape,
            pixels=self._pixels(found.get("pixels")),
            byte_order=order,
            packing=self._packing(found.get("packing"), found.get("pixels")),
            payload_bytes=self.integer(
                "payload_bytes", found.get("payload_bytes"), 1, _UDP_BYTES, 1
            ),
            header=self._header(found.get("header"), order),
            layout=self._layout(found.get("layout"), shape),
            leaders=self.integer("leaders", found.get("leaders"), 0, 16, 0),
            trailers=self.integer("trailers", found.get("trailers"), 0, 16, 0),
        )

    def _layout(self, found: Any, shape: tuple[int, ...]) -> FrameLayout | None:
        given = None if found is None else self.keys(found, "layout", _LAYOUT_KEYS)
        if given is None:
            return None
        if len(shape) != 2:
            self.wrong("frame", list(shape), "two numbers with a layout: rows and columns")
            return None
        module = self._pair("layout.shape", given.get("shape"), 1)
        positions = given.get("positions")
        if not isinstance(positions, list) or not 0 < len(positions) <= 4096:
            self.wrong("layout.positions", positions, "a list, such as [{origin: [0, 0]}]")
            return None
        modules = ModuleLayout(
            shape=module or (1, 1),
            positions=tuple(
                self._position(each, f"layout.positions[{i}]") for i, each in enumerate(positions)
            ),
            **{
                key: self._pair(f"layout.{key}", given[key], int(key != "chip_gap")) or ()
                for key in ("tile", "chip", "chip_gap")
                if given.get(key) is not None
            },
        )
        return FrameLayout(shape=(shape[0], shape[1]), modules=modules)

    def _pair(self, key: str, found: Any, least: int) -> tuple[int, int] | None:
        good = isinstance(found, list) and len(found) == 2
        if not good or not all(type(each) is int and least <= each < 2**32 for each in found):
            self.wrong(key, found, f"[ROWS, COLUMNS], from {least}")
            return None
        return found[0], found[1]

    def _position(self, found: Any, at: str) -> ModulePosition:
        given = self.keys(found, at, _POSITION_KEYS) or {}
        flip: Any = self.word(f"{at}.flip", given.get("flip"), _FLIPS, "none")
        rotate = given.get("rotate", 0)
        if type(rotate) is not int or rotate not in (0, 90, 180, 270):
            self.wrong(f"{at}.rotate", rotate, "0, 90, 180, 270")
            rotate = 0
        origin = self._pair(f"{at}.origin", given.get("origin"), 0)
        return ModulePosition(origin=origin or (0, 0), flip=flip, rotate=rotate)

    def _shape(self, found: Any) -> tuple[int, ...]:
        if found is None:
            return (1,)
        good = isinstance(found, list) and 0 < len(found) <= 8
        if not good or not all(type(each) is int and 0 < each < 2**32 for each in found):
            self.wrong("frame", found, "a list of integers from 1, such as [512, 1024]")
            return (1,)
        return tuple(found)

    def _order(self, key: str, found: Any, default: Literal["big", "little"]) -> Any:
        return self.word(key, found, (_BIG, _LITTLE), default)

    def _address(self, found: Any, engine: str) -> str:
        if found is None:
            return _ENGINES[engine]
        if engine in _OF_INTERFACES:
            if not (isinstance(found, str) and re.fullmatch(r"[^\s/]{1,15}", found)):
                self.wrong("address", found, "the name of a network interface, such as eth0")
            return _word(found)
        try:
            ipaddress.ip_address(_word(found))
        except ValueError:
            self.wrong("address", found, "an IP address of this host, or 0.0.0.0 for all of them")
        return _word(found)

    def _packing(self, found: Any, pixels: Any) -> Any:
        if found is not None and isinstance(pixels, str) and _PIXELS.get(pixels, 4) % 8 == 0:
            self.problems.append(
                f"packing: found {_shown(found)} with pixels: {pixels}; accepts it with pixels of "
                "4, 10, 12 and 14 bits. byte_order is the order of whole bytes"
            )
        return self.word("packing", found, _PACKINGS, "msb")

    def _pixels(self, found: Any) -> str:
        if found is None:
            return "uint8"
        accepted = ", ".join(_PIXELS)
        if not isinstance(found, str) or found not in _PIXELS:
            packed = re.fullmatch(r"u?int([0-9]+)", _word(found))
            if packed is None:
                self.wrong("pixels", found, accepted)
                return "uint8"
            self.problems.append(
                f"pixels: found {found!r}; no plan unpacks pixels of {packed[1]} bits. Use "
                "uint8, with the bytes of a row as columns of the frame, and unpack them in numpy; "
                f"accepts {accepted}"
            )
            return "uint8"
        return found

    def _header(self, found: Any, order: Literal["big", "little"]) -> tuple[PacketField, ...]:
        if found is None:
            return ()
        if not isinstance(found, list) or not found:
            self.wrong("header", found, "a list of fields, such as {name: frame, bytes: 4}")
            return ()
        fields: list[PacketField] = []
        offset = 0
        for index, each in enumerate(found):
            at = f"header[{index}]"
            given = self.keys(each, at, _FIELD_KEYS)
            if given is None:
                continue
            field = self._field(given, at, offset, order)
            if field.name in [other.name for other in fields]:
                self.wrong(f"{at}.name", field.name, "a name that no other field has")
            twice = field.role is not None and field.role in [other.role for other in fields]
            if twice:
                self.wrong(f"{at}.role", field.role, "a role once")
            fields.append(field)
            offset += field.width
        if offset % 8:
            self.problems.append(
                f"header: its fields have {offset} bits; accepts whole bytes: add a field of "
                f"{8 - offset % 8} bits"
            )
        return tuple(fields)

    def _field(
        self, found: Mapping[str, Any], at: str, offset: int, order: Literal["big", "little"]
    ) -> PacketField:
        name = found.get("name")
        if not isinstance(name, str) or not name:
            self.wrong(f"{at}.name", name, "a text; put words such as yes and on in quotes")
        if (found.get("bytes") is None) == (found.get("bits") is None):
            self.problems.append(f"{at}: accepts one of bytes and bits")
        width = 8 * self.integer(f"{at}.bytes", found.get("bytes"), 1, 4096, 0)
        width = width or self.integer(f"{at}.bits", found.get("bits"), 1, 32768, 8)
        given = found.get("byte_order")
        own = self._order(f"{at}.byte_order", given, order)
        whole = offset % 8 == 0 and width % 8 == 0
        if own == _LITTLE and not whole and given is not None:
            self.wrong(f"{at}.byte_order", own, "big for fields that are not of whole bytes")
        role = found.get("role")
        if role is not None:
            self.word(f"{at}.role", role, _ROLES, "")
            role = role if role in _ROLES else None
        most = 2 ** min(width, 64) - 1
        if role is not None and width > 64:
            self.wrong(f"{at}.bytes", width // 8, "numbers of up to 8 bytes in a field with a role")
        for key, other in (("value", role is not None), ("first", role is None)):
            if found.get(key) is not None and other:
                self.problems.append(
                    f"{at}.{key}: {'accepts role or value' if key == 'value' else 'needs a role'}"
                )
        numbers: dict[str, int] = {}
        for key, roles in (("step", _COUNTED), ("unit", _BYTES)):
            if found.get(key) is not None and role not in roles:
                self.problems.append(f"{at}.{key}: needs one of the roles {', '.join(roles)}")
            elif key == "step" and role == "frame_number" and found.get(key) == _ANY:
                numbers[key] = 0
            else:
                numbers[key] = self.integer(f"{at}.{key}", found.get(key), 1, 2**32 - 1, 1)
        column = found.get("column")
        if column is not None:
            column = self.word(f"{at}.column", column, _SOURCES, "")
            if min(width, _NUMBER_BITS - -(offset + width) % 8) < width:
                self.problems.append(
                    f"{at}.column: its {width} bits are in more than eight bytes; accepts fields "
                    "within eight bytes"
                )
        if role in ("packet_number", "sequence_number", "payload_offset"):
            most = min(most, 2**32 - 1)
        required = found.get("required")
        if required is not None and not isinstance(required, bool):
            self.wrong(f"{at}.required", required, "true, false")
        elif required and (role is not None or found.get("value") is None):
            self.problems.append(f"{at}.required: needs a value")
        return PacketField(
            name=_word(name),
            offset=offset,
            width=width,
            # A part of a byte has no order of bytes.
            byte_order=own if whole else _BIG,
            role=role,
            value=self.integer(f"{at}.value", found.get("value"), 0, most, 0),
            required=required is True,
            first=self.integer(f"{at}.first", found.get("first"), 0, most, 0),
            column=column,
            **numbers,
        )


def _not_in_plans(form: PacketFormat) -> list[str]:
    """Return why no reorder plan makes frames of these packets, and what can be done instead."""
    sizes = _of_sizes(form)
    # Numbers count the packets of a frame.
    problems = [*(sizes or _of_numbers(form)), *_of_conditions(form), *_of_modules(form)]
    return [*problems, *_of_offset(form)]


def _of_plan(form: PacketFormat) -> list[str]:
    """Return what else is wrong with the plan that makes frames of these packets."""
    # Here, as it writes the plan of a format.
    from ._format_config import configuration_text

    problems = []
    for problem in check_config(configuration_text(form, "a format")).problems:
        _, plan, path = problem.path.partition("reorder_configs[0].")
        if path.startswith("frame."):
            key = path.removeprefix("frame.")
            key = f"layout{key.removeprefix('modules')}" if key.startswith("modules") else "frame"
        elif path.startswith("columns"):
            key = f"header: {path}"
        else:
            key = f"header: {path}" if plan else problem.path
        problems.append(f"{key}: {problem.message}")
    return problems


def _of_offset(form: PacketFormat) -> list[str]:
    field = form.field("payload_offset")
    if field is None:
        return []
    packet = form.header_bytes + field.unit + form.payload_bytes
    if packet > _UDP_BYTES:
        return [
            f"header: field {field.name!r} has unit: {field.unit}, which makes a packet of "
            f"{packet} bytes; accepts up to {_UDP_BYTES}"
        ]
    if field.first * field.unit <= form.header_bytes:
        return []
    return [
        f"header: field {field.name!r} has first: {field.first} and unit: {field.unit}, and pixels "
        f"that begin right after the header would begin before it; accepts up to the header's "
        f"{form.header_bytes} bytes"
    ]


def _of_conditions(form: PacketFormat) -> list[str]:
    if (form.leaders or form.trailers) and not any(field.required for field in form.header):
        key = "leaders" if form.leaders else "trailers"
        return [
            f"{key}: found {getattr(form, key)}, and no field of the header is required, which "
            "tells them from data; accepts them with required: true of a field"
        ]
    return [
        f"header: field {field.name!r} is required, and has {field.width} bits in more than eight "
        "bytes; accepts fields within eight bytes"
        for field in form.header
        if field.required and field.most_bits < field.width
    ]


def _of_sizes(form: PacketFormat) -> list[str]:
    total = form.pixels_sent * _PIXELS[form.pixels]
    if total % 8 or math.prod(form.shape) * form.dtype.itemsize > 2**32 - 1:
        return [
            f"frame: found {total} bits of {form.pixels}; accepts whole bytes, up to 4 GiB in "
            "memory"
        ]
    if form.frame_bytes % form.modules:
        return [
            f"frame: found {form.frame_bytes} bytes for {form.modules} modules; accepts a frame "
            "of which all modules send the same number of bytes"
        ]
    packet = form.header_bytes + form.payload_bytes
    if packet > _UDP_BYTES:
        return [f"payload_bytes: found a packet of {packet} bytes; accepts up to {_UDP_BYTES}"]
    bits, size = _PIXELS[form.pixels], form.group_bytes
    # Of 10, 12, 14 and 24 bits, usual payloads split pixels; of others, it is a mistake.
    splits = size.bit_count() > 1 and form.numbered_by != "offset"
    if form.payload_bytes % size and not (splits and form.payload_bytes > size):
        accepted = f"{size} and more" if splits else f"a multiple of {size}"
        pixels = f"{8 * size // bits} pixels" if size * 8 != bits else "a pixel"
        return [
            f"payload_bytes: found {form.payload_bytes}, which splits {pixels} of {size} bytes; "
            f"accepts {accepted}"
        ]
    of_module = form.frame_bytes // form.modules
    if form.payload_bytes > of_module:
        return [
            f"payload_bytes: found {form.payload_bytes}, but a module sends {of_module} bytes of "
            f"a frame; accepts up to {of_module}"
        ]
    if of_module % size:
        return [
            f"frame: found {of_module} bytes of {form.pixels} for a module; accepts a multiple of "
            f"{size}, so that its last packet has whole pixels"
        ]
    return []


def _of_numbers(form: PacketFormat) -> list[str]:
    frame, packet = form.field("frame_number"), form.field("packet_number")
    sequence, position = form.field("sequence_number"), form.field("byte_offset")
    places = [field.role for field in (packet, sequence, position) if field is not None]
    if len(places) > 1:
        return [f"header: found roles {' and '.join(map(str, places))}; accepts one of them"]
    if not places and frame is None:
        return [
            "header: no field has a role; a plan needs frame_number with packet_number or "
            "byte_offset, or a sequence_number. Packets without numbers can be captured"
        ]
    if not places and form.packets > 1:
        return [
            f"header: found frame_number alone, with {form.packets} packets per frame; accepts it "
            "with packet_number, byte_offset or sequence_number: a plan does not go by the order "
            "of arrival"
        ]
    if frame is None and sequence is None:
        return [
            f"header: found {places[0]} without frame_number; a plan does not see where a frame "
            "begins. If the number goes on from frame to frame, its role is sequence_number"
        ]
    problems = []
    if frame is not None and frame.step > 1 and frame.first >= 2**32 and not places:
        return [
            f"header: field {frame.name!r} has first: {frame.first} and step: {frame.step}, alone; "
            f"accepts a first number up to {2**32 - 1} there"
        ]
    if frame is not None and not frame.step and not places:
        return [
            f"header: field {frame.name!r} has step: any, alone; accepts it with packet_number, "
            "byte_offset or sequence_number"
        ]
    if packet is not None:
        last = packet.first + (form.packets - 1) * packet.step
        if last >= 2**packet.most_bits:
            problems.append(
                f"header: field {packet.name!r} has {packet.width} bits, too few for packet number "
                f"{last}; accepts a number of all {form.packets} packets of a module"
            )
    if position is not None:
        if position.first:
            problems.append(f"header: field {position.name!r} has first; offsets begin with 0")
        if form.payload_bytes % position.unit:
            problems.append(
                f"header: field {position.name!r} has unit: {position.unit}; accepts one that "
                f"divides payload_bytes, {form.payload_bytes}"
            )
        if (form.packets - 1) * form.payload_bytes // position.unit >= 2**position.most_bits:
            problems.append(
                f"header: field {position.name!r} has {position.width} bits, too few for a frame "
                f"of {form.frame_bytes} bytes; accepts offsets in bytes"
            )
    if sequence is not None:
        problems += _of_sequence(form, sequence, frame)
    return problems


def _of_sequence(form: PacketFormat, field: PacketField, frame: PacketField | None) -> list[str]:
    numbers = 2**field.most_bits // field.step
    power = form.packets.bit_count() == 1
    if frame is None:
        any_number = numbers >= 2**_ANY_PACKETS_BITS and form.packets <= _MOST_ANY_PACKETS
        if (power and form.packets <= numbers // 2) or any_number:
            return []
        return [
            f"header: field {field.name!r} has {field.width} bits, and a module sends "
            f"{form.packets} packets per frame; accepts a power of two up to {numbers // 2} and, "
            f"with 32 bits or more, any number up to {_MOST_ANY_PACKETS}. Otherwise a plan needs "
            "a frame number"
        ]
    if form.numbered_by == "running" and not form.runs_on and not form.begins_with_frames:
        return [
            f"header: field {field.name!r} numbers {form.packets} packets per frame and goes on; "
            "with a frame_number, accepts a power of two that it can count, or a number of "
            f"{_NEVER_WRAPS_BITS} bits and more. With 32 bits, leave out the role frame_number: "
            "the plan then divides the sequence number"
        ]
    return []


def _of_modules(form: PacketFormat) -> list[str]:
    problems = []
    if len(form.ports) > 1 and len(form.ports) != form.modules:
        problems.append(
            f"port: found {len(form.ports)} ports for modules: {form.modules}; accepts one port"
            + (f", or {form.modules}" if form.modules > 1 else "")
        )
    if form.modules == 1 and form.source_ports:
        problems.append("source_ports: found with one module; leave it out: any port is accepted")
    if form.modules == 1 and form.field("module") is not None:
        problems.append(
            "modules: found 1, and a field with role: module; accepts 2 to 4096, the number of "
            "modules, or the field without a role"
        )
    if form.modules > 1 and len(form.source_ports) not in (0, form.modules):
        problems.append(
            f"source_ports: found {len(form.source_ports)} ports for modules: {form.modules}; "
            "accepts one for each"
        )
    if problems or form.modules == 1:
        return problems
    if form.numbered_by == "offset":
        return [
            f"modules: found {form.modules} with a byte_offset, for which a plan has no modules; "
            "leave modules out if offsets count in the whole frame. Otherwise use packet numbers, "
            "or a frame for each module"
        ]
    if form.modules_by != "field":
        return []
    field = form.field("module")
    if field is None:
        return [
            f"modules: found {form.modules}, which nothing in packets distinguishes; accepts "
            "source_ports, a port for each, or a field with role: module"
        ]
    word, last = field.offset // 32, (field.offset + field.width - 1) // 32
    if (
        word != last
        or word >= _FLEX_WORDS
        or 4 * (word + 1) > form.header_bytes + form.payload_bytes
    ):
        return [
            f"header: field {field.name!r} is in bits {field.offset} to "
            f"{field.offset + field.width - 1}; accepts one 32-bit word of the first "
            f"{4 * _FLEX_WORDS} bytes. Use source_ports, or a port for each module"
        ]
    if field.first + form.modules - 1 >= 2**field.width:
        return [f"header: field {field.name!r} has too few bits for {form.modules} modules"]
    return []
