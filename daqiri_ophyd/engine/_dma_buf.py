"""Memory on a GPU, for other devices."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

__all__ = ["DmaBuf"]


@dataclass
class DmaBuf:
    """A dma-buf of a memory region on a GPU, which other drivers can be given.

    A context manager: at the end of the ``with`` block it is closed. Others that have it keep the
    memory until they have closed it, too.

    Attributes
    ----------
    fd : int
        File descriptor, closed with `close`; -1 after that.
    address : int
        Where the GPU has the region (the address for ``ibv_reg_dmabuf_mr``).
    size : int
        Bytes, whole pages of the host.
    stride : int
        Bytes from buffer to buffer: buffer ``i`` begins at ``i * stride``.
    headroom : int
        Bytes of each buffer before its data.
    """

    fd: int
    address: int
    size: int
    stride: int
    headroom: int

    def close(self) -> None:
        """Close the file descriptor. Can be called again."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
