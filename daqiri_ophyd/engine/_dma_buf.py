"""Memory on a GPU, for other devices."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

__all__ = ["DmaBuf"]


@dataclass
class DmaBuf:
    """A dma-buf of a memory region on a GPU, to pass to other drivers.

    It is a context manager that closes the dma-buf at the end of the ``with`` block. Other users of
    the dma-buf keep the memory until they have closed it, too.

    Attributes
    ----------
    fd : int
        File descriptor, closed with `close`; -1 after that.
    address : int
        Address of the region on the GPU (for ``ibv_reg_dmabuf_mr``).
    size : int
        Bytes; a multiple of the host's page size.
    stride : int
        Bytes from buffer to buffer: buffer ``i`` begins at ``i * stride``.
    headroom : int
        Bytes before the data in each buffer.
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
