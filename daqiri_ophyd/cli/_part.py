"""Options of `send` and `replay`: which packets are sent, how often, to whom."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer

import daqiri_ophyd.plans as plans

from ..engine import NetworkConfig, Port, TxQueue
from ..replay import Replay, segment_size

Between = Annotated[
    tuple[float, float] | None,
    typer.Option(
        help="Only packets from the first to before the second time, seconds after the first one."
    ),
]
PacketRange = Annotated[
    str | None,
    typer.Option("--packets", help="Only packets with these numbers, from 0: 100:200, 100: or :9."),
]
Select = Annotated[
    list[str] | None,
    typer.Option(help="Only packets with this header field: udp_dst=5000. Can be repeated."),
]
Loops = Annotated[int, typer.Option(help="How many times to send the packets.", min=1)]
LoopGap = Annotated[
    float | None,
    typer.Option(help="Gap from the last packet to the next loop, seconds. Default: the mean gap."),
]
Rewrite = Annotated[
    list[str] | None,
    typer.Option(
        help="Address or port to put into Ethernet frames: ip_dst=10.0.0.2. Can be repeated."
    ),
]


def open_source(
    files: Sequence[Path],
    config: NetworkConfig,
    port: Port,
    queue: TxQueue,
    *,
    packets: str | None,
    select: list[str] | None,
    rewrite: list[str] | None,
    **options: Any,
) -> Replay:
    """Return the packets of files that the options select, for a transmit queue of a port."""
    description = {
        "files": files,
        "packet_range": None if packets is None else _range(packets),
        "select": _fields("--select", select),
        "rewrite": _fields("--rewrite", rewrite),
        **options,
    }
    size = segment_size(config, port.name, queue.name)
    return cast(Replay, plans.packet_source(description, port.link_type, size))


def _range(text: str) -> list[int | None]:
    ends = text.split(":")
    if len(ends) != 2 or not all(end.isdecimal() or not end for end in ends):
        raise typer.BadParameter(f"--packets is {text!r}; accepted is BEGIN:END, such as 100:200")
    return [int(ends[0] or 0), int(ends[1]) if ends[1] else None]


def _fields(option: str, texts: list[str] | None) -> dict[str, int | str]:
    fields: dict[str, int | str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise typer.BadParameter(f"{option} is {text!r}; accepted is FIELD=VALUE")
        fields[name] = int(value) if value.isdecimal() else value
    return fields
