"""``daqiri-ophyd send``."""

from pathlib import Path
from typing import Annotated

import typer

from ._part import PlayOptions, with_play_options
from ._source import CONFIG_HELP


@with_play_options
def send(
    config: Annotated[str, typer.Argument(help=CONFIG_HELP)],
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE.pcap", help="Packets to send.", dir_okay=False),
    ],
    options: PlayOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Send the packets of a pcap file with their original gaps; gaps over 10 s are announced.

    Ethernet frames are sent unchanged on Ethernet ports, except for --rewrite. Captures of socket
    ports are sent on socket ports: the payloads of UDP, the stream of one TCP connection.

    Example: [bold]daqiri-ophyd send udp capture_000000.pcap --speed 2[/bold]
    """
    from ._send_packets import open_sender, print_sent

    with open_sender(config, options) as sender:
        print_sent(sender.play([file], file.name, tells=not as_json), as_json)
