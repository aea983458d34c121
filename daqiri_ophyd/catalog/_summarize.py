"""Summary of a capture file, from its metadata file or from its records."""

from pathlib import Path

import numpy as np

from daqiri_ophyd.documents import FileSummary, read_sidecar
from daqiri_ophyd.engine import InvalidParameterError, PcapFile
from daqiri_ophyd.ship import is_shipped

__all__ = ["NotPcapError", "summarize"]


class NotPcapError(ValueError):
    """The file is not a pcap file, or is damaged."""


def summarize(path: str | Path) -> FileSummary:
    """Return the summary of a capture file.

    It is read from the metadata file if there is one, also of a file that is in an object store,
    and not on this host any more. Otherwise it is computed from the index or
    the record headers, and ``dropped`` is 0.

    Parameters
    ----------
    path : str or Path
        Any file that `daqiri_ophyd.engine.PcapFile` reads; or ``.raw``, packets back to back with
        an index file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    NotPcapError
        If it is not a pcap file, or a raw file without its index.
    daqiri_ophyd.documents.SidecarError
        If the metadata file is not valid.
    """
    path = Path(path)
    if not is_shipped(path):
        path.stat()  # a metadata file without its capture file must not be used
    sidecar = read_sidecar(path)
    if sidecar is not None:
        return sidecar.summary(path)
    if path.suffix == ".raw":
        return _summarize_raw(path)
    try:
        pcap = PcapFile(path)
    except InvalidParameterError as error:
        raise NotPcapError(str(error)) from error
    with pcap:
        if not len(pcap):
            return FileSummary(path, packets=0, bytes=0)
        return FileSummary(
            path,
            len(pcap),
            int(pcap.wire_lengths.sum(dtype=np.uint64)),
            int(pcap.timestamps[0]),
            int(pcap.timestamps[-1]),
        )


def _summarize_raw(path: Path) -> FileSummary:
    try:
        index = np.load(path.with_name(path.name + ".npy"), mmap_mode="r")
        size = int(index["length"].sum(dtype=np.uint64))
        times = index["timestamp"]
    except (OSError, ValueError, IndexError) as error:
        raise NotPcapError(f"{path} cannot be read without its index: {error}") from error
    if not len(index):
        return FileSummary(path, packets=0, bytes=0)
    return FileSummary(path, len(index), size, int(times[0]), int(times[-1]))
