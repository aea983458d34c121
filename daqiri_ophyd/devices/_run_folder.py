"""Where the files of a run go."""

import time
import uuid
from pathlib import Path

__all__ = ["make_run_folder"]


def make_run_folder(root: str | Path) -> Path:
    """Make a folder ``<root>/YYYY/MM/DD/<unique>`` for the files of one run.

    Raises
    ------
    OSError
        If it cannot be made; ``filename`` names the folder.
    """
    folder = Path(root).resolve() / time.strftime("%Y/%m/%d") / uuid.uuid4().hex[:8]
    folder.mkdir(parents=True)
    return folder
