"""Recordings of several queues whose files belong together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._engine import Port
from ._port_counters import PortCounters
from ._recorder import RecordedFile, Recorder, RecorderGroup, RecordMetadata

__all__ = ["QueueRecording", "file_prefixes", "queue_names"]

_LIMITS = ("max_packets", "max_seconds", "roll_packets", "roll_bytes", "roll_seconds")


def queue_names(text: str, known: Sequence[str]) -> list[str]:
    """Return the names of receive queues in a text.

    Parameters
    ----------
    text : str
        A name, several with commas, or ``all``.
    known : sequence of str
        Names of the queues of the port.

    Raises
    ------
    ValueError
        If there is no such queue, or one is named twice.
    """
    if text in known:
        return [text]
    names = list(known) if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            accepted = ", ".join(map(repr, known))
            raise ValueError(
                f"{name!r} is not a receive queue; accepted are {accepted}, several with "
                "commas, and 'all'."
            )
    if len(set(names)) < len(names):
        raise ValueError(f"{text!r} names a queue twice.")
    return names


def file_prefixes(prefix: str, queues: Sequence[str]) -> list[str]:
    """Return the first part of the file names of each queue."""
    if len(queues) == 1:
        return [prefix]
    return [f"{prefix}_{re.sub('[^A-Za-z0-9_.-]', '_', queue)}" for queue in queues]


@dataclass(frozen=True, slots=True)
class QueueRecording:
    """Recorders of receive queues of a port, and how they were started; see `start`.

    Parameters
    ----------
    port : Port
        The port of the queues.
    recorders : tuple of Recorder
        Running recorders, one for each queue; several are those of a `RecorderGroup`.
    queues : tuple of str
        Names of the queues.
    directory : Path
        Directory of the files.
    prefix : str
        First part of the file names; see `file_prefixes`.
    settings : dict
        All limits, the options and ``first_number``, as for `RxQueue.record`.
    flushed : int
        Packets that the queues had discarded on request before `start` flushed them.
    before : tuple of dict
        Drops of each queue by reason, after it was flushed.
    port_before : PortCounters
        Losses before the engine until then.
    """

    port: Port
    recorders: tuple[Recorder, ...]
    queues: tuple[str, ...]
    directory: Path
    prefix: str
    settings: Mapping[str, Any]
    flushed: int
    before: tuple[Mapping[str, int], ...]
    port_before: PortCounters

    @classmethod
    def start(
        cls,
        port: Port,
        queues: Sequence[str],
        directory: Path,
        prefix: str,
        *,
        first_number: int = 0,
        limits: Mapping[str, Any],
        options: Mapping[str, Any],
        metadata: RecordMetadata | None = None,
    ) -> QueueRecording:
        """Flush queues, and start a recorder for each, or none if one cannot start.

        Parameters
        ----------
        port : Port
            The port.
        queues : sequence of str
            Names of receive queues. Several are recorded by a `RecorderGroup`.
        directory : Path
            An existing directory.
        prefix : str
            First part of the file names.
        first_number : int
            Number of the first files.
        limits, options : dict
            As for `RxQueue.record`; those of ``limits`` apply to all queues together. A limit that
            is left out is 0: none.
        metadata : mapping, optional
            As for `Recorder.describe`.

        Raises
        ------
        DaqiriError
            As for `RxQueue.record`.
        """
        receivers = [port.rx_queue(name) for name in queues]
        flushed = sum(receiver.counters().dropped["flushed"] for receiver in receivers)
        for receiver in receivers:
            receiver.flush()
        before = tuple(dict(receiver.counters().dropped) for receiver in receivers)
        port_before = port.counters()
        limits = {**dict.fromkeys(_LIMITS, 0), **limits}
        given = dict(limits) if len(queues) == 1 else {"group": RecorderGroup(**limits)}
        recorders: list[Recorder] = []
        try:
            for receiver, name in zip(receivers, file_prefixes(prefix, queues), strict=True):
                recorder = receiver.record(
                    directory,
                    name,
                    first_number=first_number,
                    metadata=metadata,
                    **given,
                    **options,
                )
                recorders.append(recorder)
        except BaseException:
            _discard(recorders)
            raise
        return cls(
            port,
            tuple(recorders),
            tuple(queues),
            directory,
            prefix,
            {"first_number": first_number, **limits, **options},
            flushed,
            before,
            port_before,
        )

    def describe(self, metadata: RecordMetadata) -> None:
        """Set the run and the detector that files report; see `Recorder.describe`."""
        for recorder in self.recorders:
            recorder.describe(metadata)

    def stop(self) -> None:
        """Record the packets that the queues hold, and complete the files. Idempotent."""
        for recorder in self.recorders:
            recorder.stop()

    def files(self) -> list[RecordedFile]:
        """Return the complete files, queue by queue."""
        return [file for recorder in self.recorders for file in recorder.files()]


def _discard(recorders: Sequence[Recorder]) -> None:
    for recorder in recorders:
        recorder.stop()
    for path in [file.path for recorder in recorders for file in recorder.files()]:
        # The file, its metadata file and its index.
        for name in (path, path.with_name(path.name + ".json"), path.with_name(path.name + ".npy")):
            name.unlink(missing_ok=True)
