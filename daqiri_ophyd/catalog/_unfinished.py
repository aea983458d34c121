"""The documents that the run of a killed process lacks."""

import math
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from daqiri_ophyd.documents import CAPTURE_MIMETYPES, COUNTER_MIMETYPE, FileSummary, SidecarError

from ._backup import Documents
from ._confine import UnreadableFileError, confined_path
from ._summarize import NotPcapError, summarize

__all__ = ["Mend", "UnfinishedRun", "files_beside"]

Mend: TypeAlias = Callable[[Path], list[str]]
"""Repairs a file; returns what was done."""

_NUMBERED = re.compile(r"(.+_)([0-9]{6,})(\.(?:pcap|raw))")
_MIMETYPES = {*CAPTURE_MIMETYPES.values(), COUNTER_MIMETYPE}
_COUNTERS = ("packets", "bytes", "dropped", "t_first_ns", "t_last_ns")


def files_beside(files: Sequence[Path]) -> list[Path]:
    """Return the capture files that lie beside these, have the same prefix, and a higher number."""
    found: set[Path] = set()
    for file in files:
        if name := _NUMBERED.fullmatch(file.name):
            prefix, number, suffix = name.groups()
            for path in file.parent.glob(f"{prefix}*{suffix}"):
                other = _NUMBERED.fullmatch(path.name)
                if other and other[1] == prefix and int(other[2]) > int(number):
                    found.add(path)
    return sorted(found.difference(files))


@dataclass
class _Series:
    """The files of one data key of a stream."""

    key: str
    resource: dict[str, Any] = field(default_factory=dict)
    next_number: int = 0
    placed: list[Path | None] = field(default_factory=list)  # row by row; None: not readable
    new: list[Path] = field(default_factory=list)


@dataclass
class _Stream:
    descriptor: dict[str, Any]
    rows: int = 0
    has_readings: bool = False  # rows are those of a step scan
    series: dict[str, _Series] = field(default_factory=dict)


class UnfinishedRun:
    """The documents of a run up to where its process was killed.

    Parameters
    ----------
    documents : sequence of tuple
        Names and documents; the first is the start document.
    readable : iterable of Path
        Directories of captures. Files elsewhere are not touched.
    mend : callable
        Repairs a pcap file.

    Attributes
    ----------
    rows : int
        Rows that `complete` added.
    mended : list of str
        Files that were repaired, and how.
    unlisted : list of Path
        Files of the captures that are in no document.
    """

    def __init__(self, documents: Documents, readable: Iterable[Path], mend: Mend) -> None:
        self.rows = 0
        self.mended: list[str] = []
        self.unlisted: list[Path] = []
        self._documents = documents
        self._readable = list(readable)
        self._mend = mend
        self._start = documents[0][1]
        self._time = float(self._start["time"])
        self._streams: dict[str, _Stream] = {}
        self._by_descriptor: dict[str, _Stream] = {}
        self._resources: dict[str, dict[str, Any]] = {}

    def complete(self) -> Documents:
        """Return all documents of the run: those that there are, rows of files, and a RunStop."""
        for name, doc in self._documents:
            self._take_event(name, doc)
        kept = [item for item in self._documents if not self._is_half_a_reading(*item)]
        for name, doc in kept:
            self._take_file(name, doc)
        for resource in self._resources.values():
            self._take_announced(resource)
        added = [item for stream in self._streams.values() for item in self._added(stream)]
        return [*kept, *added, ("stop", self._stop())]

    def _take_event(self, name: str, doc: dict[str, Any]) -> None:
        if name == "descriptor":
            stream = self._streams.setdefault(doc["name"], _Stream(doc))
            stream.descriptor = doc
            self._by_descriptor[doc["uid"]] = stream
        elif name in ("event", "event_page"):
            stream = self._by_descriptor[doc["descriptor"]]
            stream.has_readings |= name == "event"
            numbers = doc["seq_num"] if name == "event_page" else [doc["seq_num"]]
            stream.rows = max([stream.rows, *numbers])
        times = doc.get("time", [])
        self._time = max([self._time, *(times if isinstance(times, list) else [times])])

    def _is_half_a_reading(self, name: str, doc: dict[str, Any]) -> bool:
        """Whether it is a StreamDatum of a reading whose event was not to come any more."""
        if name != "stream_datum":
            return False
        stream = self._by_descriptor[doc["descriptor"]]
        return stream.has_readings and doc["seq_nums"]["start"] > stream.rows

    def _take_file(self, name: str, doc: dict[str, Any]) -> None:
        if name == "stream_resource" and doc["mimetype"] in _MIMETYPES:
            self._resources[doc["uid"]] = doc
        elif name == "stream_datum" and doc["stream_resource"] in self._resources:
            resource = self._resources[doc["stream_resource"]]
            series = self._series(self._by_descriptor[doc["descriptor"]], resource)
            for number in range(doc["indices"]["start"], doc["indices"]["stop"]):
                series.placed.append(self._path(resource, number))
            series.next_number = doc["indices"]["stop"]

    def _take_announced(self, resource: dict[str, Any]) -> None:
        """Take note of the directory of a fly scan, which may have no complete file."""
        first = resource["parameters"].get("first_number")
        key = resource["data_key"]
        streams = [s for s in self._streams.values() if key in s.descriptor["data_keys"]]
        flown = [stream for stream in streams if not stream.has_readings]
        if first is not None and len(flown) == 1 and key not in flown[0].series:
            self._series(flown[0], resource).next_number = first

    def _series(self, stream: _Stream, resource: dict[str, Any]) -> _Series:
        series = stream.series.setdefault(resource["data_key"], _Series(resource["data_key"]))
        series.resource = resource
        return series

    def _added(self, stream: _Stream) -> Documents:
        """Return the documents of the rows that a stream lacks; note files that are in none."""
        if not stream.series:
            return []
        for series in stream.series.values():
            series.new = self._found(series)
        added = self._rows(stream)
        placed = {path for series in stream.series.values() for path in series.placed}
        found = [path for series in stream.series.values() for path in series.new]
        self.unlisted += [path for path in found if path not in placed]
        # Counters of a file have documents of their own.
        self.unlisted = list(dict.fromkeys(self.unlisted))
        return added

    def _rows(self, stream: _Stream) -> Documents:
        """Return files and rows that make a stream whole, for all files that were found."""
        keys, many = stream.descriptor["data_keys"], list(stream.series.values())
        columns = [key for key, value in keys.items() if "external" not in value]
        if not columns:
            # A stream that captures share, whose rows are their files.
            stream.rows = min(len(series.placed) for series in many)
        counted = self._values(stream, [FileSummary(Path(), 0, 0)] * len(many))
        alone = len(stream.descriptor["object_keys"]) == 1
        flown = not stream.has_readings and (alone or not columns)
        known = all(key in counted or keys[key]["dtype"] == "number" for key in columns)
        if not flown or not known or len(keys) - len(columns) != len(many):
            return []
        rows = range(stream.rows, min(len(s.placed) + len(s.new) for s in many))
        try:
            page = self._page(stream, columns, rows)
        except (OSError, ValueError) as error:
            self.mended.append(f"no row is added: {error}")
            return []
        documents: list[tuple[str, dict[str, Any]]] = []
        for series in many:
            more = range(len(series.placed), rows.stop)
            if more:
                documents += self._files(stream, series, more)
                series.placed += series.new[: len(more)]
        if rows:
            if columns:
                documents.append(("event_page", page))
            self._time = max([self._time, *page["time"]])
            self.rows += len(rows)
            stream.rows = rows.stop
        return documents

    def _found(self, series: _Series) -> list[Path]:
        """Return the readable files from the next number on; note others that are there."""
        found: list[Path] = []
        number = series.next_number
        while (path := self._path(series.resource, number)) and path.is_file():
            try:
                if path.suffix == ".pcap":
                    self.mended += [f"{path}: {step}" for step in self._mend(path)]
                summarize(path)
            except (OSError, ValueError, NotPcapError, SidecarError) as error:
                self.mended.append(f"{path}: not repaired: {error}")
                break
            found.append(path)
            number += 1
        if path is not None:
            self.unlisted += [path] if path.is_file() else []
            self.unlisted += files_beside([path])
        return found

    def _path(self, resource: dict[str, Any], number: int) -> Path | None:
        uri = resource["uri"] + resource["parameters"]["template"].format(number)
        try:
            return confined_path(uri, self._readable)
        except UnreadableFileError as error:
            note = f"{uri}: not looked at: {error}"
            if not any(resource["uri"] in known for known in self.mended):
                self.mended.append(note)
            return None

    def _values(self, stream: _Stream, files: list[FileSummary]) -> dict[str, Any]:
        """Return the columns of a capture for a file of each series, as its device computes them.

        Other columns are reductions, which only the device can compute.
        """
        values: dict[str, Any] = {}
        stems = [key.removesuffix("_files") for key in stream.series]
        for stem, file in zip(stems, files, strict=True):
            values |= {f"{stem}_{name}": getattr(file, name) for name in _COUNTERS}
        firsts = [file.t_first_ns for file in files if file.t_first_ns >= 0]
        for device in stream.descriptor["object_keys"]:
            values |= {
                f"{device}_packets": sum(file.packets for file in files),
                f"{device}_bytes": sum(file.bytes for file in files),
                f"{device}_dropped": sum(file.dropped for file in files),
                f"{device}_t_first_ns": min(firsts, default=-1),
                f"{device}_t_last_ns": max(file.t_last_ns for file in files),
                f"{device}_lossy": any(file.dropped for file in files),
            }
        return values

    def _files(self, stream: _Stream, series: _Series, rows: range) -> Documents:
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

    def _page(self, stream: _Stream, columns: list[str], rows: range) -> dict[str, Any]:
        times: list[float] = []
        values: list[dict[str, Any]] = []
        for row in rows:
            files = [_summary_of(series, row) for series in stream.series.values()]
            times.append(max(file.path.stat().st_mtime for file in files))
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
        return {
            "uid": str(uuid.uuid4()),
            "time": self._time,
            "run_start": self._start["uid"],
            "exit_status": "abort",
            "reason": f"the process that ran it ended without closing it; recovered, {rows}",
            "num_events": {name: stream.rows for name, stream in self._streams.items()},
        }


def _summary_of(series: _Series, row: int) -> FileSummary:
    path = [*series.placed, *series.new][row]
    if path is None:
        raise FileNotFoundError(f"a file of {series.key} is not readable here")
    return summarize(path)
