"""Master files of a frame detector, with its reference data; see `documents.write_master`."""

import logging
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

from daqiri_ophyd.documents import (
    MASTER,
    REFERENCES,
    load_reference,
    master_path,
    read_sidecar,
    read_sidecar_content,
    sidecar_path,
    write_master,
)
from daqiri_ophyd.engine import DaqiriError

from .._errors import CaptureError
from ._settings import FrameSettings

__all__ = ["ENDINGS", "Masters", "Recordings", "write_joined"]

_log = logging.getLogger(__name__)

ENDINGS = (".h5", f"{MASTER}.h5")
"""Ends of the names of files of frames, and of their masters."""
Recordings: TypeAlias = Mapping[Hashable, Sequence[Path]]
"""Files of a detector by the descriptors of their streams."""


class Masters:
    """Writes the masters of a stage, one for the files of each stream of a run.

    Parameters
    ----------
    detector : FrameSettings
        The detector; its reference data are read now.

    Raises
    ------
    CaptureError
        If reference data cannot be read or do not fit, or no master would have them.
    """

    def __init__(self, detector: FrameSettings) -> None:
        self._detector = detector
        self._references: dict[str, NDArray[Any]] = {}
        self._starts: dict[str, Mapping[str, Any]] = {}
        for name in REFERENCES:
            setting = getattr(detector, name)
            source = setting.get()
            if not source:
                continue
            if detector.master.get() == "never":
                raise CaptureError(
                    f"{setting.name} is {source!r}, and {detector.master.name} is 'never': "
                    "reference data are in master files. Set that to 'auto'."
                )
            try:
                self._references[name] = load_reference(name, source, detector.form[0])
            except (OSError, ValueError) as error:
                raise CaptureError(f"{setting.name}: {error}") from error

    def take_run(self, start: Mapping[str, Any] | None) -> None:
        """Note the start document of a run that files belong to."""
        if start is not None:
            self._starts[str(start["uid"])] = start

    def write(self, recordings: Iterable[Sequence[Path]]) -> tuple[list[Path], str]:
        """Write the masters; return them, and why one could not be written."""
        written, problem = [], ""
        for given in recordings:
            # Somebody may have removed one; one that was uploaded has its metadata file.
            files = [path for path in given if path.exists() or sidecar_path(path).exists()]
            if not files:
                continue
            wanted = len(files) > 1 or self._references or self._detector.master.get() == "always"
            if not wanted or self._detector.master.get() == "never":
                continue
            path = master_path(files[0])
            try:
                attributes = self._attributes(files[0])
                written.append(
                    write_master(
                        files,
                        path,
                        attributes=attributes,
                        references=self._references,
                        compare=False,
                    )
                )
            except (OSError, ValueError, DaqiriError) as error:
                reason = error.strerror if isinstance(error, OSError) else None
                problem = problem or (
                    f"{path} could not be written ({reason or error}); all frames are in "
                    f"{files[0]} and following. To write it: daqiri-ophyd frames master "
                    f"{files[0].parent}/{files[0].stem.rpartition('_')[0]}_*.h5"
                )
        if problem:
            _log.warning("%s: %s", self._detector.name, problem)
        return written, problem

    def _attributes(self, first: Path) -> Mapping[str, Any]:
        told = read_sidecar(first)
        return {} if told is None else self._starts.get(str(told.run.get("uid")), {})


def write_joined(
    detectors: Sequence[Recordings], failed: Collection[str]
) -> tuple[list[Path], str]:
    """Write a master of the detectors of each stream that have equally many frames.

    Parameters
    ----------
    detectors : sequence of mapping
        Recordings of each detector, by the descriptors of their streams.
    failed : collection of str
        Runs that have failed: that a master of one cannot be written is only logged.

    Returns
    -------
    list of Path, str
        The masters, and why one could not be written.
    """
    written, problem = [], ""
    # Those of no descriptor are in no stream.
    streams = {s: None for recordings in detectors for s in recordings if isinstance(s, str)}
    for stream in streams:
        together = [each[stream] for each in detectors if stream in each]
        files = [path for paths in together for path in paths]
        # Those that were removed after their upload are only in the masters of their detectors.
        if len(together) < 2 or not all(path.exists() for path in files):
            continue
        told = [[read_sidecar_content(path) for path in paths] for paths in together]
        if len({sum(file.get("frames", 0) for file in each) for each in told}) > 1:
            continue
        first = files[0]
        path = first.with_name(f"{first.stem}_plans{MASTER}{first.suffix}")
        try:
            written.append(write_master(files, path, join="row", compare=False))
        except (OSError, ValueError, DaqiriError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            text = f"{path} could not be written ({reason or error}); all frames are in their files"
            _log.warning(text)
            if told[0][0].get("run", {}).get("uid") not in failed:
                problem = problem or text
    return written, problem
