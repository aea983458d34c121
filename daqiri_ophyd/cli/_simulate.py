"""``daqiri-ophyd simulate``."""

import socket
import time
from contextlib import ExitStack
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from ..engine import Engine, NetworkConfig, frames
from ..simulate import INSTRUMENTS, Chunk, Disturbance, Instrument, Traffic
from ._output import print_facts, print_json, progress_bar
from ._send import open_to_send
from ._source import interface_with, load_source

# With several streams, stream i of an instrument sends from this port + i.
_SOURCE_PORT = 50101
_GROUP = 16


class _Destination:
    """Destination of packets: a host, and one UDP port for all streams or one for each."""

    def __init__(self, text: str, instrument: Instrument) -> None:
        host, colon, ports = text.rpartition(":")
        first, dash, last = ports.partition("-")
        numbers = [first, last] if dash else [first, first]
        good = bool(host and colon) and all(n.isdecimal() and int(n) < 65536 for n in numbers)
        if good:
            self.ports = list(range(int(numbers[0]), int(numbers[1]) + 1))
            good = len(self.ports) in {1, instrument.streams}
        if not good:
            most = instrument.streams
            each = f", or HOST:FIRST-LAST with {most} ports" if most > 1 else ""
            raise typer.BadParameter(f"destination is {text!r}; accepted is HOST:PORT{each}")
        self.ports *= instrument.streams // len(self.ports)
        self.host = host.strip("[]")


class _Sockets:
    """Sends with one kernel UDP socket for each stream."""

    def __init__(self, to: _Destination, instrument: Instrument, rate: float) -> None:
        self._interval = 1 / (rate * instrument.packets_per_frame) if rate else 0.0
        self._begin: float | None = None
        self._packets = 0
        self._open = ExitStack()
        self._streams: list[tuple[socket.socket, Any]] = []
        for stream, port in enumerate(to.ports):
            family, kind, _, _, address = socket.getaddrinfo(to.host, port, type=socket.SOCK_DGRAM)[
                0
            ]
            sender = self._open.enter_context(socket.socket(family, kind))
            if instrument.streams > 1:
                sender.bind(("", _SOURCE_PORT + stream))
            self._streams.append((sender, address))

    def send(self, chunk: Chunk) -> None:
        """Send packets, each at its due time."""
        self._begin = time.monotonic() if self._begin is None else self._begin
        streams = chunk.streams.tolist()
        for i, packet in enumerate(chunk.packets):
            if self._packets % _GROUP == 0:
                due = self._begin + self._packets * self._interval
                if (wait := due - time.monotonic()) > 0:
                    time.sleep(wait)
            sender, address = self._streams[streams[i]]
            sender.sendto(packet, address)
            self._packets += 1

    def finish(self) -> dict[str, int]:
        """Return further results."""
        return {}

    def close(self) -> None:
        self._open.close()


class _Queue:
    """Sends with a transmit queue of an engine."""

    def __init__(
        self,
        config: NetworkConfig,
        queue: str | None,
        to: _Destination,
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
        self._engine: Engine = open_to_send(config, interface)
        self._port = self._engine.port(interface)
        self._queue = self._port.tx_queue(name) if name else self._port.tx[0]
        self._to = to
        self._interval = 1e9 / (rate * instrument.packets_per_frame) if rate else 0.0
        self._begin: int | None = None
        self._packets = 0

    def send(self, chunk: Chunk) -> None:
        """Submit packets, each with its due time."""
        count = len(chunk.packets)
        times: NDArray[np.int64] | None = None
        if self._interval:
            self._begin = self._port.now() if self._begin is None else self._begin
            number = np.arange(self._packets, self._packets + count)
            times = self._begin + (number * self._interval).astype(np.int64)
        packets = self._framed(chunk) if self._raw else chunk.packets
        self._queue.send(packets, launch_times=times, timeout=None)
        self._packets += count

    def _framed(self, chunk: Chunk) -> NDArray[np.uint8]:
        return frames.udp_frames(
            chunk.packets,
            src_mac="02:00:00:00:00:01",
            dst_mac="ff:ff:ff:ff:ff:ff",
            src_ip="192.0.2.1",
            dst_ip=self._to.host,
            src_port=_SOURCE_PORT + chunk.streams,
            dst_port=np.asarray(self._to.ports)[chunk.streams],
        )

    def finish(self) -> dict[str, int]:
        """Wait until all packets have left."""
        self._queue.wait_sent()
        return {"dropped": self._queue.counters().dropped_total}

    def close(self) -> None:
        self._engine.close()


def _instrument(name: str) -> Instrument:
    if name not in INSTRUMENTS:
        raise typer.BadParameter(
            f"no instrument {name!r}; accepted are {', '.join(sorted(INSTRUMENTS))}"
        )
    return INSTRUMENTS[name]


def simulate(
    instrument: Annotated[str, typer.Argument(help=f"One of {', '.join(sorted(INSTRUMENTS))}.")],
    destination: Annotated[
        str | None,
        typer.Argument(metavar="HOST:PORT", help="Destination; FIRST-LAST: a port per stream."),
    ] = None,
    count: Annotated[int, typer.Option("--frames", "--count", help="Frames to send.", min=1)] = 100,
    rate: Annotated[
        float, typer.Option(help="Frames per second; 0: as fast as possible.", min=0.0)
    ] = 10.0,
    loss: Annotated[
        float, typer.Option(help="Probability that a packet is left out.", min=0.0, max=1.0)
    ] = 0.0,
    duplicates: Annotated[
        float, typer.Option(help="Probability that a packet is sent twice.", min=0.0, max=1.0)
    ] = 0.0,
    shuffle: Annotated[
        int,
        typer.Option(
            metavar="WINDOW", help="Send in random order within blocks of this many packets.", min=0
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(help="The same seed makes the same packets.", min=0)] = 0,
    config: Annotated[
        str | None,
        typer.Option(help="Send with an engine: configuration file or name of a profile."),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(metavar="PORT/QUEUE", help="Its transmit queue. Default: its first."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Send the packets of a simulated instrument. The profile of the same name assembles frames.

    Packets go out over UDP sockets, or with --config through an engine: as Ethernet frames from a
    raw port, as payloads from a socket.

    Example: [bold]daqiri-ophyd simulate jungfrau 127.0.0.1:50001 --loss 0.01[/bold]
    """
    chosen = _instrument(instrument)
    if destination is None and config is None:
        raise typer.BadParameter("no destination; give HOST:PORT, or --config")
    if queue is not None and config is None:
        raise typer.BadParameter("--queue is a queue of an engine; give --config, too")
    last = f"-{chosen.port + chosen.streams - 1}" if chosen.streams > 1 else ""
    to = _Destination(destination or f"192.0.2.2:{chosen.port}{last}", chosen)
    traffic = Traffic(
        chosen,
        count,
        disturbance=Disturbance(loss=loss, duplicates=duplicates, shuffle=shuffle),
        seed=seed,
    )
    sender = (
        _Sockets(to, chosen, rate)
        if config is None
        else _Queue(load_source(config), queue, to, chosen, rate)
    )
    result: dict[str, Any] = {"frames": 0, "sent": 0, "bytes": 0, "lost": 0, "duplicated": 0}
    try:
        with progress_bar("sending", count) as show:
            for chunk in traffic:
                sender.send(chunk)
                result["frames"] += len(chunk.frames)
                result["sent"] += len(chunk.packets)
                result["bytes"] += chunk.packets.size
                result["lost"] += chunk.lost
                result["duplicated"] += chunk.duplicated
                show(result["frames"])
        result |= sender.finish()
    finally:
        sender.close()
    _print(result, as_json)


def _print(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    facts = [
        ("frames", f"{result['frames']:,}"),
        ("sent", f"{result['sent']:,} packets, {result['bytes']:,} bytes"),
        ("lost on purpose", f"{result['lost']:,}"),
        ("duplicated", f"{result['duplicated']:,}"),
    ]
    if "dropped" in result:
        facts.append(("dropped", f"{result['dropped']:,}"))
    print_facts(facts)
