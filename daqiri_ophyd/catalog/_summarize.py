"""Summary of a capture file, from its metadata file or else from the packets' headers."""

from pathlib import Path

import numpy as np

from daqiri_ophyd.documents import FileSummary, read_sidecar
from daqiri_ophyd.engine import InvalidParameterError, PcapFile

__all__ = ["NotPcapError", "summarize"]


class NotPcapError(ValueError):
    """A file that is no pcap file, or is damaged before its end."""


def summarize(path: str | Path) -> FileSummary:
    """Return the summary of a pcap file.

    The metadata file beside it is the source if there is one; else the records are indexed, and
    ``dropped`` is 0.

    Parameters
    ----------
    path : str or Path
        Any file that `daqiri_ophyd.engine.PcapFile` reads. A torn last record is left out.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    NotPcapError
        If it is no pcap file.
    daqiri_ophyd.documents.SidecarError
        If the metadata file is not usable.
    """
    path = Path(path)
    path.stat()  # first: metadata of a file that vanished would mislead
    sidecar = read_sidecar(path)
    if sidecar is not None:
        return sidecar.summary(path)
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
