"""Where the files of a run go."""

import time
import uuid
from pathlib import Path

from ._outcome import CaptureError

__all__ = ["make_run_folder"]


def make_run_folder(root: str | Path, device: str) -> Path:
    """Make a folder ``<root>/YYYY/MM/DD/<unique>`` for the files of one run.

    Parameters
    ----------
    root : str or Path
        Where captures go.
    device : str
        Whose files they are, for messages.

    Raises
    ------
    CaptureError
        If it cannot be made.
    """
    folder = Path(root).resolve() / time.strftime("%Y/%m/%d") / uuid.uuid4().hex[:8]
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        text = f"{device}: {error.filename} cannot be made: {error.strerror}"
        raise CaptureError(text) from error
    return folder
