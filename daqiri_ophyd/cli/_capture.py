"""``daqiri-ophyd capture``."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from . import _limits
from ._advice import as_options
from ._data_directory import DATA, CatalogName, Data, captures_of
from ._output import (
    counts_text,
    print_error,
    print_facts,
    print_json,
    print_line,
    print_message,
    reason,
)
from ._source import CONFIG_HELP, interface_with, load_source

if TYPE_CHECKING:
    from ..engine import NetworkConfig
    from ._early_recording import EarlyRecording

OnDrop = Literal["fail", "flag", "ignore"]
# Longest time without packets of a file that is sent, s.
_SENT_S = 60.0


def capture(
    config: Annotated[str, typer.Argument(help=CONFIG_HELP)],
    port: Annotated[
        str | None, typer.Option(metavar="NAME", help="Interface to capture on.")
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Receive queue, several with commas, or all. Default: the port's first.",
        ),
    ] = None,
    udp_port: Annotated[
        list[int] | None,
        typer.Option(
            metavar="PORT",
            help="On a network interface: capture only UDP packets to this port (IPv4 and IPv6). "
            "Can be repeated.",
            parser=_limits.whole(1, 65535),
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="On a network interface: capture only UDP packets from or to this IPv4 address. "
            "Can be repeated.",
        ),
    ] = None,
    packet_filter: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="EXPRESSION",
            help="On a network interface: capture only packets that match this tcpdump filter, "
            "pcap-filter(7).",
        ),
    ] = None,
    packets: Annotated[
        int,
        typer.Option(
            metavar="COUNT",
            help="Stop after this many packets; 0: no limit.",
            parser=_limits.whole(),
        ),
    ] = 0,
    seconds: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Stop after this time; 0: no limit.", parser=_limits.seconds()
        ),
    ] = 0.0,
    roll_packets: Annotated[
        int,
        typer.Option(
            metavar="COUNT",
            help="Begin a new file after this many packets; 0: never.",
            parser=_limits.whole(),
        ),
    ] = 0,
    roll_bytes: Annotated[
        int,
        typer.Option(
            metavar="BYTES",
            help="Begin a new file after this many bytes; 0: never.",
            parser=_limits.whole(),
        ),
    ] = 0,
    roll_seconds: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Begin a new file after this time; 0: never.",
            parser=_limits.seconds(),
        ),
    ] = 0.0,
    on_drop: Annotated[
        OnDrop, typer.Option(help="If packets are lost: fail the run, flag the rows, or ignore it.")
    ] = "flag",
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Fail after this time without packets; 0: wait for them. With --send, 0 is 60.",
            parser=_limits.seconds(),
        ),
    ] = 0.0,
    send: Annotated[
        Path | None,
        typer.Option(
            help="Send this pcap file during the capture, through the same interface.",
            dir_okay=False,
            exists=True,
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Write a picture of the capture, PNG.", dir_okay=False)
    ] = None,
    ship_to: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Upload the files to an object store, s3://BUCKET/PREFIX. Default: that of the "
            "configuration.",
            show_default=False,
        ),
    ] = "",
    data: Data = DATA,
    catalog: CatalogName = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Capture packets to pcap files, and store the run in a catalog.

    Packets that arrive after the message "listening" are captured, until Ctrl-C if there is no
    limit. Ctrl-C, SIGTERM and SIGHUP end the capture with all files and the run complete.

    Exit code 1: no packet arrived, the run is not in the catalog, or files are not in the store.

    Example: [bold]daqiri-ophyd capture eth1 --udp-port 4096[/bold]
    """
    from ._capture_files import has_fragments, read_arrivals, summarize
    from ._capture_progress import show_counts
    from ._early_recording import begin_recording
    from ._ship import wait_for_uploads

    loaded = load_source(config, udp_port or (), host or (), packet_filter)
    interface = interface_with(loaded, "rx", port)
    able = [i.name for i in loaded.interfaces if i.tx.queues]
    if send is not None and interface not in able:
        raise typer.BadParameter(
            f"--send needs a transmit queue on interface {interface!r}; it has none"
        )
    rolls = {
        "roll_packets": roll_packets,
        "roll_bytes": roll_bytes,
        "roll_seconds": roll_seconds,
    }
    limits = {**rolls, "max_packets": packets, "max_seconds": seconds}
    settings = {"num_packets": packets, "acquire_time": seconds, **rolls}
    settings |= {"on_drop": on_drop, "timeout": timeout}
    if picture is not None:
        # Now, not after the capture.
        picture.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(picture.parent, os.W_OK):
            raise typer.BadParameter(f"--picture: {picture.parent} cannot be written")
    if ship_to:
        # Now, not after the capture.
        from ..ship import shipper_of

        try:
            shipper_of(ship_to)
        except ValueError as error:
            raise typer.BadParameter(f"--ship-to: {error}") from None
    where = captures_of(data)
    early: EarlyRecording | None = None
    try:
        with begin_recording(loaded, interface, queue, where, limits, stops=send is None) as early:
            with show_counts(early.recording):
                is_stored = _store(early, loaded, interface, settings, send, data, catalog, ship_to)
    except (Exception, KeyboardInterrupt) as error:
        if as_json and early is not None:
            print_json(_failed(early, error))
        raise
    files = early.files
    problems: list[str] = []
    result = summarize(files, early.run)
    if not result["received"]:
        left_out = result["left_out"]
        others = f"; {left_out:,} that did were left out" if left_out else ""
        problems.append(f"no packet arrived that the queue captures{others}")
    problems += wait_for_uploads()
    if not is_stored:
        problems.append("the run is not in the catalog; the captured files are complete")
    if picture is not None:
        from ._picture import draw_capture

        draw_capture(picture, *read_arrivals(files), title=f"capture {early.run[:8]}")
        result["picture"] = str(picture)
    if as_json:
        print_json(result | {"problem": "; ".join(problems)})
    else:
        facts = [
            ("run", early.run),
            ("received", f"{result['received']:,} packets, {result['bytes']:,} bytes"),
            ("dropped", counts_text(result["dropped"], result["dropped_by_reason"])),
            ("left out", counts_text(result["left_out"], result["left_out_by_reason"])),
        ]
        if before_engine := result["lost_before_engine_by_reason"]:
            lost = counts_text(result["lost_before_engine"], before_engine)
            facts.append(("lost before the engine", lost))
        print_facts(facts)
        for file in result["files"]:
            print_line(file)
        if result["left_out_by_reason"].get("filtered") and has_fragments(files):
            print_message(
                "datagrams arrived in fragments: only the first fragment has ports, so flows, "
                "--udp-port and --host leave out the others (filtered); --filter 'ip host ADDRESS' "
                "captures all"
            )
    for problem in problems:
        print_error(problem)
    if problems:
        raise typer.Exit(1)


def _failed(early: "EarlyRecording", error: BaseException) -> dict[str, Any]:
    """Return the result of a capture that has failed, or was interrupted."""
    from ._capture_files import summarize

    result: dict[str, Any] = {"run": early.run, "files": list(map(str, early.files))}
    with suppress(Exception):  # a file may be broken, as on a full disk
        result = summarize(early.files, early.run)
    interrupted = isinstance(error, KeyboardInterrupt)
    return result | {"problem": "interrupted" if interrupted else as_options(reason(error))}


def _store(
    early: "EarlyRecording",
    config: "NetworkConfig",
    interface: str,
    settings: dict[str, Any],
    send: Path | None,
    data: Path,
    catalog: str | None,
    ship_to: str,
) -> bool:
    """Continue a recording in a run; return whether the run is in the catalog."""
    import daqiri_ophyd.plans as plans

    from ._capture_plan import capture_until_stopped
    from ._workspace import open_workspace

    with open_workspace(
        config, data, catalog, early.engine, early.interrupts, ship_to
    ) as workspace:
        receiver = workspace.daq.port_device(interface)
        receiver.capture.queues.put(",".join(early.recording.queues))
        receiver.capture.adopt(early.recording)
        workspace.engine.subscribe(lambda _, start: setattr(early, "run", start["uid"]), "start")
        if send is None:
            plan = capture_until_stopped(receiver.capture, early.recording, **settings)
        else:
            settings["timeout"] = settings["timeout"] or _SENT_S
            sent = {"tx": receiver.tx.members[0], "packets": str(send)}
            plan = plans.capture(receiver.capture, **settings, **sent)
        try:
            workspace.run(plan)
        finally:
            # A plan may fail before it begins, for example because of the file to send.
            early.in_run.update(receiver.capture.files)
        return workspace.writer.has_stored_all
