"""``daqiri-ophyd config check``, ``config new``, ``schema``, ``show`` and ``stub``."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._output import out, print_json, print_line, print_message
from ._source import config_path

if TYPE_CHECKING:
    from ..engine import ConfigReport, NetworkConfig

# With names of ports and their parts up to this length, data keys are complete.
_SHORT = 20

app = typer.Typer(help="Write, check and show configuration files.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def check(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files, or names of profiles.")
    ],
    as_json: Json = False,
) -> None:
    """
    Report every problem of each file, with line and key. Requires no hardware.

    Exit code 0: no errors (warnings may be printed); 2: errors.

    Example: [bold]daqiri-ophyd config check mine.yaml udp[/bold]
    """
    checked = {file: _checked(config_path(file)) for file in files}
    if as_json:
        print_json(
            {
                file: {
                    "ok": report.ok,
                    "problems": [asdict(p) for p in report.problems],
                    "shortened": shortened,
                }
                for file, (report, shortened) in checked.items()
            }
        )
    else:
        for file, (report, shortened) in checked.items():
            if report.problems:
                print_message(report.text())
            if shortened:
                print_message(_shortened_text(file, shortened))
            if report.ok:
                print_line(f"{file}: ok")
    if not all(report.ok for report, _ in checked.values()):
        raise typer.Exit(2)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the detector; a folder may precede it.")],
    packet_format: Annotated[
        Path | None,
        typer.Option(
            "--format", metavar="FILE", help="Description of its packets. Default: you are asked."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files.")] = False,
) -> None:
    """
    Write a configuration that makes frames of a detector's packets.

    Without --format, it asks for the packets, and writes their description to NAME-packets.yaml,
    too. [bold]daqiri-ophyd simulate NAME-packets.yaml HOST:PORT[/bold] sends such packets.

    Example: [bold]daqiri-ophyd config new camera[/bold]
    """
    from ._new_config import write_new

    write_new(name, packet_format, force)


@app.command()
def schema() -> None:
    """
    Print a JSON Schema of configurations, with which editors complete and check keys.

    Example: [bold]daqiri-ophyd config schema > daqiri-schema.json[/bold]
    """
    from ._config_schema import config_schema

    print_json(config_schema())


@app.command()
def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File, or name of a profile.")],
    as_json: Json = False,
) -> None:
    """
    Print the configuration with every default and adjusted value written out.

    Example: [bold]daqiri-ophyd config show loopback[/bold]
    """
    from ..engine import load_config

    config = load_config(config_path(file))
    if as_json:
        print_json(config.to_dict())
    else:
        out.print(config.to_yaml(), markup=False, soft_wrap=True, end="")


@app.command()
def stub(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File, or name of a profile.")],
) -> None:
    """
    Print a Python module that describes the devices of the configuration to editors.

    Editors then complete [bold]daq.port0.capture[/bold] and find misspelled names.

    Example: [bold]daqiri-ophyd config stub loopback > daq_tree.py[/bold]
    """
    from ..devices import make_daq, typed_tree

    out.print(typed_tree(make_daq(config_path(file))), markup=False, soft_wrap=True, end="")


def _checked(path: "str | Path") -> "tuple[ConfigReport, dict[str, str]]":
    """Return all problems of a file, also those of its devices, and what data keys begin with.

    The latter are those in which names are shortened, by the complete ones.
    """
    from ..engine import ConfigProblem, ConfigReport, engine_problems, read_config

    config, report = read_config(path)
    if config is not None and report.ok:
        absent = [replace(problem, file=str(path)) for problem in engine_problems(config)]
        report = ConfigReport([*report.problems, *absent])
    if config is None or not report.ok or not _has_long_names(config):
        return report, {}
    from ..devices import make_daq, shortened_names

    try:
        return report, shortened_names(make_daq(config))
    except ValueError as error:
        problem = ConfigProblem("error", str(path), 0, 0, "", str(error))
        return ConfigReport([*report.problems, problem]), {}


def _shortened_text(file: str, shortened: dict[str, str]) -> str:
    """Return a line for the file, and one for each beginning of data keys that is shortened."""
    longest = max(map(len, shortened))
    lines = (f"  {complete:<{longest}}  {short}" for complete, short in shortened.items())
    return "\n".join(
        [f"{file}: names are shortened in columns, which have up to 60 bytes:", *lines]
    )


def _has_long_names(config: "NetworkConfig") -> bool:
    """Whether data keys of devices may be refused; importing the devices takes a second."""
    names = [(part.name,) for part in (*config.memory_regions, *config.reorder_configs)]
    for port in config.interfaces:
        parts = [*port.rx.queues, *port.tx.queues, *port.rx.flows, *port.rx.reorder_configs]
        names += [(port.name, part.name) for part in parts]
    # Databases do not tell A from a.
    if len({tuple(map(str.casefold, path)) for path in names}) < len(set(names)):
        return True
    return any(
        sum(map(len, path)) > _SHORT or not all(name[:1].isalpha() for name in path)
        for path in names
    )
