"""Stream documents for a sequence of capture files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from event_model import ComposeStreamResourceBundle
    from event_model.documents import DataKey, StreamDatum, StreamResource

__all__ = [
    "CAPTURE_MIMETYPES",
    "COMPANIONS",
    "COUNTER_MIMETYPE",
    "NAME_DTYPE",
    "PCAP_MIMETYPE",
    "CaptureFormat",
    "CaptureSequence",
    "StreamAsset",
    "capture_data_key",
    "directory_uri",
]

CaptureFormat: TypeAlias = Literal["pcap", "raw"]
"""Classic pcap, or packets back to back with an index file; also the files' suffix."""

PCAP_MIMETYPE = "multipart/related;type=application/vnd.tcpdump.pcap"
"""Mimetype of a sequence of classic pcap files, read as the name of each file."""

CAPTURE_MIMETYPES: dict[CaptureFormat, str] = {
    "pcap": PCAP_MIMETYPE,
    "raw": "multipart/related;type=application/vnd.daqiri-ophyd.packets",
}
"""Mimetype of a sequence of files of each format; all are read as the name of each file."""

NAME_DTYPE = "<U255"
"""Type of the name of a file in catalogs; Linux has no longer names."""

COMPANIONS = {".json": "sidecars", ".npy": "indices"}
"""Roles in a data source of the files next to a capture file, by suffix to its name."""

COUNTER_MIMETYPE = "multipart/related;type=application/vnd.daqiri-ophyd.counter"
"""Mimetype of a sequence of capture files from which one counter is read, ``field``."""

StreamAsset = tuple[str, "StreamResource | StreamDatum"]
"""Item of a device's ``collect_asset_docs``: name of the document type, and the document."""

_PREFIX = re.compile(r"[A-Za-z0-9_.-]+")
# Readers do not unquote the path of a file URI, and cut it at the first of these. The last ones are
# bytes that are not UTF-8, in the name of a file.
_NOT_IN_URI = re.compile(r"[?#;\x00-\x1f\x7f\ud800-\udfff]")


def capture_data_key(source: str) -> DataKey:
    """Return the data key of capture files, for ``describe`` and ``describe_collect``.

    The value of a row is the name of its file.

    Parameters
    ----------
    source : str
        Source of the packets, such as ``daqiri://port0/rx/0``.
    """
    return {
        "source": source,
        "dtype": "string",
        "shape": [],
        "dtype_numpy": NAME_DTYPE,
        "external": "STREAM:",
    }


def directory_uri(directory: Path) -> str:
    """Return the URI of a directory on this host.

    Raises
    ------
    ValueError
        If its path has characters that are not allowed in a URI of captures.
    """
    return _checked(f"file://localhost{directory.as_posix()}")


def _checked(uri: str) -> str:
    if bad := _NOT_IN_URI.search(uri):
        raise ValueError(
            f"Captures at {uri!r} cannot be catalogued: {bad[0]!r} is not allowed in the URI. "
            "Choose a directory without it."
        )
    return uri


class CaptureSequence:
    """The files of one directory and one data key, as StreamResource and StreamDatum.

    Files are ``<prefix>_000000.pcap``, ``<prefix>_000001.pcap`` and so on, or ``.raw``; the number
    of a file is its index in the documents. Each call of `emit` has its own StreamResource (or that
    of `announce`), because a StreamResource belongs to one stream of one run, and the files of a
    device may go to several.

    Parameters
    ----------
    data_key : str
        Name of the key in the event descriptor.
    directory : str or Path
        Directory of the files, absolute.
    prefix : str
        First part of the file names: letters, digits, ``_``, ``.`` and ``-``.
    format : str
        ``pcap`` or ``raw``.
    uri : str, optional
        URI of the directory for readers that mount it elsewhere: ``file://localhost/...``. Default:
        ``directory`` on this host.
    field : str, optional
        Counter to read from each file: a field of `FileSummary`, or ``lossy``. Default: its name.

    Raises
    ------
    ValueError
        If the directory is not absolute or cannot be expressed as a URI, or the prefix cannot be
        used in a file name template.

    Notes
    -----
    Document formats: event-model 1.24, ``stream_resource`` and ``stream_datum``.
    """

    def __init__(
        self,
        data_key: str,
        directory: str | Path,
        prefix: str = "capture",
        *,
        format: CaptureFormat = "pcap",
        uri: str | None = None,
        field: str = "",
    ) -> None:
        self._directory = Path(directory)
        if not self._directory.is_absolute():
            raise ValueError(
                f"Capture directory {str(directory)!r} is relative; give its full path."
            )
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(
                f"Capture prefix {prefix!r} has characters other than "
                "letters, digits, '_', '.' and '-'."
            )
        uri = directory_uri(self._directory) if uri is None else _checked(uri)
        if not uri.startswith("file://localhost/"):
            raise ValueError(
                f"URI {uri!r} of a capture directory must begin with file://localhost/."
            )
        self._prefix = prefix
        self._format: CaptureFormat = format
        self._uri = uri.rstrip("/") + "/"
        self._data_key = data_key
        self._field = field
        self._emitted = 0
        self._announced: ComposeStreamResourceBundle | None = None

    @property
    def directory(self) -> Path:
        """Directory of the files."""
        return self._directory

    @property
    def prefix(self) -> str:
        """First part of the file names."""
        return self._prefix

    def counter(self, data_key: str, field: str) -> CaptureSequence:
        """Return the sequence of a counter of the same files."""
        sequence = CaptureSequence(
            data_key,
            self._directory,
            self._prefix,
            format=self._format,
            uri=self._uri,
            field=field,
        )
        sequence.skip(self._emitted)
        return sequence

    @property
    def emitted(self) -> int:
        """Index after that of the last file that was emitted or skipped."""
        return self._emitted

    def path(self, index: int) -> Path:
        """Return the path of the file with this index."""
        return self._directory / f"{self._prefix}_{index:06d}.{self._format}"

    def emit(self, stop: int) -> Iterator[StreamAsset]:
        """Yield documents for the files finished since the last call.

        Parameters
        ----------
        stop : int
            Number of files finished so far.

        Yields
        ------
        tuple of str and dict
            ``("stream_resource", doc)``, then ``("stream_datum", doc)``; nothing if no file was
            finished.

        Raises
        ------
        ValueError
            If ``stop`` is less than in an earlier call.
        """
        self._check(stop)
        if stop == self._emitted:
            return
        start, self._emitted = self._emitted, stop
        bundle, self._announced = self._announced, None
        if bundle is None:
            bundle = self._compose()
            yield "stream_resource", bundle.stream_resource_doc
        indices: Any = {"start": start, "stop": stop}
        yield "stream_datum", bundle.compose_stream_datum(indices=indices)

    def announce(self) -> StreamAsset:
        """Return a StreamResource for the files to come, the first with number ``first_number``.

        The next StreamDatum refers to it. If the process is killed before that, the files can be
        found through it.
        """
        self._announced = self._compose(first_number=self._emitted)
        return "stream_resource", self._announced.stream_resource_doc

    def _compose(self, **parameters: Any) -> ComposeStreamResourceBundle:
        template = f"{self._prefix}_{{:06d}}.{self._format}"
        # Commands that only read files do not need it, and it takes a tenth of a second to import.
        from event_model import compose_stream_resource

        if self._field:
            parameters["field"] = self._field
        return compose_stream_resource(
            mimetype=COUNTER_MIMETYPE if self._field else CAPTURE_MIMETYPES[self._format],
            uri=self._uri,
            data_key=self._data_key,
            parameters={"template": template, "chunk_shape": (1,), **parameters},
        )

    def skip(self, stop: int) -> None:
        """Leave files up to ``stop`` out of the documents; a later reading replaces them.

        Raises
        ------
        ValueError
            If their documents were already emitted.
        """
        self._check(stop)
        self._emitted = stop
        self._announced = None

    def _check(self, stop: int) -> None:
        if stop < self._emitted:
            raise ValueError(
                f"{stop} files finished in {self._directory}, but documents were emitted for "
                f"{self._emitted}; a sequence only grows. Create a new one for a new directory."
            )
