"""Packets of a reorder plan's format, made of its frames."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.engine import (
    LINKTYPE_ETHERNET,
    NetworkConfig,
    ReorderBitFieldConfig,
    ReorderConfig,
    ethernet,
    find_plan,
    frame_form,
    module_pixels,
)
from daqiri_ophyd.simulate import pixel_bytes, pixel_dtype

from ._source import ReplayError

__all__ = ["FrameFormat"]

_OVERHEAD = 42  # Ethernet, IPv4 and UDP headers
_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
_ADDRESSES = "192.0.2.1", "192.0.2.2"  # reserved for documentation, RFC 5737
_PORT = 4000

Bytes = NDArray[np.uint8]


class FrameFormat:
    """The packets that a reorder plan assembles into frames.

    Header fields other than those that the plan reads are 0. So are the plan's ``columns`` that are
    sums or within the payload. Of the others, packets have the numbers again: those of the first
    packet all of a frame, those of each packet their own.

    Parameters
    ----------
    config : NetworkConfig
        Configuration of the plan's engine.
    plan : str
        Names of the port and of the plan: ``port0/images``; with flows of several, ``images``.
    link_type : int
        Link type of the port to send on.
    mode : str
        Mode of the plan; empty: as it is written.

    Raises
    ------
    ReplayError
        If there is no such plan or mode, or its packets cannot be made of its frames.
    """

    def __init__(self, config: NetworkConfig, plan: str, link_type: int, mode: str = "") -> None:
        self._name = f"reorder plan {plan!r}"
        found = find_plan(config, plan)
        if found is None:
            raise ReplayError(f"The configuration of the frames has no {self._name}.")
        written, flows = found
        if mode and mode not in written.modes:
            raise ReplayError(
                f"The configuration of the frames has no mode {mode!r}: {self._name}."
            )
        self._plan = written.modes[mode] if mode else written
        self.group = "/entry/instrument/" + self._plan.name.replace("/", "_")
        """Group of the frames in their files."""
        self._ethernet = link_type == LINKTYPE_ETHERNET
        self._overhead = _OVERHEAD if config.stream_type == "raw" else 0
        self.packets = self._packets_of(self._plan)
        """Packets of a complete frame."""
        self._require_own_types()
        self._header = self._plan.payload_byte_offset - self._skipped(self._plan.payload_base)
        numbers = (self._plan.sequence_number, self._plan.batch_number, self._plan.packet_number)
        fields = [field for field in numbers if field is not None]
        fields += [condition.field for condition in self._plan.conditions]
        columns = {column.name: column.field for column in self._plan.columns}
        self._columns = {
            column.name: column.field
            for column in self._plan.columns
            if column.source != "sum" and self._begin(column.field) >= 0
        }
        """Fields of the plan's columns that packets can have."""
        offset = self._plan.payload_offset_field
        if offset is not None:
            fields.append(offset)
        if min([self._header, *map(self._begin, fields)]) < 0:
            raise self._error("reads fields or data before the UDP payload")
        self._offset_units = 0
        if offset is not None:
            # The data begin behind all fields.
            fields += self._columns.values()
            lacking = max(map(self._end, fields)) - self._header
            self._offset_units = max(0, -(-lacking // offset.unit))
            self._header += self._offset_units * offset.unit
        # Packets that lack a field are malformed.
        self._least = max(map(self._end, columns.values()), default=0)
        self._stride = self._plan.flow_stride or self.packets
        frame = self._plan.frame
        # Once: there are as many as pixels, and many parts of a file.
        self._pixels = None if frame is None or frame.modules is None else module_pixels(frame)
        by_id = {flow.id: flow for flow in flows}
        self._flows = [by_id[number] for number in self._plan.flow_ids]
        used = -(-self.packets // self._stride)
        self._flows = self._flows[:used]
        if not self._ethernet and used > 1:
            raise self._error("has packets of several flows, which a socket port cannot tell apart")
        self._require_distinct()
        for flow in self._flows:
            if flow.match.type != "ipv4_udp" or any(a.type != "queue" for a in flow.actions):
                raise self._error(f"has flow {flow.name!r}, whose packets are not plain UDP")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that `packets_of` writes to packets."""
        return tuple(self._columns)

    @property
    def column_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the numbers of a frame that `packets_of` takes: one, or one for each packet."""
        return (), (self.packets,)

    def require_form(self, file: str, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> None:
        """Raise `ReplayError` if frames of a file are not those of the plan in its mode."""
        wanted = frame_form(self._plan)
        if (tuple(shape), dtype) != wanted:
            raise ReplayError(
                f"{file} has frames of shape {tuple(shape)} and type {dtype}, and {self._name} "
                f"makes {wanted[0]} and {wanted[1]}. If the plan had another mode, its metadata "
                "file has to name it: 'mode'."
            )

    def packets_of(
        self,
        data: NDArray[Any],
        batches: NDArray[np.int64],
        valid: NDArray[np.bool_],
        columns: Mapping[str, NDArray[Any]] | None = None,
    ) -> Bytes:
        """Return the packets of frames, as rows.

        Parameters
        ----------
        data : ndarray, shape (n, ...)
            Frames.
        batches : ndarray of uint64, shape (n,)
            Their batch numbers.
        valid : ndarray of bool, shape (n, `packets`)
            Which of their packets to make.
        columns : mapping of str to ndarray of uint64, shape (n,) or (n, `packets`), optional
            Their `columns`, with a number for each frame or for each packet. Fields of those that
            are not given are 0.

        Raises
        ------
        ReplayError
            If the plan's conditions would not take the packets.
        """
        frame, slot = np.nonzero(valid)
        payload = self._slots_of(data)[frame, slot]
        end = self._header + payload.shape[1]
        rows = np.zeros((len(payload), max(end, self._least)), np.uint8)
        rows[:, self._header : end] = payload
        for name, numbers in (columns or {}).items():
            field = self._columns[name]
            if self._end(field) <= self._header or self._begin(field) >= end:
                own = numbers[frame] if numbers.ndim == 1 else numbers[frame, slot]
                self._put(rows, field, own.astype(np.uint64))
        self._put_numbers(rows, batches[frame], slot.astype(np.uint64))
        return self._framed(rows, slot // self._stride) if self._ethernet else rows

    def _slots_of(self, data: NDArray[Any]) -> Bytes:
        """Return the payload of each slot; that of a shorter last packet is padded with 0."""
        size, types = self._plan.payload_bytes, self._plan.data_types
        flows = self.packets // self._stride if self.packets % self._stride == 0 else 1
        if self._pixels is not None:
            data = data.reshape(len(data), -1)[:, self._pixels]
        parts = np.ascontiguousarray(data).view(np.uint8).reshape(len(data), flows, -1)
        if types is not None:
            parts = pixel_bytes(
                parts.view(pixel_dtype(types.output_type)),
                types.input_type,
                byte_order="big" if types.endianness == "network" else sys.byteorder,
                packing=types.packing,
            )
        short = size * (self.packets // flows) - parts.shape[2] if size else 0
        padded = np.pad(parts, ((0, 0), (0, 0), (0, short))) if short else parts
        return padded.reshape(len(data), self.packets, -1)

    def _put_numbers(self, rows: Bytes, batch: NDArray[Any], slot: NDArray[np.uint64]) -> None:
        plan = self._plan
        for condition in plan.conditions:
            self._put(rows, condition.field, np.full(len(rows), condition.at_least, np.uint64))
        if plan.payload_offset_field is not None:
            self._put(
                rows, plan.payload_offset_field, np.full(len(rows), self._offset_units, np.uint64)
            )
        at, flow = slot % self._stride, slot // self._stride
        field = plan.packet_number or plan.sequence_number
        if field is not None:
            if plan.method != "batch_packet_number" or plan.running:
                # All numbers wrap.
                at = batch.astype(np.uint64) * np.uint64(self._stride) + at
            firsts = np.array(plan.first_packet or (0,), np.uint64)
            first = firsts[flow if len(firsts) > 1 else 0]
            self._put(rows, field, at * np.uint64(field.step) + first)
        if plan.batch_number is not None:
            # It may be the upper bits of the sequence number.
            self._put(rows, plan.batch_number, batch.astype(np.uint64))
        for condition in plan.conditions:
            found = self._get(rows, condition.field) & np.uint64(condition.mask)
            if np.any((found < condition.at_least) | (found > condition.at_most)):
                raise self._error("has conditions on bits that also have other meanings")

    def _put(self, rows: Bytes, field: ReorderBitFieldConfig, values: NDArray[np.uint64]) -> None:
        mask = ((1 << field.bit_width) - 1) << _unused_bits(field)
        bits = (values << np.uint64(_unused_bits(field))) & np.uint64(mask)
        for column, shift in self._bytes_in(rows, field):
            column &= np.uint8(~(mask >> shift) & 0xFF)
            column |= (bits >> np.uint64(shift) & np.uint64(0xFF)).astype(np.uint8)

    def _get(self, rows: Bytes, field: ReorderBitFieldConfig) -> NDArray[np.uint64]:
        found = np.zeros(len(rows), np.uint64)
        for column, shift in self._bytes_in(rows, field):
            found |= column.astype(np.uint64) << np.uint64(shift)
        mask = np.uint64((1 << field.bit_width) - 1)
        return (found >> np.uint64(_unused_bits(field))) & mask

    def _bytes_in(self, rows: Bytes, field: ReorderBitFieldConfig) -> Iterator[tuple[Bytes, int]]:
        """Yield the field's bytes, with the place of each in the number, bits."""
        first, count = self._begin(field), _bytes_of(field)
        for i in range(count):
            yield rows[:, first + i], 8 * (count - 1 - i if field.byte_order == "big" else i)

    def _framed(self, payloads: Bytes, flow: NDArray[Any]) -> Bytes:
        matches = [each.match for each in self._flows]

        def of(name: str, default: Any) -> NDArray[Any]:
            found = [getattr(match, name) for match in matches]
            firsts = [value[0] if isinstance(value, tuple) else value for value in found]
            return np.array([default if value is None else value for value in firsts])[flow]

        made = np.empty((len(payloads), _OVERHEAD + payloads.shape[1]), np.uint8)
        for number in np.unique(flow):
            rows = flow == number
            made[rows] = ethernet.udp_frames(
                payloads[rows],
                src_mac=_MAC[0],
                dst_mac=_MAC[1],
                src_ip=str(of("ipv4_src", _ADDRESSES[0])[rows][0]),
                dst_ip=str(of("ipv4_dst", _ADDRESSES[1])[rows][0]),
                src_port=int(of("udp_src", _PORT)[rows][0]),
                dst_port=int(of("udp_dst", _PORT)[rows][0]),
            )
        return made

    def _begin(self, field: ReorderBitFieldConfig) -> int:
        """First byte of a field in the UDP payload."""
        return field.bit_offset // 8 - self._skipped(field.base)

    def _end(self, field: ReorderBitFieldConfig) -> int:
        return self._begin(field) + _bytes_of(field)

    def _skipped(self, base: str) -> int:
        return self._overhead if base == "packet" else 0

    def _packets_of(self, plan: ReorderConfig) -> int:
        if plan.packets_per_batch is None:
            raise self._error("has packets of different lengths, which files of frames do not have")
        return plan.packets_per_batch

    def _require_distinct(self) -> None:
        seen: dict[Any, str] = {}
        for flow in self._flows:
            match = flow.match
            known = (match.udp_src, match.udp_dst, match.ipv4_src, match.ipv4_dst)
            if known in seen:
                other = seen[known]
                raise self._error(
                    f"has flows {other!r} and {flow.name!r} of several ports, whose packets are "
                    "alike"
                )
            seen[known] = flow.name

    def _require_own_types(self) -> None:
        types = self._plan.data_types
        # Integers become integers that hold all their values.
        if types is not None and not (
            types.input_type == types.output_type or "int" in types.output_type
        ):
            raise self._error(
                f"converts {types.input_type} to {types.output_type}; its files have no packets' "
                "bytes"
            )

    def _error(self, problem: str) -> ReplayError:
        return ReplayError(
            f"The frames cannot be sent as packets: {self._name} {problem}. Replay a run with a "
            "capture of packets."
        )


def _bytes_of(field: ReorderBitFieldConfig) -> int:
    return (field.bit_offset % 8 + field.bit_width + 7) // 8


def _unused_bits(field: ReorderBitFieldConfig) -> int:
    """Bits after the field in its last byte."""
    if field.byte_order == "little":
        return 0
    return _bytes_of(field) * 8 - field.bit_offset % 8 - field.bit_width
