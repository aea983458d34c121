"""``daqiri-ophyd send``."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from ..engine import Engine, NetworkConfig, Port, TxQueue, load_config
from ..replay import Chunk, Replay, Transmission
from ._limits import seconds
from ._output import print_facts, print_json, print_message, progress_bar
from ._part import Between, LoopGap, Loops, PacketRange, Rewrite, Select, open_source
from ._source import config_path, interface_with

_LONG_GAP_NS = 10_000_000_000

MaxGap = Annotated[
    float | None,
    typer.Option(
        help="Longest gap, in seconds; longer gaps are shortened to it.", callback=seconds
    ),
]
StartDelay = Annotated[
    float, typer.Option(help="Seconds from now to the first packet.", callback=seconds)
]


def open_to_send(config: NetworkConfig, interface: str) -> Engine:
    """
    Open an engine for one sender.

    On a socket stream, only the sender's interface is opened, so another process can use the rest.
    """
    document = config.to_dict()
    section = document["daqiri"]["cfg"]
    if section["stream_type"] == "socket":
        section["interfaces"] = [i for i in section["interfaces"] if i["name"] == interface]
    return Engine.open(document)


class _AnnouncedGaps:
    """A replay that announces long gaps."""

    def __init__(self, source: Replay) -> None:
        self._source = source
        self.packets = source.packets
        self.duration_ns = source.duration_ns

    def chunks(self) -> Iterator[Chunk]:
        """Yield the packets in order."""
        first, before = 0, 0
        for chunk in self._source.chunks():
            if chunk.times is not None and len(chunk):
                gaps = np.diff(chunk.times, prepend=before)
                self._announce(gaps, first)
                before = int(chunk.times[-1])
            first += len(chunk)
            yield chunk

    def _announce(self, gaps: NDArray[np.int64], first: int) -> None:
        long = np.flatnonzero(gaps > _LONG_GAP_NS)
        if not long.size:
            return
        longest = int(gaps.argmax())
        others = f", the longest of {long.size} such gaps in its part of the file"
        print_message(
            f"packet {first + longest:,} is sent {gaps[longest] / 1e9:,.0f} s after the one "
            f"before it{others if long.size > 1 else ''}; --max-gap shortens such gaps"
        )


def transmit(port: Port, queue: TxQueue, source: Replay, start_delay: float) -> dict[str, Any]:
    """
    Send a replay to its end, with progress; return its counters.

    Gaps longer than 10 s are announced before they begin.
    """
    queue.reset_lateness()
    before = queue.counters()
    announced = _AnnouncedGaps(source)
    transmission = Transmission(port, queue, announced, start_delay=start_delay)
    try:
        with progress_bar("sending", source.packets) as show:
            while not transmission.wait(0.1):
                show(transmission.progress().submitted)
    finally:
        transmission.close()
    if (error := transmission.progress().error) is not None:
        raise error
    after, lateness = queue.counters(), queue.lateness()
    return {
        "sent": after.sent - before.sent,
        "bytes": after.sent_bytes - before.sent_bytes,
        "late": after.late - before.late,
        "dropped": after.dropped_total - before.dropped_total,
        "lateness_ns": {"p50": lateness.p50, "p99": lateness.p99, "max": lateness.maximum},
    }


def play(
    files: Sequence[Path],
    config: str,
    port: str | None,
    queue: str | None,
    start_delay: float,
    begin: Callable[[Replay], object] = lambda _: None,
    **options: Any,
) -> dict[str, Any]:
    """
    Send the packets of files as the options of `send` and `replay` say; return its counters.

    ``begin`` is called with the source before the first packet is sent.
    """
    loaded = load_config(config_path(config))
    interface = interface_with(loaded, "tx", port)
    with open_to_send(loaded, interface) as engine:
        sender = engine.port(interface)
        tx = sender.tx[0] if queue is None else sender.tx_queue(queue)
        source = open_source(files, loaded, sender, tx, **options)
        begin(source)
        return transmit(sender, tx, source, start_delay)


def print_sent(result: dict[str, Any], as_json: bool) -> None:
    """Print what `play` returned."""
    if as_json:
        print_json(result)
        return
    late = result["lateness_ns"]
    print_facts(
        [
            ("sent", f"{result['sent']:,} packets, {result['bytes']:,} bytes"),
            ("dropped", f"{result['dropped']:,}"),
            ("lateness", f"p50 {late['p50'] / 1e3:.1f} µs, p99 {late['p99'] / 1e3:.1f} µs"),
        ]
    )


def send(
    config: Annotated[str, typer.Argument(help="Configuration file, or name of a profile.")],
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE.pcap", help="Packets, sent with their gaps.", dir_okay=False),
    ],
    port: Annotated[str | None, typer.Option(help="Interface to send through.")] = None,
    queue: Annotated[
        str | None, typer.Option(help="Transmit queue. Default: the port's first.")
    ] = None,
    between: Between = None,
    packets: PacketRange = None,
    select: Select = None,
    loops: Loops = 1,
    loop_gap: LoopGap = None,
    rewrite: Rewrite = None,
    speed: Annotated[float, typer.Option(help="Factor on time; 2 halves the gaps.")] = 1.0,
    max_gap: MaxGap = None,
    start_delay: StartDelay = 0.2,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Send the packets of a pcap file with their original gaps; those over 10 s are announced.

    Ethernet frames are sent unchanged on Ethernet ports, but for --rewrite. Captures of socket
    ports are sent on socket ports: the payloads of UDP, the stream of one TCP connection.

    Example: [bold]daqiri-ophyd send udp capture_000000.pcap --speed 2[/bold]
    """
    result = play(
        [file],
        config,
        port,
        queue,
        start_delay,
        between=between,
        packets=packets,
        select=select,
        loops=loops,
        loop_gap=loop_gap,
        rewrite=rewrite,
        speed=speed,
        max_gap=max_gap,
    )
    print_sent(result, as_json)
