"""Write rate of a folder."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
import time

__all__ = ["disk_write"]

_BLOCK = 4 << 20
_MOST = 8 << 30


def disk_write(seconds: float, folder: str) -> tuple[dict[str, float], str]:
    """
    Return the rates of writing a file, without the page cache (O_DIRECT) and through it.

    Raises
    ------
    OSError
        If the folder cannot be written to.
    """
    # Leave most of the free space free.
    limit = min(_MOST, shutil.disk_usage(folder).free // 4)
    if limit < _BLOCK:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
    values = {}
    try:
        values["direct_GB_s"] = _write(folder, os.O_DIRECT, seconds / 2, limit)
        texts = [f"{values['direct_GB_s']:.2f} GB/s with O_DIRECT"]
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        texts = ["no O_DIRECT here"]
    values["buffered_GB_s"] = _write(folder, 0, seconds / 2, limit)
    texts.append(f"{values['buffered_GB_s']:.2f} through the page cache, until it is on the disk")
    return values, ", ".join(texts)


def _write(folder: str, flags: int, seconds: float, limit: int) -> float:
    # An unnamed file: it is deleted when it is closed.
    with tempfile.TemporaryFile(dir=folder, prefix="daqiri-measure-") as file:
        named = f"/proc/self/fd/{file.fileno()}"
        descriptor = os.open(named, os.O_WRONLY | flags)
        try:
            # A mapping is page-aligned, as O_DIRECT requires; random data cannot be compressed.
            with mmap.mmap(-1, _BLOCK) as block:
                block.write(os.urandom(_BLOCK))
                written = 0
                begin = time.perf_counter()
                while time.perf_counter() - begin < seconds and written < limit:
                    written += os.pwrite(descriptor, block, written)
                os.fdatasync(descriptor)
                return written / (time.perf_counter() - begin) / 1e9
        finally:
            os.close(descriptor)
