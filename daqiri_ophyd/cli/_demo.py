"""``daqiri-ophyd demo``: send, capture, store and replay, end to end."""

from pathlib import Path
from typing import Annotated

import typer

from ._limits import whole

PACKET_PROFILES = ("loopback", "udp")
# Of profiles that send frames, and how frames are written.
FRAME_PROFILES = ("frames", "gpu")
WRITERS = ("auto", "buffered", "direct", "cufile")


def demo(
    profile: Annotated[
        str,
        typer.Option(
            metavar="|".join((*PACKET_PROFILES, *FRAME_PROFILES)),
            help="loopback; udp: real sockets, sender in another process; frames: images of a "
            "simulated detector in a scan; gpu: such images, assembled by a GPU in its memory.",
        ),
    ] = "loopback",
    packets: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT",
            help="Packets to send, 20000 by default.",
            parser=whole(2, 1_000_000),
        ),
    ] = None,
    interval_us: Annotated[
        int | None,
        typer.Option(
            metavar="MICROSECONDS",
            help="Gap between packets, 100 by default.",
            parser=whole(1, 100_000),
        ),
    ] = None,
    writer: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(WRITERS),
            help="How frames are written to disk, with --profile frames or gpu. Default: auto.",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            help="Directory of the catalog, the captures and the picture.", file_okay=False
        ),
    ] = Path("daqiri-demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Send packets on a schedule, capture them, store the run, read it back, and replay it.

    With --profile frames or gpu: scan a motor with a detector whose packets are lost, duplicated
    and out of order, store its images, and compare them with the images sent.

    Requires no network card, no privileges and, except for --profile gpu, no GPU.

    Example: [bold]daqiri-ophyd demo --profile udp --json[/bold]
    """
    if profile not in (*PACKET_PROFILES, *FRAME_PROFILES):
        raise typer.BadParameter(
            f"the demonstration has profiles {', '.join((*PACKET_PROFILES, *FRAME_PROFILES))}, "
            f"not {profile!r}"
        )
    if profile in FRAME_PROFILES:
        if packets is not None or interval_us is not None:
            raise typer.BadParameter("--packets and --interval-us are for loopback and udp")
        if writer not in (None, *WRITERS):
            raise typer.BadParameter(f"--writer is one of {', '.join(WRITERS)}, not {writer!r}")
        from ._demo_frames import demo_frames

        return demo_frames(profile, writer or "auto", output, as_json)
    if writer is not None:
        raise typer.BadParameter("--writer is for the profiles frames and gpu")
    from ._demo_packets import demo_packets

    demo_packets(profile, packets or 20_000, interval_us or 100, output, as_json)
