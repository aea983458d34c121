"""A recording that begins before Bluesky is imported, which takes seconds."""

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import typer

from ..engine import Engine, NetworkConfig, QueueRecording, queue_names
from ._output import print_message
from ._signals import HeldInterrupts, completing_files

# As the settings of a device's capture are by default.
_OPTIONS = {
    "format": "pcap",
    "nanosecond": True,
    "packet_data_offset": 0,
    "writer": "buffered",
    "on_error": "stop",
    "durable": False,
    "start_flow": None,
}
_LINGER_S = 0.1


@dataclass(slots=True)
class EarlyRecording:
    """An open engine, and the recording that a device continues.

    Parameters
    ----------
    engine : Engine
        The engine.
    recording : QueueRecording
        Its recording.
    interrupts : HeldInterrupts
        Signals since it began.
    in_run : set of Path
        Files that belong to a run.
    run : str
        Uid of the run; empty: it has not begun.
    files : list of Path
        Files of the recording, when it has ended.
    """

    engine: Engine
    recording: QueueRecording
    interrupts: HeldInterrupts
    in_run: set[Path] = field(default_factory=set)
    run: str = ""
    files: list[Path] = field(default_factory=list)


@contextmanager
def begin_recording(
    config: NetworkConfig,
    interface: str,
    queues: str | None,
    captures: Path,
    limits: Mapping[str, Any],
    *,
    stops: bool,
) -> Iterator[EarlyRecording]:
    """
    Open an engine and record queues of an interface; complete the files and close it at the end.

    Parameters
    ----------
    config : NetworkConfig
        The configuration.
    interface : str
        Name of the interface.
    queues : str or None
        Receive queues, as in the setting of a capture; None: the first.
    captures : Path
        Directory of captures; the files go to a new directory below it.
    limits : dict
        As for `RxQueue.record`.
    stops : bool
        Whether the first interrupt stops the recording; otherwise it aborts its run.

    Raises
    ------
    typer.BadParameter
        If there is no such queue.
    DaqiriError
        If the engine cannot be opened, or the queues cannot be recorded.
    """
    part = next(i for i in config.interfaces if i.name == interface)
    known = [each.name for each in part.rx.queues]
    try:
        names = known[:1] if queues is None else queue_names(queues, known)
    except ValueError as error:
        raise typer.BadParameter(f"--queue: {error}") from None
    # As the templates of a device's capture are by default.
    directory = captures / f"{datetime.now():%Y/%m/%d}" / uuid.uuid4().hex[:8]
    prefix = re.sub(r"[^A-Za-z0-9_.-]", "_", interface)
    address = part.socket_config.local_addr if part.socket_config else part.address
    where = f" ({address})" if address and address != interface else ""
    with Engine.open(config) as engine:
        directory.mkdir(parents=True)
        try:
            recording = QueueRecording.start(
                engine.port(interface), names, directory, prefix, limits=limits, options=_OPTIONS
            )
        except BaseException:
            with suppress(OSError):
                directory.rmdir()
            raise
        interrupts = HeldInterrupts(partial(_stop, recording) if stops else None)
        early = EarlyRecording(engine, recording, interrupts)
        try:
            with early.interrupts:
                _say(f"listening on {interface}{where}, queue {', '.join(names)}")
                yield early
        finally:
            with completing_files():
                recording.stop()
                _tidy(early)
                early.files = [f.path for f in recording.files() if f.path.is_file()]


def _stop(recording: QueueRecording) -> None:
    for recorder in recording.recorders:
        recorder.end_in(_LINGER_S)


def _say(text: str) -> None:
    """Print a message, if somebody reads it: a closed terminal or pipe ends no capture."""
    with suppress(OSError, SystemExit):
        print_message(text)


def _tidy(early: EarlyRecording) -> None:
    """Say where packets are that belong to no run; remove files if none has a packet."""
    recording = early.recording
    others = [file for file in recording.files() if file.path not in early.in_run]
    if packets := sum(file.packets for file in others):
        _say(
            f"{packets:,} packets that were captured are in {recording.directory}, in no run: "
            f"{', '.join(file.path.name for file in others)}"
        )
    elif not early.in_run:
        with suppress(OSError):
            for path in recording.directory.iterdir():
                path.unlink()
            recording.directory.rmdir()
