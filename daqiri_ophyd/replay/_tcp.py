"""The byte stream in a capture of a TCP port."""

from collections.abc import Callable
from socket import AF_INET, AF_INET6, inet_ntop
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.engine import NetworkConfig, Packets

from ._source import ReplayError

__all__ = ["TcpStream", "segment_size", "split"]

_TCP = 6
_ENDS = ["ipv4_src", "ipv6_src", "src_port", "ipv4_dst", "ipv6_dst", "dst_port"]


def segment_size(config: NetworkConfig, interface: str, queue: str) -> int | None:
    """Return the bytes of the longest packet that a transmit queue of a TCP port sends.

    Parameters
    ----------
    config : NetworkConfig
        Configuration of the engine.
    interface, queue : str
        Name of the port, and of its transmit queue.

    Returns
    -------
    int or None
        Bytes; None if the port is not TCP.
    """
    port = next(i for i in config.interfaces if i.name == interface)
    socket = port.socket_config
    if socket is None or not (socket.remote_addr or socket.local_addr or "").startswith("tcp://"):
        return None
    regions = next(q for q in port.tx.queues if q.name == queue).memory_regions
    size = sum(r.buf_size for r in config.memory_regions if r.name in regions)
    return min(size, socket.max_payload_size or size)


def split(
    offsets: NDArray[np.int64], lengths: NDArray[np.int64], times: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Cut records into pieces of at most ``size`` bytes, each with the time of its record.

    Returns
    -------
    offsets, lengths, times : ndarray of int64, shape (pieces,)
        Position, length and time of each piece; empty records are left out.
    """
    pieces = -(-lengths // size)
    record = np.repeat(np.arange(len(lengths)), pieces)
    within = np.arange(len(record)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = within * size
    return offsets[record] + begin, np.minimum(size, lengths[record] - begin), times[record]


class TcpStream:
    """Checks that the packets of a capture are one direction of one connection, in order."""

    def __init__(self) -> None:
        self._connection: NDArray[np.uint8] | None = None
        self._text = ""
        self._next = 0

    def check(self, packets: Packets, describe: Callable[[int], str]) -> None:
        """Check the next packets of the capture.

        Parameters
        ----------
        packets : Packets
            At least one packet.
        describe : callable
            Returns the packet number and the file of a packet, for errors.

        Raises
        ------
        ReplayError
            If a packet is not a TCP segment, belongs to another connection, or repeats bytes.
        """
        names = ["transport", "tcp_seq", "payload_length", *_ENDS]
        columns = packets.to_columns(names)
        other = columns["transport"] != _TCP
        if other.any():
            raise ReplayError(
                f"{describe(int(np.argmax(other)))} is not a TCP segment; a TCP port sends only "
                "packets captured on a TCP port."
            )
        ends = np.concatenate(
            [
                np.ascontiguousarray(columns[n]).view(np.uint8).reshape(len(packets), -1)
                for n in _ENDS
            ],
            axis=1,
        )
        if self._connection is None:
            self._connection, self._text = ends[0], _ends_text(columns, 0)
            self._next = int(columns["tcp_seq"][0])
        strange = (ends != self._connection).any(axis=1)
        if strange.any():
            at = int(np.argmax(strange))
            address = "ipv6_src" if columns["ipv6_src"][at].any() else "ipv4_src"
            raise ReplayError(
                f"{describe(at)} belongs to the TCP connection {_ends_text(columns, at)}, those "
                f"before it to {self._text}. One connection is replayed at a time; select it: "
                f"select={{'tcp_src': {columns['src_port'][at]}}}, and '{address}' if ports repeat."
            )
        sequence = columns["tcp_seq"].astype(np.int64)
        ahead = sequence + columns["payload_length"]
        missing = (sequence - np.concatenate([[self._next], ahead[:-1]])) % 2**32
        backwards = missing >= 2**31
        if backwards.any():
            raise ReplayError(
                f"{describe(int(np.argmax(backwards)))} repeats bytes of the stream, or is out of "
                "order, as in captures from the wire; a TCP port replays captures of TCP ports."
            )
        self._next = int(ahead[-1])


def _ends_text(columns: dict[str, Any], at: int) -> str:
    def end(which: str) -> str:
        if columns[f"ipv6_{which}"][at].any():
            # As the kernel writes it; ipaddress does since Python 3.13.
            packed = columns[f"ipv6_{which}"][at].tobytes()
            address = f"[{inet_ntop(AF_INET6, packed)}]"
        else:
            packed = int(columns[f"ipv4_{which}"][at]).to_bytes(4, "big")
            address = inet_ntop(AF_INET, packed)
        return f"{address}:{columns[f'{which}_port'][at]}"

    return f"{end('src')} to {end('dst')}"
