"""Memory: huge pages."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._root import FactError, Root

__all__ = ["HugePages", "read_hugepages"]

_POOLS = "/sys/kernel/mm/hugepages"


@dataclass(frozen=True, slots=True)
class HugePages:
    """Pool of huge pages of one size.

    Parameters
    ----------
    size : int
        Bytes of a page.
    total, free : int
        Pages.
    """

    size: int
    total: int
    free: int

    def __str__(self) -> str:
        size = f"{self.size >> 30} GiB" if self.size >= 1 << 30 else f"{self.size >> 10} KiB"
        if 1 << 20 <= self.size < 1 << 30:
            size = f"{self.size >> 20} MiB"
        return f"{self.free} of {self.total} pages of {size} free"


def read_hugepages(root: Root) -> list[HugePages]:
    """
    Return the pools of huge pages, from small to large pages.

    Raises
    ------
    FactError
        If the kernel has no huge pages, or their number cannot be read.
    """
    pools = []
    for name in root.names(_POOLS):
        if match := re.fullmatch(r"hugepages-([1-9]\d{0,15})kB", name):
            folder = f"{_POOLS}/{name}"
            pools.append(
                HugePages(
                    int(match[1]) << 10,
                    _pages(root, f"{folder}/nr_hugepages"),
                    _pages(root, f"{folder}/free_hugepages"),
                )
            )
    if not pools:
        raise FactError(f"{_POOLS}: no pools; this kernel has no huge pages")
    return sorted(pools, key=lambda pool: pool.size)


def _pages(root: Root, path: str) -> int:
    count = root.integer(path)
    if count < 0:
        raise FactError(f"{path}: holds {count}, a negative number of pages")
    return count
