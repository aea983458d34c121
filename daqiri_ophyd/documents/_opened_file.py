"""Opening an HDF5 file to read it, with errors that name it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["opened_file"]


@contextmanager
def opened_file(path: Path) -> Iterator[Any]:
    """Open an HDF5 file, also one that is being written.

    Raises
    ------
    OSError
        If it cannot be opened; the error names it.
    """
    import h5py

    # The error of the system has the name, and HDF5 the file in some of its messages only. A pipe
    # would be waited for.
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    try:
        file = h5py.File(path, "r", locking=False)
    except OSError as error:
        # What HDF5 says of the mark of a writer; its own advice loses the last frames.
        if "open for write" in str(error):
            raise OSError(
                f"{path} is marked as open for writing. If its recorder was killed, repair it: "
                f"daqiri-ophyd frames repair {path}"
            ) from error
        raise OSError(f"{path} cannot be opened: {error}") from error
    with file:
        yield file
