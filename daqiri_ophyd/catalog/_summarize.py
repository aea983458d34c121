"""Summary of a capture file, from its metadata file or else from the packets' headers."""

from pathlib import Path

import numpy as np

from daqiri_ophyd.documents import FileSummary, read_sidecar
from daqiri_ophyd.engine import InvalidParameterError, PcapFile

__all__ = ["NotPcapError", "summarize"]


class NotPcapError(ValueError):
    """A file that is no pcap file, or is damaged before its end."""


def summarize(path: str | Path) -> FileSummary:
    """Return the summary of a capture file.

    The metadata file beside it is the source if there is one; else the packets' index or headers,
    and ``dropped`` is 0.

    Parameters
    ----------
    path : str or Path
        Any file that `daqiri_ophyd.engine.PcapFile` reads, without a torn last record; or
        ``.raw``, packets back to back with their index beside them.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    NotPcapError
        If it is no pcap file, or a raw file without its index.
    daqiri_ophyd.documents.SidecarError
        If the metadata file is not usable.
    """
    path = Path(path)
    path.stat()  # first: metadata of a file that vanished would mislead
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
