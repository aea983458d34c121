"""Documents for captures: a device's description of the files that it wrote.

Nothing here needs a running engine. A device composes its documents from a `CaptureStream`; the
catalog reads the `Sidecar`, the metadata file that the recorder writes for each capture file.
"""

from ._columns import FILE_COUNTERS, CountedFile, files_column, row_columns, row_counters
from ._corrected_file import CORRECTED, corrected_path, write_corrected
from ._correction import Correction
from ._frame_metadata import frame_facts, keep_frames
from ._frame_stream import (
    FRAME_FILES_MIMETYPE,
    FRAMES_MIMETYPE,
    FrameFiles,
    FrameStream,
    frame_files,
    frame_resource,
)
from ._master import MASTER, is_master, master_path, read_master, write_master
from ._other_files import other_files
from ._reference_data import REFERENCES, load_reference
from ._repair import append_log, is_written, locked, logged, require_no_links
from ._run_metadata import SAMPLE_QUERY, add_run, run_metadata
from ._sequence import (
    CAPTURE_MIMETYPES,
    COMPANIONS,
    COUNTER_MIMETYPE,
    NAME_DTYPE,
    PCAP_MIMETYPE,
    CaptureFormat,
    CaptureSequence,
    StreamAsset,
    capture_data_key,
    directory_uri,
)
from ._sidecar import (
    Sidecar,
    SidecarError,
    no_link,
    read_sidecar,
    read_sidecar_content,
    sidecar_of,
    sidecar_part,
    sidecar_path,
    write_sidecar,
)
from ._stream import CaptureStream
from ._summary import SUMMARY_DTYPE, FileSummary

__all__ = [
    "CAPTURE_MIMETYPES",
    "COMPANIONS",
    "CORRECTED",
    "COUNTER_MIMETYPE",
    "FILE_COUNTERS",
    "FRAMES_MIMETYPE",
    "FRAME_FILES_MIMETYPE",
    "MASTER",
    "NAME_DTYPE",
    "PCAP_MIMETYPE",
    "CaptureFormat",
    "REFERENCES",
    "SAMPLE_QUERY",
    "SUMMARY_DTYPE",
    "CaptureStream",
    "Correction",
    "CountedFile",
    "FileSummary",
    "FrameFiles",
    "FrameStream",
    "CaptureSequence",
    "Sidecar",
    "SidecarError",
    "StreamAsset",
    "add_run",
    "append_log",
    "capture_data_key",
    "corrected_path",
    "directory_uri",
    "files_column",
    "frame_facts",
    "frame_files",
    "frame_resource",
    "is_master",
    "is_written",
    "keep_frames",
    "load_reference",
    "locked",
    "logged",
    "master_path",
    "no_link",
    "other_files",
    "read_master",
    "read_sidecar",
    "read_sidecar_content",
    "require_no_links",
    "row_columns",
    "row_counters",
    "run_metadata",
    "sidecar_of",
    "sidecar_part",
    "sidecar_path",
    "write_corrected",
    "write_master",
    "write_sidecar",
]
