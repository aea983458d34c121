"""Senders of simulated packets."""

import errno
import ipaddress
import re
import resource
import socket
import time
from contextlib import ExitStack
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from ..engine import Engine, NetworkConfig, ethernet
from ..simulate import Chunk, Instrument
from ._send_packets import open_to_send
from ._source import interface_with

_GROUP = 16
# Longer than the time without packets after which a plan takes numbers from the beginning, s.
_PAUSE = 0.5


class Destination:
    """Destination of packets: a host, and one UDP port for all streams or one for each."""

    def __init__(self, text: str, instrument: Instrument) -> None:
        host, colon, ports = text.rpartition(":")
        first, dash, last = ports.partition("-")
        numbers = [first, last] if dash else [first, first]
        good = bool(host and colon) and all(
            re.fullmatch("[0-9]{1,5}", n) and 0 < int(n) < 65536 for n in numbers
        )
        if good:
            self.ports = list(range(int(numbers[0]), int(numbers[1]) + 1))
            good = len(self.ports) == instrument.streams or (
                len(self.ports) == 1 and not instrument.needs_own_ports
            )
        if not good:
            most = instrument.streams
            accepted = [] if instrument.needs_own_ports else ["HOST:PORT"]
            if most > 1:
                accepted.append(f"HOST:FIRST-LAST with {most} ports")
            raise typer.BadParameter(
                f"destination is {text!r}; accepted is {', or '.join(accepted)}. Ports are 1 to "
                "65535"
            )
        self.ports *= instrument.streams // len(self.ports)
        self.host = host.strip("[]")
        self.text = text


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


class SocketSender:
    """Sends with one kernel UDP socket for each stream."""

    def __init__(self, to: Destination, instrument: Instrument, rate: float) -> None:
        self._interval = 1 / (rate * instrument.packets_per_frame) if rate else 0.0
        self._begin: float | None = None
        self.packets = self.bytes = 0
        self._streams: list[tuple[socket.socket, Any]] = []
        with ExitStack() as opened:
            try:
                self._connect(to, instrument, opened)
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
                most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
                raise RuntimeError(
                    f"{instrument.name} has {instrument.streams} streams, each with a socket, and "
                    f"this process may open {most} files; allow more: ulimit -n "
                    f"{instrument.streams + 256}"
                ) from None
            self._open = opened.pop_all()

    def _connect(self, to: Destination, instrument: Instrument, opened: ExitStack) -> None:
        # Streams that need a port each to send to may come from any, unless a format names some.
        named = instrument.source_port != Instrument.source_port
        from_own = instrument.streams > 1 and (named or not instrument.needs_own_ports)
        for stream, port in enumerate(to.ports):
            try:
                found = socket.getaddrinfo(to.host, port, type=socket.SOCK_DGRAM)
            except (socket.gaierror, UnicodeError) as error:
                raise typer.BadParameter(
                    f"HOST:PORT: host {to.host!r} is not known "
                    f"({getattr(error, 'strerror', None) or error})"
                ) from None
            family, kind, _, _, address = found[0]
            sender = opened.enter_context(socket.socket(family, kind))
            if from_own:
                self._bind(sender, instrument, stream)
            self._streams.append((sender, address))

    @staticmethod
    def _bind(sender: socket.socket, instrument: Instrument, stream: int) -> None:
        port = instrument.source_port + stream
        try:
            sender.bind(("", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise RuntimeError(
                f"UDP port {port}, from which {instrument.name} sends its stream {stream}, is in "
                "use, as by another simulate; end the program that has it: ss -ulpn sport = "
                f":{port}"
            ) from None

    def send(self, chunk: Chunk) -> None:
        """Send packets, each at its due time."""
        self._begin = time.monotonic() if self._begin is None else self._begin
        if chunk.begins_anew:
            time.sleep(_PAUSE)
            self._begin += _PAUSE
        streams, sizes = chunk.streams.tolist(), chunk.sizes.tolist()
        for i, packet in enumerate(chunk.packets):
            if self.packets % _GROUP == 0:
                due = self._begin + self.packets * self._interval
                if (wait := due - time.monotonic()) > 0:
                    time.sleep(wait)
            sender, address = self._streams[streams[i]]
            sender.sendto(packet[: sizes[i]], address)
            self.packets += 1
            self.bytes += sizes[i]

    def finish(self) -> dict[str, int]:
        """Return further results."""
        return {}

    def close(self) -> None:
        self._open.close()


class QueueSender:
    """Sends with a transmit queue of an engine."""

    def __init__(
        self,
        config: NetworkConfig,
        queue: str | None,
        to: Destination,
        instrument: Instrument,
        rate: float,
    ) -> None:
        port, _, name = (queue or "").partition("/")
        interface = interface_with(config, "tx", port or None)
        self._raw = config.to_dict()["daqiri"]["cfg"]["stream_type"] == "raw"
        if instrument.streams > 1 and not self._raw:
            raise typer.BadParameter(
                f"{instrument.name} has {instrument.streams} UDP streams, and a socket has one; "
                "give a destination without --config, or a configuration with stream_type: raw"
            )
        if self._raw and not _is_ipv4(to.host):
            raise typer.BadParameter(
                f"HOST:PORT: found host {to.host!r}; with --config of raw ports, accepts an IPv4 "
                "address"
            )
        self._engine: Engine = open_to_send(config, interface)
        self._port = self._engine.port(interface)
        self._queue = self._port.tx_queue(name) if name else self._port.tx[0]
        self._to = to
        self._source_port = instrument.source_port
        self._interval = 1e9 / (rate * instrument.packets_per_frame) if rate else 0.0
        self._begin: int | None = None
        self.packets = self.bytes = 0

    def send(self, chunk: Chunk) -> None:
        """Submit packets, each with its due time."""
        count = len(chunk.packets)
        times: NDArray[np.int64] | None = None
        if chunk.begins_anew:
            self._queue.wait_sent()
            time.sleep(_PAUSE)
            self._begin = None if self._begin is None else self._begin + int(_PAUSE * 1e9)
        if self._interval:
            self._begin = self._port.now() if self._begin is None else self._begin
            number = np.arange(self.packets, self.packets + count)
            times = self._begin + (number * self._interval).astype(np.int64)
        if self._raw:
            self._queue.send(self._framed(chunk), launch_times=times, timeout=None)
        else:
            self._queue.send(chunk.packets, lengths=chunk.sizes, launch_times=times, timeout=None)
        self.packets += count
        self.bytes += int(chunk.sizes.sum())

    def _framed(self, chunk: Chunk) -> Any:
        sizes = np.unique(chunk.sizes)
        if len(sizes) == 1:
            return self._rows(chunk.packets[:, : sizes[0]], chunk.streams)
        framed: list[Any] = [None] * len(chunk.packets)
        for size in sizes:
            which = np.flatnonzero(chunk.sizes == size)
            rows = self._rows(chunk.packets[which, :size], chunk.streams[which])
            for i, row in zip(which.tolist(), rows, strict=True):
                framed[i] = row
        return framed

    def _rows(self, payloads: NDArray[np.uint8], streams: NDArray[np.intp]) -> NDArray[np.uint8]:
        return ethernet.udp_frames(
            payloads,
            src_mac="02:00:00:00:00:01",
            dst_mac="ff:ff:ff:ff:ff:ff",
            src_ip="192.0.2.1",
            dst_ip=self._to.host,
            src_port=self._source_port + streams,
            dst_port=np.asarray(self._to.ports)[streams],
        )

    def finish(self) -> dict[str, int]:
        """Wait until all packets have left."""
        self._queue.wait_sent()
        return {"dropped": self._queue.counters().dropped_total}

    def close(self) -> None:
        self._engine.close()
