"""Packets of a reorder plan's format, made of its frames."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.engine import (
    LINKTYPE_ETHERNET,
    NetworkConfig,
    ReorderBitFieldConfig,
    ReorderConfig,
    ethernet,
)

from ._source import ReplayError

__all__ = ["FrameFormat"]

_OVERHEAD = 42  # Ethernet, IPv4 and UDP headers
_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
_ADDRESSES = "192.0.2.1", "192.0.2.2"  # reserved for documentation, RFC 5737
_PORT = 4000

Bytes = NDArray[np.uint8]


class FrameFormat:
    """The packets that a reorder plan assembles into frames.

    Header fields other than those that the plan reads are 0.

    Parameters
    ----------
    config : NetworkConfig
        Configuration of the plan's engine.
    plan : str
        Names of the port and of the plan: ``port0/images``.
    link_type : int
        Link type of the port to send on.

    Raises
    ------
    ReplayError
        If there is no such plan, or its packets cannot be made of its frames.
    """

    def __init__(self, config: NetworkConfig, plan: str, link_type: int) -> None:
        self._name = f"reorder plan {plan!r}"
        plans = [
            (interface.rx.flows, each)
            for interface in config.interfaces
            for each in interface.rx.reorder_configs
            if f"{interface.name}/{each.name}" == plan
        ]
        if not plans:
            raise ReplayError(f"The configuration of the frames has no {self._name}.")
        flows, self._plan = plans[0]
        self.group = "/entry/instrument/" + self._plan.name.replace("/", "_")
        """Group of the frames in their files."""
        self._ethernet = link_type == LINKTYPE_ETHERNET
        self._overhead = _OVERHEAD if config.stream_type == "raw" else 0
        self.packets = self._packets_of(self._plan)
        """Packets of a complete frame."""
        self._require_own_types()
        self._header = self._plan.payload_byte_offset - self._skipped(self._plan.payload_base)
        fields = (self._plan.sequence_number, self._plan.batch_number, self._plan.packet_number)
        begins = [self._begin(field) for field in fields if field is not None]
        if min([self._header, *begins]) < 0:
            raise self._error("reads fields or data before the UDP payload")
        self._stride = self._plan.flow_stride or self.packets
        by_id = {flow.id: flow for flow in flows}
        self._flows = [by_id[number] for number in self._plan.flow_ids]
        used = -(-self.packets // self._stride)
        self._flows = self._flows[:used]
        if not self._ethernet and used > 1:
            raise self._error("has packets of several flows, which a socket port cannot tell apart")
        for flow in self._flows:
            if flow.match.type != "ipv4_udp" or any(a.type != "queue" for a in flow.actions):
                raise self._error(f"has flow {flow.name!r}, whose packets are not plain UDP")

    def packets_of(
        self, data: NDArray[Any], batches: NDArray[np.int64], valid: NDArray[np.bool_]
    ) -> Bytes:
        """Return the packets of frames, as rows.

        Parameters
        ----------
        data : ndarray, shape (n, ...)
            Frames.
        batches : ndarray of int64, shape (n,)
            Their batch numbers.
        valid : ndarray of bool, shape (n, `packets`)
            Which of their packets to make.
        """
        frame, slot = np.nonzero(valid)
        parts = np.ascontiguousarray(data).view(np.uint8).reshape(len(data), self.packets, -1)
        payload = parts[frame, slot]
        types = self._plan.data_types
        if types is not None and types.endianness == "network":
            size = np.dtype(types.input_type).itemsize
            payload = payload.reshape(len(payload), -1, size)[..., ::-1].reshape(len(payload), -1)
        rows = np.zeros((len(payload), self._header + payload.shape[1]), np.uint8)
        rows[:, self._header :] = payload
        self._put_numbers(rows, batches[frame], slot % self._stride)
        return self._framed(rows, slot // self._stride) if self._ethernet else rows

    def _put_numbers(self, rows: Bytes, batch: NDArray[Any], at: NDArray[Any]) -> None:
        plan = self._plan
        if plan.method == "seq_packets_per_batch":
            self._put(rows, plan.sequence_number, batch * self._stride + at)
            return
        self._put(rows, plan.batch_number, batch)
        if plan.method == "seq_batch_number":
            # The batch number may be its upper bits.
            self._put(rows, plan.sequence_number, batch * self.packets + at)
        else:
            self._put(rows, plan.packet_number, at + (plan.first_packet or 0))

    def _put(
        self, rows: Bytes, field: ReorderBitFieldConfig | None, values: NDArray[np.int64]
    ) -> None:
        if field is None:  # never: the plan's method has it
            return
        first = self._begin(field)
        big = field.byte_order == "big"
        count = (field.bit_offset % 8 + field.bit_width + 7) // 8
        unused = count * 8 - field.bit_offset % 8 - field.bit_width if big else 0
        mask = ((1 << field.bit_width) - 1) << unused
        bits = (values << unused) & mask
        for i in range(count):
            shift = 8 * (count - 1 - i if big else i)
            column = rows[:, first + i]
            column &= np.uint8(~(mask >> shift) & 0xFF)
            column |= (bits >> shift & 0xFF).astype(np.uint8)

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

    def _skipped(self, base: str) -> int:
        return self._overhead if base == "packet" else 0

    def _packets_of(self, plan: ReorderConfig) -> int:
        if plan.sequence_number is not None and plan.batch_number is not None:
            return 1 << (plan.sequence_number.bit_width - plan.batch_number.bit_width)
        if plan.packets_per_batch is None:
            raise self._error("has packets of different lengths, which files of frames do not have")
        return plan.packets_per_batch

    def _require_own_types(self) -> None:
        types = self._plan.data_types
        if types is not None and types.input_type != types.output_type:
            raise self._error(
                f"converts {types.input_type} to {types.output_type}; its files have no packets' "
                "bytes"
            )

    def _error(self, problem: str) -> ReplayError:
        return ReplayError(
            f"The frames cannot be sent as packets: {self._name} {problem}. Replay a run with a "
            "capture of packets."
        )
