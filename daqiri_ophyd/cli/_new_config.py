"""``daqiri-ophyd config new``."""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import typer
import yaml

from ..simulate import PacketFormat, PacketFormatError, configuration_text
from ._output import print_error, print_line

__all__ = ["write_all", "write_new"]

_DEFAULT_NAME = "detector"


def write_new(name: str, packet_format: Path | None, force: bool) -> None:
    """
    Write the configuration of a detector and, if it was asked for, the description of its packets.

    Parameters
    ----------
    name : str
        Path of the configuration; without ``.yaml`` or ``.yml``, ``.yaml`` is appended.
    packet_format : Path or None
        Description of the packets. None: questions on the terminal.
    force : bool
        Overwrite files.

    Raises
    ------
    typer.BadParameter
        If files exist, their directory cannot be written, or questions need a terminal.
    typer.Exit
        If the description has mistakes.
    """
    path = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    if os.path.basename(name.removesuffix(".yaml")) in ("", ".", ".."):
        raise typer.BadParameter(f"found {name!r}; accepts the name of a file, such as camera")
    described_as = path.with_name(f"{path.stem}-packets.yaml")
    described = packet_format or described_as
    written = [path] if packet_format else [path, described]
    if packet_format is not None and os.path.realpath(packet_format) == os.path.realpath(path):
        raise typer.BadParameter(
            f"{path} is the description of the packets, and would be overwritten; "
            f"call it {described_as.name}, or give the configuration another name"
        )
    for each in written:
        if os.path.lexists(each) and not force:
            raise typer.BadParameter(f"{each} exists; give another name, or --force")
        if each.is_dir():
            raise typer.BadParameter(f"{each} is a directory; give another name")
    # Before questions: answers would be lost.
    if not os.access(path.parent, os.W_OK):
        raise typer.BadParameter(
            f"{path.parent} is no directory that can be written; make it, or give another name"
        )
    try:
        form, texts = _texts(path, described, packet_format)
    except PacketFormatError as error:
        print_error(str(error))
        raise typer.Exit(2) from None
    write_all(texts, force)
    for each in written:
        print_line(f"wrote {each}")
    print_line(_next_commands(form, path, described))


def _texts(
    path: Path, described: Path, packet_format: Path | None
) -> tuple[PacketFormat, dict[Path, str]]:
    """Return the packets, and the files to write."""
    if packet_format is not None:
        form, more = PacketFormat.read(packet_format), {}
    else:
        if not sys.stdin.isatty():
            raise typer.BadParameter(
                "standard input is no terminal to answer questions on; give --format FILE"
            )
        from ._ask_format import ask_format, format_text

        document = ask_format(_name(path))
        form, more = PacketFormat.from_document(document), {described: format_text(document)}
    shown = os.path.relpath(described, path.parent)
    if not shown.isprintable():
        shown = "another file"
    text = configuration_text(form, shown)
    return form, {path: text, **more}


def _name(path: Path) -> str:
    """Return a name for the device, from the name of the file."""
    name = re.sub(r"\W", "_", path.stem, flags=re.ASCII)[:25]
    # YAML takes some words, such as `on`, for another type.
    good = name[:1].isalpha() and yaml.safe_load(name) == name
    return name if good else _DEFAULT_NAME


def write_all(texts: Mapping[Path, str], force: bool) -> None:
    """Write all files, or none."""
    made, path = list[Path](), Path()
    try:
        for path, text in texts.items():
            part = path.with_name(f".{path.name}.{os.getpid()}.part") if force else path
            with _named_errors(path), part.open("x", encoding="utf-8") as file:
                made.append(part)
                file.write(text)
        if force:
            for part, path in zip(made, texts, strict=True):
                part.replace(path)
    except BaseException:
        for part in made:
            part.unlink(missing_ok=True)
        raise


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Name the file in errors: that of a full disk has no name, and another may have a part's."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _next_commands(form: PacketFormat, path: Path, described: Path) -> str:
    host = form.address
    if form.on_interface:
        host = "127.0.0.1" if host == "lo" else "ADDRESS_OF_THIS_HOST"
    else:
        # A socket of :: receives no IPv4.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    host = f"[{host}]" if ":" in host else host
    ports = "-".join(map(str, dict.fromkeys((form.ports[0], form.ports[-1]))))
    file, packets = shlex.quote(str(path)), shlex.quote(str(described))
    return "\n".join(
        [
            "",
            "Check it; simulate the detector; and, in another terminal, record an image:",
            f"  daqiri-ophyd config check {file}",
            f"  daqiri-ophyd simulate {packets} {host}:{ports} --frames 0",
            f"  daqiri-ophyd shell {file}",
            "  RE(bp.count([images]))",
        ]
    )
