"""Documents for captures: how a device describes the files it wrote.

Nothing here needs a running engine. A device composes its documents from a `CaptureStream`; the
catalog reads the `Sidecar`, the metadata file that the recorder writes for each capture file.
"""

from ._sequence import (
    CAPTURE_MIMETYPES,
    COUNTER_MIMETYPE,
    PCAP_MIMETYPE,
    CaptureFormat,
    CaptureSequence,
    StreamAsset,
    capture_data_key,
    directory_uri,
)
from ._sidecar import Sidecar, SidecarError, read_sidecar, sidecar_path
from ._stream import CaptureStream
from ._summary import SUMMARY_DTYPE, FileSummary

__all__ = [
    "CAPTURE_MIMETYPES",
    "COUNTER_MIMETYPE",
    "PCAP_MIMETYPE",
    "CaptureFormat",
    "SUMMARY_DTYPE",
    "CaptureStream",
    "FileSummary",
    "CaptureSequence",
    "Sidecar",
    "SidecarError",
    "StreamAsset",
    "capture_data_key",
    "directory_uri",
    "read_sidecar",
    "sidecar_path",
]
