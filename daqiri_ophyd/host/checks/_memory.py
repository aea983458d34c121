"""Checks of memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status
from ..facts import HugePages
from ._files import grub_words

_LEAST = 500 << 20


@check(
    "hugepages",
    "huge pages",
    wanted="free pages for all regions of kind huge; at least 500 MB where the NIC is polled",
    why="Packet buffers on huge pages need fewer TLB entries and are physically contiguous.",
    sources=("/sys/kernel/mm/hugepages", "/proc/meminfo"),
)
def hugepages(context: Context) -> Iterator[Finding]:
    needs = context.needs
    wanted = needs.memory("huge")
    if needs.given and not wanted and needs.engine not in ("dpdk", "ibverbs"):
        yield skip("the configuration has no region of kind huge")
        return
    pools = context.facts.hugepages
    wanted = max(wanted, _LEAST)
    free = sum(pool.size * pool.free for pool in pools)
    found = "; ".join(str(pool) for pool in pools if pool.total) or "none reserved"
    if free >= wanted:
        yield ok(found)
    else:
        status = Status.FAIL if needs.memory("huge") else Status.WARN
        yield Finding(status, f"{found} (need {wanted >> 20} MiB)", "", _reserve(pools, wanted))


def _reserve(pools: list[HugePages], wanted: int) -> Remedy:
    pool = pools[-1] if pools[-1].size <= 1 << 30 else pools[0]
    missing = max(wanted - sum(p.size * p.free for p in pools), 0)
    pages = pool.total + -(-missing // pool.size)
    kib = pool.size >> 10
    size = f"{kib >> 20}G" if kib >= 1 << 20 else f"{kib >> 10}M" if kib >= 1 << 10 else f"{kib}K"
    words = f"default_hugepagesz={size} hugepagesz={size} hugepages={pages}"
    return Remedy(
        now=(f"echo {pages} > /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages",),
        files=(grub_words("hugepages", words),),
        lasting=("update-grub",),
        note="Large pages can be reserved reliably only at boot, before memory is fragmented.",
    )


@check(
    "numa",
    "NUMA nodes and library",
    wanted="libnuma on hosts with several nodes",
    why="Buffers belong on the node of the NIC and of the core that reads them.",
    sources=("/sys/devices/system/node", "/usr/lib"),
)
def numa(context: Context) -> Iterator[Finding]:
    root = context.facts.root
    nodes = [n for n in root.names("/sys/devices/system/node") if re.fullmatch(r"node\d+", n)]
    if len(nodes) < 2:
        yield skip("one node")
    elif any(next(root.glob(pattern), None) for pattern in _LIBNUMA):
        yield ok(f"{len(nodes)} nodes, libnuma is installed")
    else:
        remedy = Remedy(now=("apt-get install libnuma1",))
        yield Finding(Status.WARN, f"{len(nodes)} nodes, no libnuma", "", remedy)


_LIBNUMA = ("/usr/lib/libnuma.so.1", "/usr/lib64/libnuma.so.1", "/usr/lib/*/libnuma.so.1")
