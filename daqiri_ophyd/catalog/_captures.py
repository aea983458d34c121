"""The capture files of a stored run."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from daqiri_ophyd.documents import CAPTURE_MIMETYPES, FRAMES_MIMETYPE

from ._confine import (
    UnreadableFileError,
    confined_path,
    directories_of,
    folders_of,
    whereabouts,
)
from ._find import why_incomplete

__all__ = ["CaptureNotFoundError", "capture_files", "captures_of", "run_files"]


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

    If the run has none, or `key` is that of frames: the files of frames.

    Parameters
    ----------
    run : bluesky_tiled_plugins.BlueskyRun
        The run, from ``catalog.client[...]`` or ``catalog.databroker().v2[...]``.
    stream, key : str, optional
        Stream and data key of the capture; needed only if the run has several.
    readable : iterable of str or Path, optional
        Directories of captures on this host; files elsewhere are rejected. Default: those given to
        `Catalog.open` or `Catalog.connect`, whose ``moved`` applies, too.

    Returns
    -------
    list of Path
        Paths on this host; all files exist.

    Raises
    ------
    CaptureNotFoundError
        If there is no such capture, or several.
    UnreadableFileError
        If a file is on another host or not below a readable directory.
    FileNotFoundError
        If a file is not at the path in the catalog.
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
    directories = directories_of(run.context, readable)
    if not directories:
        raise UnreadableFileError(
            f"Run {uid}: the directories of captures are not known, and the catalog could name any "
            "file: Catalog.open or Catalog.connect(..., readable=[directory]), or "
            "capture_files(run, readable=...)."
        )
    try:
        files = [confined_path(uri, directories) for uri in uris]
    except UnreadableFileError as error:
        raise UnreadableFileError(f"Run {uid}: {error}") from None
    missing = [path for path in files if not path.is_file()]
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
    directories = directories_of(run.context, readable)
    return {
        name: [confined_path(uri, directories) for uri in uris] for name, uris in captures_of(run)
    }


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
