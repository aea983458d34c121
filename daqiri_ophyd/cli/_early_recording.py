"""A recording that begins before Bluesky is imported, which takes seconds."""

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from ..engine import Engine, NetworkConfig, QueueRecording, queue_names
from ._output import print_message
from ._signals import HeldInterrupts

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
    in_run : bool
        Whether the files belong to a run.
    """

    engine: Engine
    recording: QueueRecording
    interrupts: HeldInterrupts
    in_run: bool = False


@contextmanager
def begin_recording(
    config: NetworkConfig,
    interface: str,
    queues: str | None,
    captures: Path,
    limits: Mapping[str, Any],
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
    with Engine.open(config) as engine:
        directory.mkdir(parents=True)
        recording = QueueRecording.start(
            engine.port(interface), names, directory, prefix, limits=limits, options=_OPTIONS
        )
        early = EarlyRecording(engine, recording, HeldInterrupts())
        try:
            with early.interrupts:
                address = part.socket_config.local_addr if part.socket_config else part.address
                where = f" ({address})" if address and address != interface else ""
                print_message(f"listening on {interface}{where}, queue {', '.join(names)}")
                yield early
        finally:
            recording.stop()
            if not early.in_run:
                _tell(recording)


def _tell(recording: QueueRecording) -> None:
    """Say where packets are that belong to no run; remove empty files."""
    if packets := sum(file.packets for file in recording.files()):
        print_message(
            f"{packets:,} packets that were captured meanwhile are in {recording.directory}, in "
            "no run"
        )
        return
    for path in recording.directory.iterdir():
        path.unlink()
    with suppress(OSError):
        recording.directory.rmdir()
