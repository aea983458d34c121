"""Options of `send` and `replay`: selection, schedule and destination of packets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from ..engine import NetworkConfig, Port, TxQueue
from ..replay import Replay, packet_source, segment_size
from ._limits import seconds


@dataclass(kw_only=True)
class PlayOptions:
    """Options for the queue, selection, schedule and destination of packets."""

    port: Annotated[str | None, typer.Option(help="Interface to send through.")] = None
    queue: Annotated[
        str | None, typer.Option(help="Transmit queue. Default: the port's first.")
    ] = None
    between: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="Send packets from the first to before the second time, seconds after the first "
            "one."
        ),
    ] = None
    packets: Annotated[
        str | None,
        typer.Option(help="Send packets with these numbers, from 0: 100:200, 100: or :9."),
    ] = None
    select: Annotated[
        list[str] | None,
        typer.Option(help="Send packets with this header field: udp_dst=5000. Can be repeated."),
    ] = None
    loops: Annotated[int, typer.Option(help="Number of times to send the packets.", min=1)] = 1
    loop_gap: Annotated[
        float | None,
        typer.Option(
            help="Gap from the last packet to the next loop, seconds. Default: the mean gap."
        ),
    ] = None
    rewrite: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or port to set in Ethernet frames: ip_dst=10.0.0.2. Can be repeated."
        ),
    ] = None
    speed: Annotated[float, typer.Option(help="Factor on time; 2 halves the gaps.")] = 1.0
    max_gap: Annotated[
        float | None,
        typer.Option(
            help="Longest gap, in seconds; longer gaps are shortened to it.", callback=seconds
        ),
    ] = None
    start_delay: Annotated[
        float, typer.Option(help="Seconds from now to the first packet.", callback=seconds)
    ] = 0.2


def with_play_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameter ``options`` appears to Typer as fields of `PlayOptions`."""
    shared = signature(PlayOptions).parameters
    seen: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        seen += shared.values() if name == "options" else [parameter]

    @wraps(command)
    def with_options(**given: Any) -> None:
        command(options=PlayOptions(**{name: given.pop(name) for name in shared}), **given)

    by_name = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in seen]
    with_options.__signature__ = Signature(by_name)  # pyright: ignore[reportAttributeAccessIssue]
    return with_options


def open_source(
    files: Sequence[Path],
    config: NetworkConfig,
    port: Port,
    queue: TxQueue,
    options: PlayOptions,
) -> Replay:
    """Return the packets of files that the options select, for a transmit queue of a port."""
    description = {
        "files": files,
        "between": options.between,
        "packet_range": None if options.packets is None else _range(options.packets),
        "select": _fields("--select", options.select),
        "loops": options.loops,
        "loop_gap": options.loop_gap,
        "rewrite": _fields("--rewrite", options.rewrite),
        "speed": options.speed,
        "max_gap": options.max_gap,
    }
    size = segment_size(config, port.name, queue.name)
    return cast(Replay, packet_source(description, port.link_type, size))


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
