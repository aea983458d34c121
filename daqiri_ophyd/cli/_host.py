"""``daqiri-ophyd host``: host checks."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..host import (
    MEASUREMENTS,
    FactError,
    Facts,
    Platform,
    Report,
    Result,
    Status,
    check_host,
    fix_script,
    measure_host,
    pcie_picture,
    record_host,
    require_host,
)
from . import _limits
from ._output import out, print_error, print_facts, print_json, print_message, progress_bar
from ._source import load_source

app = typer.Typer(help="Check whether this host can receive the stream.", no_args_is_help=True)

_STYLES = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red", Status.SKIP: "dim"}
_EXIT_CODES = {Status.WARN: 1, Status.FAIL: 2}


@app.command()
def check(
    config: Annotated[
        str | None,
        typer.Argument(help="Configuration file or profile to check the host for."),
    ] = None,
    platform: Annotated[
        str, typer.Option(metavar=f"auto|{'|'.join(Platform)}", help="Whose remedies to name.")
    ] = "auto",
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run this check only; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    details: Annotated[
        bool,
        typer.Option(
            "--details", help="Report what is expected, why it matters, and how to fix it."
        ),
    ] = False,
    fix: Annotated[
        bool,
        typer.Option("--fix-script", help="Print the remedies as a shell script; runs nothing."),
    ] = False,
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Where captures will be written.")
    ] = Path("."),
    root: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of a recorded host, instead of this one.")
    ] = Path("/"),
) -> None:
    """
    Check the host: report problems and how to fix them. Changes nothing.

    With a configuration, its cores, ports and memory are checked. Exit code 0: all checks passed or
    were skipped; 1: warnings; 2: failures.

    Example: [bold]daqiri-ophyd host check udp --details[/bold]
    """
    if fix and as_json:
        raise typer.BadParameter("--fix-script and --json exclude each other")
    needs = load_source(config).to_dict() if config else None
    try:
        report = check_host(needs, platform=platform, only=only or (), root=root, folder=folder)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if fix:
        # As it is: a shell reads it.
        sys.stdout.write(fix_script(report))
    elif as_json:
        print_json(report.to_dict())
    else:
        _print(report, details)
    raise typer.Exit(_EXIT_CODES.get(report.status, 0))


@app.command()
def picture(
    out_file: Annotated[Path, typer.Argument(metavar="OUT.svg", help="File to write.")],
    root: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of a recorded host, instead of this one.")
    ] = Path("/"),
) -> None:
    """
    Draw the PCIe tree: NICs, GPUs, NVMe drives, links, NUMA nodes, and paths from GPUs.

    Example: [bold]daqiri-ophyd host picture host.svg[/bold]
    """
    try:
        require_host(root)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    try:
        drawn = pcie_picture(Facts(root))
    except FactError as error:
        print_error(str(error))
        raise typer.Exit(1) from None
    out_file.write_text(drawn, encoding="utf-8")
    print_message(f"{out_file}: written")


@app.command()
def record(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
) -> None:
    """
    Copy what the checks read into a folder, to check this host elsewhere with --root.

    It contains names, addresses and the kernel command line of this host.

    Example: [bold]daqiri-ophyd host record beamline-daq1[/bold]
    """
    record_host(folder)
    print_message(f"{folder}: written")


@app.command()
def measure(
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Measure this only; repeatable.")
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Time for each.", parser=_limits.seconds(0.1, 60)),
    ] = 2.0,
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Where captures will be written.")
    ] = Path("."),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Measure the host: memory, UDP on loopback, timer latency, CPU interruptions, disk.

    It uses one or two cores and the disk fully, and leaves no files behind.

    Example: [bold]daqiri-ophyd host measure --folder /data --seconds 5[/bold]
    """
    found = []
    names = set(only or MEASUREMENTS)
    try:
        measurements = measure_host(names, seconds=seconds, folder=folder)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with progress_bar("measuring", len(names)) as advance:
        for measurement in measurements:
            found.append(measurement)
            advance(len(found))
    if as_json:
        print_json({each.name: each.values or {"failed": each.text} for each in found})
    else:
        print_facts([(each.title, each.text) for each in found])
    if not all(each.values for each in found):
        raise typer.Exit(1)


def _print(report: Report, details: bool) -> None:
    facts = [report.host["name"], report.host["product"], f"Linux {report.host['kernel']}"]
    head = f"{', '.join(filter(None, facts))} (platform {report.platform})"
    out.print(Text(head, style="bold"), soft_wrap=True)
    told = [r for r in report.results if r.status is not Status.SKIP]
    skipped: dict[str, list[str]] = {}
    for result in report.results:
        if result.status is Status.SKIP:
            skipped.setdefault(result.found, []).append(result.check)
    width = max((len(result.check) for result in told), default=0)
    for result in told:
        line = Text(f"{result.status:<4}", style=_STYLES[result.status])
        line.append(f"  {result.check:<{width}}  {result.found}", style="default not bold")
        out.print(line, soft_wrap=True)
        if details:
            for text, style in _details(result):
                out.print(Text(f"        {text}", style=style), soft_wrap=True)
    # A line for each reason.
    for found, checks in skipped.items():
        text = f"{Status.SKIP:<4}  {', '.join(checks)}: {found}"
        out.print(Text(text, style=_STYLES[Status.SKIP]), soft_wrap=True)
    counts = ", ".join(f"{n} {s}" for s in reversed(Status) if (n := report.count(s)))
    out.print(Text(counts, style=_STYLES[report.status]))
    if not details and report.status in _EXIT_CODES:
        out.print("--details: why it matters and how to fix it. --fix-script: the commands.")


def _details(result: Result) -> Iterator[tuple[str, str]]:
    yield f"checks: {result.title}; expected: {result.wanted}", "dim"
    yield result.why, "dim"
    for remedy in result.remedies:
        yield from ((f"now: {command}", "") for command in remedy.now)
        for path, _ in remedy.files:
            yield f"{remedy.step}: {path}, as --fix-script writes it", ""
        if remedy.kernel_line:
            yield f"{remedy.step}: kernel command line: {remedy.kernel_line}", ""
        yield from ((f"{remedy.step}: {command}", "") for command in remedy.lasting)
        if remedy.note:
            yield remedy.note, "italic"
