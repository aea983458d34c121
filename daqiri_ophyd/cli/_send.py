"""``daqiri-ophyd send``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..engine import Engine, NetworkConfig, Port, TxQueue, load_config
from ..replay import Replay, Transmission
from ._output import print_facts, print_json, progress_bar
from ._part import Between, LoopGap, Loops, PacketRange, Rewrite, Select, open_source
from ._source import config_path, interface_with


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


def transmit(port: Port, queue: TxQueue, source: Replay, start_delay: float) -> dict[str, Any]:
    """Send a replay to its end, with progress; return its counters."""
    queue.reset_lateness()
    before = queue.counters()
    transmission = Transmission(port, queue, source, start_delay=start_delay)
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
    start_delay: Annotated[
        float, typer.Option(help="Seconds from now to the first packet.", min=0.0)
    ] = 0.2,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Send the packets of a pcap file with their original gaps.

    Ethernet frames are sent unchanged on Ethernet ports, but for --rewrite. Captures of socket
    ports are sent on socket ports: the payloads of UDP, the stream of one TCP connection.

    Example: [bold]daqiri-ophyd send udp capture_000000.pcap --speed 2[/bold]
    """
    loaded = load_config(config_path(config))
    interface = interface_with(loaded, "tx", port)
    with open_to_send(loaded, interface) as engine:
        sender = engine.port(interface)
        tx = sender.tx[0] if queue is None else sender.tx_queue(queue)
        source = open_source(
            [file],
            loaded,
            sender,
            tx,
            between=between,
            packets=packets,
            select=select,
            loops=loops,
            loop_gap=loop_gap,
            rewrite=rewrite,
            speed=speed,
        )
        result = transmit(sender, tx, source, start_delay)
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
