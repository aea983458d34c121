"""``daqiri-ophyd simulate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._limits import MOST, number, whole
from ._output import print_error, print_facts, print_json, print_message, progress_bar
from ._source import load_source

if TYPE_CHECKING:
    from ..simulate import Instrument

# Keys of `simulate.INSTRUMENTS`, which needs numpy.
NAMES = (
    *("ecpri", "eiger-12bit", "eiger-16bit", "eiger-32bit", "eiger-4bit", "eiger-8bit"),
    *("gige-vision", "gige-vision-mono12p", "jungfrau", "jungfrau-2m", "jungfrau-4m"),
    *("jungfrau-500k", "jungfrau-stack", "mythen", "spead", "vita49"),
)


def simulate(
    instrument: Annotated[
        str,
        typer.Argument(
            help=f"One of {', '.join(NAMES)}, or the file of a packet format (config new)."
        ),
    ],
    destination: Annotated[
        str | None,
        typer.Argument(metavar="HOST:PORT", help="Destination; FIRST-LAST: a port per stream."),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "--frames", "--count", help="Frames to send; 0: until Ctrl-C.", parser=whole()
        ),
    ] = 100,
    rate: Annotated[
        float, typer.Option(help="Frames per second; 0: as fast as possible.", parser=number())
    ] = 10.0,
    loss: Annotated[
        float, typer.Option(help="Probability that a packet is left out.", parser=number(0, 1))
    ] = 0.0,
    duplicates: Annotated[
        float, typer.Option(help="Probability that a packet is sent twice.", parser=number(0, 1))
    ] = 0.0,
    shuffle: Annotated[
        int,
        typer.Option(
            metavar="WINDOW",
            help="Send in random order within blocks of this many packets.",
            parser=whole(),
        ),
    ] = 0,
    restart: Annotated[
        int,
        typer.Option(
            metavar="FRAMES",
            help="Pause, and number frames anew, after this many; 0: never.",
            parser=whole(),
        ),
    ] = 0,
    seed: Annotated[
        int, typer.Option(help="The same seed makes the same packets.", parser=whole())
    ] = 0,
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

    The file of a packet format makes a detector that sends test images in such packets.

    Packets go out over UDP sockets, or with --config through an engine: as Ethernet frames from a
    raw port, as payloads from a socket.

    Example: [bold]daqiri-ophyd simulate jungfrau 127.0.0.1:50001 --loss 0.01[/bold]
    """
    if instrument not in NAMES and not _is_file(instrument):
        raise typer.BadParameter(
            f"no instrument {instrument!r}; accepted are {', '.join(NAMES)}, and a YAML file that "
            "describes packets"
        )
    if destination is None and config is None:
        raise typer.BadParameter("no destination; give HOST:PORT, or --config")
    if queue is not None and config is None:
        raise typer.BadParameter("--queue is a queue of an engine; give --config, too")
    from ..simulate import Disturbance, Traffic
    from ._simulate_senders import Destination, QueueSender, SocketSender

    chosen = _instrument(instrument)
    several = chosen.streams > 1 and chosen.own_ports
    last = f"-{chosen.port + chosen.streams - 1}" if several else ""
    to = Destination(destination or f"192.0.2.2:{chosen.port}{last}", chosen)
    traffic = Traffic(
        chosen,
        count or MOST,
        restart=restart,
        disturbance=Disturbance(loss=loss, duplicates=duplicates, shuffle=shuffle),
        seed=seed,
    )
    sender = (
        SocketSender(to, chosen, rate)
        if config is None
        else QueueSender(load_source(config), queue, to, chosen, rate)
    )
    result: dict[str, Any] = {"frames": 0, "sent": 0, "bytes": 0, "lost": 0, "duplicated": 0}
    what = f"{count:,} frames" if count else "frames until Ctrl-C"
    if not as_json:
        print_message(f"sending {what} of {chosen.name} to {to.text}")
    interrupted = False
    try:
        with progress_bar("sending", count or None) as show:
            for chunk in traffic:
                sender.send(chunk)
                result["frames"] += len(chunk.frames)
                result["lost"] += chunk.lost
                result["duplicated"] += chunk.duplicated
                show(result["frames"])
        result |= sender.finish()
    except KeyboardInterrupt:
        # Part of the packets of a chunk may have been sent.
        interrupted = True
        result["frames"] = max(result["frames"], sender.packets // chosen.packets_per_frame)
    finally:
        sender.close()
    result |= {"sent": sender.packets, "bytes": sender.bytes}
    _print(result, as_json)
    if interrupted and count:
        print_error(f"interrupted; {result['frames']:,} of {count:,} frames were sent")
        raise typer.Exit(1)


def _is_file(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) or Path(name).is_file()


def _instrument(name: str) -> "Instrument":
    """Return the instrument of that name, or the detector of a file."""
    from ..simulate import INSTRUMENTS, DescribedDetector, PacketFormat, PacketFormatError

    if name in NAMES:
        return INSTRUMENTS[name]
    try:
        return DescribedDetector(PacketFormat.read(name))
    except PacketFormatError as error:
        print_error(str(error))
        raise typer.Exit(2) from None


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
