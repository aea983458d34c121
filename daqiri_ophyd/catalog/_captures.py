"""The capture files of a stored run."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tiled.utils import path_from_uri

from daqiri_ophyd.documents import CAPTURE_MIMETYPES, FRAMES_MIMETYPE
from daqiri_ophyd.ship import StoredObject, fetch_all

from ._confine import UnreadableFileError, confined_path, folders_of, whereabouts
from ._find import why_incomplete
from ._stored import Stored, StoredFiles, require_in_stores, split_readable

__all__ = [
    "CaptureNotFoundError",
    "FileFinder",
    "capture_files",
    "captures_of",
    "run_files",
    "stored_files",
]


class CaptureNotFoundError(LookupError):
    """The run does not have the requested capture, or has several."""


def capture_files(
    run: Any,
    *,
    stream: str | None = None,
    key: str | None = None,
    readable: Iterable[str | Path] | None = None,
) -> list[Path]:
    """Return the pcap or raw files of a run, in the order of the rows of their stream.

    If the run has none, or `key` is that of frames: the files of frames. Files that are in an
    object store only are fetched; see `stored_files`.

    Parameters
    ----------
    run : bluesky_tiled_plugins.BlueskyRun
        The run, from ``catalog.client[...]`` or ``catalog.databroker().v2[...]``.
    stream, key : str, optional
        Stream and data key of the capture; needed only if the run has several.
    readable : iterable of str or Path, optional
        Directories of captures on this host, and addresses of object stores; files elsewhere are
        rejected. Default: those given to `Catalog.open` or `Catalog.connect`, whose ``moved``
        applies, too.

    Returns
    -------
    list of Path
        Paths on this host; all files exist.

    Raises
    ------
    CaptureNotFoundError, UnreadableFileError, FileNotFoundError, StoreError
        As `stored_files`.
    OSError
        If a file cannot be fetched.
    """
    return fetch_all(stored_files(run, stream=stream, key=key, readable=readable))


def stored_files(
    run: Any,
    *,
    stream: str | None = None,
    key: str | None = None,
    readable: Iterable[str | Path] | None = None,
) -> list[Stored]:
    """Return the files of a capture like `capture_files`, without fetching any.

    Parameters
    ----------
    run, stream, key, readable
        As for `capture_files`.

    Returns
    -------
    list of Path or StoredObject
        Files on this host, which exist, or in an object store.

    Raises
    ------
    CaptureNotFoundError
        If there is no such capture, or several.
    UnreadableFileError
        If a file is on another host or not below a readable directory.
    FileNotFoundError
        If a file is not at the path in the catalog, nor in the store.
    StoreError
        If the store cannot be read.
    """
    uid = run.metadata["start"]["uid"]
    captures = dict(captures_of(run))
    wanted = {
        name: files
        for name, files in captures.items()
        if stream in (None, name[0]) and key in (None, name[1])
    }
    packets = {name: files for name, files in wanted.items() if not files[0].endswith(".h5")}
    if packets and key is None:
        wanted = packets
    if len(wanted) != 1:
        asked = "".join(
            f", {what} {name!r}" for what, name in (("stream", stream), ("key", key)) if name
        )
        found = ", ".join(f"{k!r} in stream {s!r}" for s, k in captures) or "none"
        streams = ", ".join(map(repr, run.base)) or "none"
        problem = "several captures; name one by stream and key" if wanted else "no such capture"
        raise CaptureNotFoundError(
            f"Run {uid}{asked}: {problem}. Captures found: {found}. Streams found: {streams}."
            f"{why_incomplete(run)}"
        )
    (uris,) = wanted.values()
    finder = FileFinder(run, readable)
    if not finder.directories and not finder.stores:
        raise UnreadableFileError(
            f"Run {uid}: the directories of captures are not known, and the catalog could name any "
            "file: Catalog.open or Catalog.connect(..., readable=[directory]), or "
            "capture_files(run, readable=...)."
        )
    ((of_stream, of_key),) = wanted
    try:
        files = [finder.find(uri, of_stream, of_key) for uri in uris]
    except UnreadableFileError as error:
        raise UnreadableFileError(f"Run {uid}: {error}") from None
    missing = [file for file in files if isinstance(file, Path) and not file.is_file()]
    if missing:
        raise FileNotFoundError(
            f"Run {uid}: {len(missing)} of {len(files)} capture files are not on this host, "
            f"the first is {missing[0]}. {whereabouts(missing[0])} If they are on the catalog's "
            "host, download them with raw_export."
        )
    return files


def run_files(
    run: Any, *, readable: Iterable[str | Path] | None = None
) -> dict[tuple[str, str], list[Path]]:
    """Return the files of all captures and frame detectors of a run.

    Parameters
    ----------
    run : bluesky_tiled_plugins.BlueskyRun
        The run.
    readable : iterable of str or Path, optional
        As for `capture_files`.

    Returns
    -------
    dict
        Paths on this host in the order of the rows, by stream and data key; they may be missing.

    Raises
    ------
    UnreadableFileError
        If a file is on another host or not below a readable directory.
    """
    finder = FileFinder(run, readable)
    return {name: [finder.path(uri) for uri in uris] for name, uris in captures_of(run)}


class FileFinder:
    """Finds the files that a run's documents name, on this host or in an object store.

    Parameters
    ----------
    run : bluesky_tiled_plugins.BlueskyRun
        The run.
    readable : iterable of str or Path, optional
        As for `capture_files`.
    """

    def __init__(self, run: Any, readable: Iterable[str | Path] | None = None) -> None:
        folders = folders_of(run.context)
        self._run = run
        self.directories, self.stores = list(folders.readable), list(folders.stores)
        if readable is not None:
            self.directories, self.stores = split_readable(readable)
        self._moved = folders.moved
        self.stored = StoredFiles(self._moved, self.stores)
        self._shipped: dict[tuple[str, str], tuple[Path, str] | None] = {}

    def path(self, uri: str) -> Path:
        """Return the path of a file, which may be missing.

        Raises
        ------
        UnreadableFileError
            If it may not be read.
        """
        path = Path(path_from_uri(uri)) if uri.startswith("file:") else None
        if path is not None and self.stored.has(path):
            return path
        return confined_path(uri, self.directories)

    def find(self, uri: str, stream: str, key: str) -> Stored:
        """Return a file of a data key; a path that does not exist: it is nowhere.

        Raises
        ------
        UnreadableFileError
            If it may not be read.
        StoreError
            If the store cannot be read.
        """
        shipped = self._shipped_to(stream, key)
        try:
            path = self.path(uri)
        except UnreadableFileError:
            # On another host, the directories of the one that recorded it are not readable. Nor is
            # a file of this host that has its path.
            if shipped is None or not uri.startswith("file:"):
                raise
            stored = self._object(Path(path_from_uri(uri)), *shipped)
            if stored is None:
                raise
            return stored
        found = self.stored.find(path)
        if isinstance(found, StoredObject) or (shipped is None) or found.is_file():
            return found
        return self._object(path, *shipped) or path

    def _object(self, path: Path, root: Path, address: str) -> StoredObject | None:
        """Return the object of a file below a directory that was uploaded to an address."""
        if not path.is_relative_to(root):
            root = self._moved.path(root)
        if not path.is_relative_to(root):
            return None
        uri = f"{address}/{path.relative_to(root).as_posix()}"
        require_in_stores(uri, self.stores)
        try:
            stored = StoredObject(uri)
        except ValueError as error:
            raise UnreadableFileError(str(error)) from error
        return stored if stored.exists() else None

    def _shipped_to(self, stream: str, key: str) -> tuple[Path, str] | None:
        """Return the directory of a device, and the address to which its files were uploaded.

        Its configuration in the descriptor has them.
        """
        if (stream, key) not in self._shipped:
            metadata = self._run.base[stream].metadata
            device = metadata["data_keys"][key].get("object_name", "")
            told = metadata.get("configuration", {}).get(device, {}).get("data", {})
            address = told.get(f"{device}_ship_to")
            root = told.get(f"{device}_ship_root")
            known = address and root
            self._shipped[stream, key] = (Path(root), str(address)) if known else None
        return self._shipped[stream, key]


def captures_of(run: Any) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """Yield ``(stream, key), addresses of the files`` for each capture in a run.

    Files of folders that were moved have the new addresses.
    """
    moved = folders_of(run.context).unapplied
    # Read the plain container: runs from databroker have another interface to streams.
    for stream_name, stream in run.base.items():
        parts = set(stream.base)
        for name, data_key in stream.metadata["data_keys"].items():
            if "external" not in data_key or name not in parts:
                continue
            for source in stream.base[name].include_data_sources().data_sources():
                # Numbers of frames are in the same file as the frames.
                frames = data_key["source"].startswith("daqiri://") and (
                    (source.mimetype, source.parameters.get("dataset"))
                    == (FRAMES_MIMETYPE, "/entry/data/data")
                )
                if source.mimetype in CAPTURE_MIMETYPES.values() or frames:
                    assets = sorted(source.assets, key=lambda asset: asset.num or 0)
                    yield (
                        (stream_name, name),
                        [moved.uri(a.data_uri) for a in assets if a.parameter == "data_uris"],
                    )
