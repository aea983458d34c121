"""Memory, and its huge pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .._engine_rules import default_hugepages
from .._root import FactError, Root

__all__ = ["DefaultPages", "HugePages", "Memory", "read_default_pages", "read_hugepages"]
__all__ += ["read_memory", "read_node_pages"]

_POOLS = "/sys/kernel/mm/hugepages"
_NODES = "/sys/devices/system/node"
_UNIFIED = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
_MEMORY_GROUPS = ("/sys/fs/cgroup/memory",)
# Limit, use, and the line of memory.stat with files that the kernel can drop at once.
_UNIFIED_FILES = ("memory.max", "memory.current", "inactive_file")
_GROUP_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_BYTES = re.compile(r"\d{1,20}", re.ASCII)
# More than any host has groups in groups; guards against a malformed path.
_DEEPEST = 100
# Version 1 writes none as the largest number of whole pages, of at most 64 KiB.
_NO_LIMIT = (1 << 63) - (1 << 16)


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
    total : int
        Bytes.
    available : int or None
        Bytes that are left without swapping; None: the kernel does not tell.
    limit : int or None
        Bytes that the control groups of this process may use; None: no limit.
    left : int or None
        Bytes that these groups may use in addition; None: no limit.
    """

    total: int
    available: int | None
    limit: int | None = None
    left: int | None = None


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
    if "MemTotal" not in sizes:
        raise FactError("/proc/meminfo: has no MemTotal")
    available = int(sizes["MemAvailable"]) << 10 if "MemAvailable" in sizes else None
    groups = list(_limited_groups(root))
    limit = min((limit for limit, _ in groups), default=None)
    return Memory(
        int(sizes["MemTotal"]) << 10,
        available,
        limit,
        min((max(limit - used, 0) for limit, used in groups), default=None),
    )


def _limited_groups(root: Root) -> Iterator[tuple[int, int]]:
    """Yield limit and use of the process's control groups, and those above them, with a limit."""
    for line in root.optional("/proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            folders, names = _UNIFIED, _UNIFIED_FILES
        elif "memory" in controllers.split(","):
            folders, names = _MEMORY_GROUPS, _GROUP_FILES
        else:
            continue
        parts = [part for part in path.split("/") if part]
        if ".." in parts:
            # The group is outside what this process sees.
            parts = []
        # In a container the path may be the host's, and the limit at the top.
        places = ["/".join(parts[:n]) for n in range(min(len(parts), _DEEPEST) + 1)]
        for group in (f"{folder}/{place}" for folder in folders for place in places):
            limit = root.optional(f"{group}/{names[0]}")
            if _BYTES.fullmatch(limit) and int(limit) < _NO_LIMIT:
                yield int(limit), _used(root, group, *names[1:])


def _used(root: Root, group: str, use: str, droppable: str) -> int:
    """Return the bytes that a control group uses, without files that the kernel drops for it."""
    used = root.optional(f"{group}/{use}")
    line = rf"^{droppable} (\d{{1,20}})$"
    files = re.search(line, root.optional(f"{group}/memory.stat"), re.MULTILINE | re.ASCII)
    if not _BYTES.fullmatch(used):
        return 0
    return max(int(used) - (int(files[1]) if files else 0), 0)


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
