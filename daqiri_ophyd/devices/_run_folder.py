"""Directory of the files of a run."""

import time
import uuid
from pathlib import Path

from ._outcome import CaptureError

__all__ = ["make_run_folder"]


def make_run_folder(root: str | Path, device: str) -> Path:
    """Create a directory ``<root>/YYYY/MM/DD/<unique>`` for the files of one run.

    Parameters
    ----------
    root : str or Path
        Directory of captures.
    device : str
        Name of the device, for messages.

    Raises
    ------
    CaptureError
        If it cannot be created.
    """
    folder = Path(root).resolve() / time.strftime("%Y/%m/%d") / uuid.uuid4().hex[:8]
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        text = f"{device}: cannot create {error.filename}: {error.strerror}"
        raise CaptureError(text) from error
    return folder
