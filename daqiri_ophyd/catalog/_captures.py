"""The capture files of a stored run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tiled.utils import path_from_uri

from daqiri_ophyd.documents import CAPTURE_MIMETYPES

__all__ = ["CaptureNotFoundError", "capture_files"]


class CaptureNotFoundError(LookupError):
    """The run does not have the requested capture, or has several."""


def capture_files(run: Any, *, stream: str | None = None, key: str | None = None) -> list[Path]:
    """Return the pcap or raw files of a run, in the order of the rows of their stream.

    Parameters
    ----------
    run : bluesky_tiled_plugins.BlueskyRun
        The run, from ``catalog.client[...]`` or ``catalog.databroker().v2[...]``.
    stream, key : str, optional
        Stream and data key of the capture; needed only if the run has several.

    Returns
    -------
    list of Path
        Paths on this host; all files exist.

    Raises
    ------
    CaptureNotFoundError
        If there is no such capture, or several.
    FileNotFoundError
        If a file is not at the path in the catalog.
    """
    uid = run.metadata["start"]["uid"]
    captures = dict(_captures(run))
    wanted = {
        name: files
        for name, files in captures.items()
        if stream in (None, name[0]) and key in (None, name[1])
    }
    if len(wanted) != 1:
        asked = "".join(
            f", {what} {name!r}" for what, name in (("stream", stream), ("key", key)) if name
        )
        found = ", ".join(f"{k!r} in stream {s!r}" for s, k in captures) or "none"
        streams = ", ".join(map(repr, run.base)) or "none"
        problem = "several captures; name one by stream and key" if wanted else "no such capture"
        raise CaptureNotFoundError(
            f"Run {uid}{asked}: {problem}. Captures found: {found}. Streams found: {streams}."
        )
    (files,) = wanted.values()
    missing = [path for path in files if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"Run {uid}: {len(missing)} of {len(files)} capture files are not on this host, "
            f"the first is {missing[0]}. If they were moved, put them back; if they are on the "
            "catalog's host, download them with raw_export."
        )
    return files


def _captures(run: Any) -> Iterator[tuple[tuple[str, str], list[Path]]]:
    """Yield ``(stream, key), files`` for each capture in a run."""
    # Through the plain container: runs from databroker have another interface to streams.
    for stream_name, stream in run.base.items():
        parts = set(stream.base)
        for name, data_key in stream.metadata["data_keys"].items():
            if "external" not in data_key or name not in parts:
                continue
            for source in stream.base[name].include_data_sources().data_sources():
                if source.mimetype in CAPTURE_MIMETYPES.values():
                    assets = sorted(source.assets, key=lambda asset: asset.num or 0)
                    yield (stream_name, name), [Path(path_from_uri(a.data_uri)) for a in assets]
