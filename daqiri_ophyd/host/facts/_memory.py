"""Memory, and its huge pages."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._engine_rules import default_hugepages
from .._root import FactError, Root

__all__ = ["DefaultPages", "HugePages", "Memory", "read_default_pages", "read_hugepages"]
__all__ += ["read_memory", "read_node_pages"]

_POOLS = "/sys/kernel/mm/hugepages"
_NODES = "/sys/devices/system/node"


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

    @property
    def unit(self) -> str:
        """Size of a page, such as ``2 MiB``."""
        for shift, unit in ((30, "GiB"), (20, "MiB")):
            if self.size >= 1 << shift:
                return f"{self.size >> shift} {unit}"
        return f"{self.size >> 10} KiB"

    def __str__(self) -> str:
        return f"{self.free} of {self.total} pages of {self.unit} free"


@dataclass(frozen=True, slots=True)
class DefaultPages(HugePages):
    """Huge pages of the default size, which regions of kind ``huge`` are made of.

    ``free``: those that a program can have now, as the engine counts them.
    """

    def total_for(self, needed: int) -> int:
        """Return how many pages there must be for so many more than are in use."""
        return self.total - min(self.free, self.total) + needed


@dataclass(frozen=True, slots=True)
class Memory:
    """Main memory.

    Parameters
    ----------
    total, available : int
        Bytes; available: without swapping.
    """

    total: int
    available: int


def read_memory(root: Root) -> Memory:
    """
    Return the size of the main memory.

    Raises
    ------
    FactError
        If it cannot be read.
    """
    text = root.text("/proc/meminfo")
    sizes = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d{1,15}) kB$", text, re.MULTILINE))
    try:
        return Memory(int(sizes["MemTotal"]) << 10, int(sizes["MemAvailable"]) << 10)
    except KeyError as missing:
        raise FactError(f"/proc/meminfo: has no {missing.args[0]}") from None


def read_default_pages(root: Root) -> DefaultPages:
    """
    Return the huge pages of the default size, by the engine's own reading.

    Raises
    ------
    FactError
        If they cannot be read.
    """
    meminfo = root.text("/proc/meminfo")
    overcommitted = root.optional("/proc/sys/vm/nr_overcommit_hugepages")
    return DefaultPages(*default_hugepages(meminfo, overcommitted))


def read_node_pages(root: Root, size: int) -> dict[int, HugePages]:
    """Return the huge pages of one size by NUMA node; without any, the kernel reports none."""
    found = {}
    for name in root.names(_NODES):
        folder = f"{_NODES}/{name}/hugepages/hugepages-{size >> 10}kB"
        if re.fullmatch(r"node\d{1,5}", name) and root.exists(folder):
            total = _pages(root, f"{folder}/nr_hugepages")
            found[int(name[4:])] = HugePages(size, total, _pages(root, f"{folder}/free_hugepages"))
    return found


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
