"""Options of `send` and `replay`: selection, schedule and destination of packets."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer

from ._limits import number, seconds, whole


@dataclass(kw_only=True)
class PlayOptions:
    """Options for the queue, selection, schedule and destination of packets."""

    port: Annotated[str | None, typer.Option(metavar="NAME", help="Interface to send through.")] = (
        None
    )
    queue: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Transmit queue. Default: the port's first."),
    ] = None
    between: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="FROM TO",
            help="Send packets from the first to before the second time, in seconds after the "
            "first packet.",
            parser=seconds(),
        ),
    ] = None
    packets: Annotated[
        str | None,
        typer.Option(
            metavar="BEGIN:END",
            help="Send packets with these numbers, from 0: 100:200, 100: or :9.",
        ),
    ] = None
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE",
            help="Send packets with this header field: udp_dst=5000. Can be repeated.",
        ),
    ] = None
    loops: Annotated[
        int,
        typer.Option(metavar="COUNT", help="Number of times to send the packets.", parser=whole(1)),
    ] = 1
    loop_gap: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Gap from the last packet to the next loop. Default: the mean gap.",
            parser=seconds(),
        ),
    ] = None
    rewrite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE",
            help="Address or port to set in Ethernet frames: ip_dst=10.0.0.2. Fields: mac_src, "
            "mac_dst, ip_src, ip_dst, udp_src, udp_dst. Can be repeated.",
        ),
    ] = None
    speed: Annotated[
        float,
        typer.Option(
            metavar="FACTOR",
            help="Factor on time; 2 halves the gaps.",
            parser=number(1e-6, 1_000_000),
        ),
    ] = 1.0
    max_gap: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Longest gap of the original time; longer gaps are shortened to it.",
            parser=seconds(),
        ),
    ] = None
    start_delay: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Time from now to the first packet.", parser=seconds()
        ),
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
