"""The missing documents of a run whose process was killed."""

import json
import math
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from daqiri_ophyd.documents import (
    CAPTURE_MIMETYPES,
    COUNTER_MIMETYPE,
    FRAME_FILES_MIMETYPE,
    FRAMES_MIMETYPE,
    FileSummary,
    SidecarError,
    keep_frames,
    row_columns,
    sidecar_path,
)
from daqiri_ophyd.engine import DaqiriError, examine_frames
from daqiri_ophyd.ship import is_shipped

from ._backup import Documents
from ._confine import UnreadableFileError, confined_path
from ._summarize import NotPcapError, summarize
from ._unfinished_frames import FrameColumns, columns_of
from ._unfinished_stream import Series, Stream

__all__ = ["Mend", "UnfinishedRun", "files_beside"]

Mend: TypeAlias = Callable[[Path], list[str]]
"""Repairs a file; returns a description of the repair."""

_NUMBERED = re.compile(r"(.+_)([0-9]{6,})(\.(?:pcap|raw|h5))")
_FRAMES = {FRAMES_MIMETYPE, FRAME_FILES_MIMETYPE}
_MIMETYPES = {*CAPTURE_MIMETYPES.values(), COUNTER_MIMETYPE, *_FRAMES}


def files_beside(files: Sequence[Path]) -> list[Path]:
    """Return the capture files in the same directory with the same prefix and a higher number."""
    found: set[Path] = set()
    for file in files:
        if name := _NUMBERED.fullmatch(file.name):
            prefix, number, suffix = name.groups()
            for path in file.parent.glob(f"{prefix}*{suffix}"):
                other = _NUMBERED.fullmatch(path.name)
                if other and other[1] == prefix and int(other[2]) > int(number):
                    found.add(path)
    return sorted(found.difference(files))


class UnfinishedRun:
    """The documents of a run until its process was killed.

    Parameters
    ----------
    documents : sequence of tuple
        Names and documents; the first is the start document.
    readable : iterable of Path
        Directories of captures. Other files are not changed.
    mend : callable
        Repairs a file.
    partial : bool
        Whether documents may be missing from before the last seconds: files are then only repaired
        and listed.

    Attributes
    ----------
    rows : int
        Rows that `complete` added.
    mended : list of str
        Repaired files, and their repairs.
    unlisted : list of Path
        Files of the captures that are in no document.
    """

    def __init__(
        self, documents: Documents, readable: Iterable[Path], mend: Mend, *, partial: bool = False
    ) -> None:
        self.rows = 0
        self.mended: list[str] = []
        self.unlisted: list[Path] = []
        self._documents = documents
        self._readable = list(readable)
        self._mend = mend
        self._partial = partial
        self._start = documents[0][1]
        self._time = float(self._start["time"])
        self._streams: dict[str, Stream] = {}
        self._by_descriptor: dict[str, Stream] = {}
        self._resources: dict[str, dict[str, Any]] = {}
        self._used: set[str] = set()  # resources with rows
        self._keys_of_many: dict[str, str] = {}  # of resources whose rows have several frames

    def complete(self) -> Documents:
        """Return all documents of the run: the existing ones, rows of files, and a RunStop."""
        for name, doc in self._documents:
            self._take_event(name, doc)
        kept = [item for item in self._documents if not self._is_half_a_reading(*item)]
        for name, doc in kept:
            self._take_file(name, doc)
        for resource in self._resources.values():
            self._take_announced(resource)
        added = [item for stream in self._streams.values() for item in self._added(stream)]
        for stream in self._streams.values():
            for frames in stream.frames:
                self._write_master(frames, stream)
        return [*kept, *added, ("stop", self._stop())]

    def _take_event(self, name: str, doc: dict[str, Any]) -> None:
        if name == "descriptor":
            stream = self._streams.setdefault(doc["name"], Stream(doc))
            stream.descriptor = doc
            stream.frames = stream.frames or columns_of(doc)
            # Only readings of a frame detector have values in events. Pages may be from any flyer.
            own = {key for f in stream.frames for key in doc["object_keys"].get(f.device, [])}
            stream.has_readings |= bool(stream.columns) and own.issuperset(stream.columns)
            self._by_descriptor[doc["uid"]] = stream
        elif name in ("event", "event_page"):
            stream = self._by_descriptor[doc["descriptor"]]
            stream.has_readings |= name == "event"
            numbers = doc["seq_num"] if name == "event_page" else [doc["seq_num"]]
            stream.rows = max([stream.rows, *numbers])
        elif name == "stream_resource" and (doc["parameters"].get("multiplier") or 1) > 1:
            self._keys_of_many[doc["uid"]] = doc["data_key"]
        elif name == "stream_datum" and doc["stream_resource"] in self._keys_of_many:
            stream = self._by_descriptor[doc["descriptor"]]
            key = self._keys_of_many[doc["stream_resource"]]
            stream.has_readings |= stream.frames_of(key) is not None
        times = doc.get("time", [])
        self._time = max([self._time, *(times if isinstance(times, list) else [times])])

    def _is_half_a_reading(self, name: str, doc: dict[str, Any]) -> bool:
        """Whether it is a StreamDatum of a reading whose event is missing."""
        if name != "stream_datum":
            return False
        stream = self._by_descriptor[doc["descriptor"]]
        return stream.has_readings and doc["seq_nums"]["start"] > stream.rows

    def _take_file(self, name: str, doc: dict[str, Any]) -> None:
        if name == "stream_resource" and doc["mimetype"] in _MIMETYPES:
            self._resources[doc["uid"]] = doc
        elif name == "stream_datum" and doc["stream_resource"] in self._resources:
            resource = self._resources[doc["stream_resource"]]
            stream = self._by_descriptor[doc["descriptor"]]
            self._used.add(resource["uid"])
            if resource["mimetype"] in _FRAMES:
                if frames := stream.frames_of(resource["data_key"]):
                    frames.take_datum(doc, resource)
                return
            series = self._series(stream, resource)
            for number in range(doc["indices"]["start"], doc["indices"]["stop"]):
                series.placed.append(self._path(resource, number))
            series.next_number = doc["indices"]["stop"]

    def _take_announced(self, resource: dict[str, Any]) -> None:
        """Register the directory or file of a fly scan, which may have no complete row."""
        first = resource["parameters"].get("first_number")
        key = resource["data_key"]
        streams = [s for s in self._streams.values() if key in s.descriptor["data_keys"]]
        flown = [stream for stream in streams if not stream.has_readings]
        if resource["mimetype"] in _FRAMES:
            frames = flown[0].frames_of(key) if len(flown) == 1 else None
            if frames is not None and resource["uid"] not in self._used:
                frames.take_resource(resource)
            return
        if first is not None and len(flown) == 1 and key not in flown[0].series:
            self._series(flown[0], resource).next_number = first

    def _series(self, stream: Stream, resource: dict[str, Any]) -> Series:
        series = stream.series.setdefault(resource["data_key"], Series(resource["data_key"]))
        series.resource = resource
        return series

    def _added(self, stream: Stream) -> Documents:
        """Return the documents of the missing rows of a stream; note files in no document."""
        for series in stream.series.values():
            series.new = self._found(series)
        for frames in stream.frames:
            self._find_frames(frames, stream)
        if not stream.series and not any(frames.uris for frames in stream.frames):
            return []
        added = self._rows(stream)
        placed = {path for series in stream.series.values() for path in series.placed}
        found = [path for series in stream.series.values() for path in series.new]
        self.unlisted += [path for path in found if path not in placed]
        for frames in stream.frames:
            self._note_rest(frames)
        # Counters of a file have separate documents.
        self.unlisted = list(dict.fromkeys(self.unlisted))
        return added

    def _rows(self, stream: Stream) -> Documents:
        """Return the documents that complete a stream, for all files that exist."""
        keys, many = stream.descriptor["data_keys"], list(stream.series.values())
        detectors = stream.frames
        columns = stream.columns
        if not columns:
            # Captures share this stream, and its rows are their files.
            documented = [len(series.placed) for series in many]
            stream.rows = min(documented + [frames.documented for frames in detectors])
        counted = self._values(stream, [FileSummary(Path(), 0, 0)] * len(many)) if many else {}
        known = all(key in counted or keys[key]["dtype"] == "number" for key in columns)
        external = len(many) + sum(len(frames.columns) for frames in detectors)
        told = known and len(keys) - len(columns) == external
        if self._partial or not stream.is_flown or not told:
            return []
        found = [len(series.placed) + len(series.new) for series in many]
        rows = range(stream.rows, min(found + [frames.found for frames in detectors]))
        try:
            page = self._page(stream, columns, rows) if many else {"time": []}
        except (OSError, ValueError) as error:
            self.mended.append(f"no row is added: {error}")
            return []
        documents: list[tuple[str, dict[str, Any]]] = []
        for series in many:
            more = range(len(series.placed), rows.stop)
            if more:
                documents += self._files(stream, series, more)
                series.placed += series.new[: len(more)]
        for frames in detectors:
            documents += frames.documents(stream.descriptor["uid"], self._start["uid"], rows.stop)
        if rows:
            if columns:
                documents.append(("event_page", page))
            self._time = max([self._time, *page["time"]])
            self.rows += len(rows)
            stream.rows = rows.stop
        return documents

    def _found(self, series: Series) -> list[Path]:
        """Return the readable files from the next number on; note unreadable ones."""
        found: list[Path] = []
        number = series.next_number
        while (path := self._path(series.resource, number)) and _is_recorded(path):
            try:
                if path.suffix == ".pcap" and path.is_file():
                    self.mended += [f"{path}: {step}" for step in self._mend(path)]
                summarize(path)
            except (OSError, ValueError, NotPcapError, SidecarError, DaqiriError) as error:
                self.mended.append(f"{path}: not repaired: {error}")
                break
            found.append(path)
            number += 1
        if path is not None:
            self.unlisted += [path] if path.is_file() else []
            self.unlisted += files_beside([path])
        return found

    def _find_frames(self, frames: FrameColumns, stream: Stream) -> None:
        """Repair the latest files of a detector, and count their frames."""

        def count(uri: str) -> int | None:
            number, total = frames.complete(uri) if uri in frames.uris else (0, 0)
            addresses = frames.addresses(uri) if uri in frames.uris else iter([uri])
            for each in islice(addresses, number, None):
                path = self._confined(each, each)
                if path is None:
                    return None
                if each != uri and not _is_recorded(path):
                    break
                found = examined(uri, path)
                if found is None:
                    return None
                total += found
            return total

        def examined(uri: str, path: Path) -> int | None:
            try:
                modified = _modified(path)
                if not path.is_file():
                    # It was complete: its metadata count its frames.
                    self._time = max(self._time, modified)
                    return int(json.loads(sidecar_path(path).read_bytes())["frames"])
                if stream.has_readings and not self._partial:
                    self._cut_half_a_reading(path, frames.frames_in(uri), frames.per_row(uri))
                self.mended += [f"{path}: {step}" for step in self._mend(path)]
                found = examine_frames(path).frames
            except (OSError, ValueError, KeyError, TypeError, DaqiriError) as error:
                self.mended.append(f"{path}: not repaired: {error}")
                return None
            self._time = max(self._time, modified)
            return found

        if not frames.uris:
            return
        last = frames.uris[-1]
        path = self._confined(last, last)
        for each in islice(frames.addresses(last), 1, None):
            following = self._confined(each, each)
            if following is None or not _is_recorded(following):
                break
            path = following
        beside = [] if path is None else files_beside([path])
        uris = [f"{last.rpartition('/')[0]}/{file.name}" for file in beside]
        # They belong to this stream if they cannot belong to another one.
        streams = [s for s in self._streams.values() if frames.device in s.descriptor["data_keys"]]
        known = {doc["uri"] for doc in self._resources.values()}
        follow = stream.is_flown and not self._partial and streams == [stream]
        frames.find(count, uris if follow and not known.intersection(uris) else [])
        placed = {uri for s in streams for f in s.frames for uri in f.uris}
        rest = [file for file, uri in zip(beside, uris, strict=True) if uri not in placed]
        self.unlisted += rest
        if self._partial:
            for file in rest:
                self._repair_listed(file)

    def _write_master(self, frames: FrameColumns, stream: Stream) -> None:
        """Write the master of the files of a detector, as when it is unstaged."""
        files = []
        for uri in frames.uris:
            for address in frames.addresses(uri):
                path = self._confined(address, address)
                if path is None or not _is_recorded(path):
                    break
                files.append(path)
        try:
            path = frames.write_master(files, stream.descriptor, self._start)
        except (OSError, ValueError, DaqiriError) as error:
            self.mended.append(f"{files[0]}: no master file is written: {error}")
            return
        if path is not None:
            self.mended.append(f"{path}: written, the master of {len(files)} files")

    def _cut_half_a_reading(self, path: Path, documented: int, per_reading: int) -> None:
        """Cut frames of no reading: readers treat all frames of a file as frames of its readings.

        A power failure also loses the last seconds of the documents. So frames of up to two
        readings are cut: the one in progress, and one whose event may be lost. If there are more,
        all frames are kept.
        """
        surplus = examine_frames(path).frames - documented
        if 0 < surplus <= 2 * per_reading:
            cut = keep_frames(path, documented, "they are of a reading that was not complete")
            text = f"{cut} frames of a reading that was not complete are cut off"
            self.mended.append(f"{path}: {text}")

    def _repair_listed(self, path: Path) -> None:
        try:
            self.mended += [f"{path}: {step}" for step in self._mend(path)]
        except (OSError, ValueError, DaqiriError) as error:
            self.mended.append(f"{path}: not repaired: {error}")

    def _note_rest(self, frames: FrameColumns) -> None:
        """Note frames that are in no document."""
        for uri, rest in frames.rest.items():
            path = self._confined(uri, uri)
            if path is not None and frames.is_known(uri):
                self.mended.append(f"{path}: {rest} frames are in no document; they are kept")
            elif path is not None:
                self.unlisted.append(path)

    def _path(self, resource: dict[str, Any], number: int) -> Path | None:
        uri = resource["uri"] + resource["parameters"]["template"].format(number)
        return self._confined(uri, resource["uri"])

    def _confined(self, uri: str, known_as: str) -> Path | None:
        try:
            return confined_path(uri, self._readable)
        except UnreadableFileError as error:
            note = f"{uri}: not checked: {error}"
            if not any(known_as in known for known in self.mended):
                self.mended.append(note)
            return None

    def _values(self, stream: Stream, files: list[FileSummary]) -> dict[str, Any]:
        """Return the columns of a capture for a file of each series.

        Other columns are reductions, which only the device can compute.
        """
        named = dict(zip(stream.series, files, strict=True))
        values: dict[str, Any] = {}
        for device in stream.descriptor["object_keys"]:
            values |= row_columns(device, named)
        return values

    def _files(self, stream: Stream, series: Series, rows: range) -> Documents:
        number = series.next_number
        parameters = {k: v for k, v in series.resource["parameters"].items() if k != "first_number"}
        resource = {**series.resource, "uid": str(uuid.uuid4()), "parameters": parameters}
        datum = {
            "uid": f"{resource['uid']}/0",
            "stream_resource": resource["uid"],
            "descriptor": stream.descriptor["uid"],
            "indices": {"start": number, "stop": number + len(rows)},
            "seq_nums": {"start": rows.start + 1, "stop": rows.stop + 1},
        }
        return [("stream_resource", resource), ("stream_datum", datum)]

    def _page(self, stream: Stream, columns: list[str], rows: range) -> dict[str, Any]:
        times: list[float] = []
        values: list[dict[str, Any]] = []
        for row in rows:
            files = [_summary_of(series, row) for series in stream.series.values()]
            times.append(max(_modified(file.path) for file in files))
            values.append(self._values(stream, files))
        return {
            "descriptor": stream.descriptor["uid"],
            "uid": [str(uuid.uuid4()) for _ in rows],
            "time": times,
            "seq_num": [row + 1 for row in rows],
            "data": {name: [row.get(name, math.nan) for row in values] for name in columns},
            "timestamps": dict.fromkeys(columns, times),
            "filled": {},
        }

    def _stop(self) -> dict[str, Any]:
        rows = f"{self.rows} row{'' if self.rows == 1 else 's'} of files added"
        if self._partial:
            rows = "without documents that could not be kept"
        return {
            "uid": str(uuid.uuid4()),
            "time": self._time,
            "run_start": self._start["uid"],
            "exit_status": "abort",
            "reason": f"the process that ran it ended without closing it; recovered, {rows}",
            "num_events": {name: stream.rows for name, stream in self._streams.items()},
        }


def _summary_of(series: Series, row: int) -> FileSummary:
    path = [*series.placed, *series.new][row]
    if path is None:
        raise FileNotFoundError(f"a file of {series.key} is not readable here")
    return summarize(path)


def _is_recorded(path: Path) -> bool:
    """Whether a file is here, or was, and is in an object store."""
    return path.is_file() or is_shipped(path)


def _modified(path: Path) -> float:
    """Return when a file was completed, s since the epoch."""
    return (path if path.is_file() else sidecar_path(path)).stat().st_mtime
