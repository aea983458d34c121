"""Checks of memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from .._check import Context, DoesNotApplyError, check, ok, skip
from .._device_names import known
from .._finding import Finding, Remedy, Status, Step
from ..facts import DefaultPages
from ._files import at_every_boot

# For a NIC that is driven from user space.
_LEAST = 500 << 20
_START = 4 << 30
_MIB = 1 << 20
_GIB = 1 << 30
# Part of the memory that is left for all else; a start is a guess.
_LEAVES, _START_LEAVES = 0.1, 0.5
# Larger ones are reserved before memory is fragmented.
_LARGEST_AT_RUN_TIME = 32 << 20


@check(
    "memory",
    "main memory",
    wanted="room for the configuration's regions and bursts, with copies for packets of a GPU; "
    "no lower limit on address space",
    why="The engine allocates all memory at the start; if too little is free, the kernel kills it.",
)
def memory(context: Context) -> Iterator[Finding]:
    needs, has = context.needs, context.facts.memory
    if not needs.given:
        yield skip(f"no configuration; this host has {_size(has.total)}")
        return
    asked = needs.by_engine()
    staged = [region.size for region in needs.regions if region.name in asked.staged]
    pinned = sum(staged) + needs.memory("host_pinned")
    found = f"{_size(asked.memory)} needed"
    if pinned:
        found += f", {_size(pinned)} of it pinned for a GPU"
    # Pages of regions of kind huge are reserved already.
    wanted = asked.memory - needs.memory("huge")
    # It may have this very configuration open, as between the runs of a plan.
    own = known(lambda: context.facts.process.used, 0)
    note = "Lower num_bufs, buf_size or batch_size, or end what else uses memory."
    if asked.memory > has.total:
        found += f"; this host has {_size(has.total)}"
        yield Finding(Status.FAIL, found, "", Remedy(note=note))
    elif has.limit is not None and wanted > has.limit:
        found += f"; the control group of this process may use {_size(has.limit)}"
        note += " Or raise the limit: MemoryMax= of systemd, --memory of a container."
        yield Finding(Status.FAIL, found, "", Remedy(note=note))
    elif has.left is not None and wanted > has.left + own:
        found += f"; the control group of this process has {_size(has.left)} left"
        note += " Or raise its limit: MemoryMax= of systemd, --memory of a container."
        yield Finding(Status.FAIL, found, "", Remedy(note=note))
    elif has.available is None:
        yield ok(f"{found}; this host has {_size(has.total)}")
    elif wanted > has.available + own:
        found += f"; {_size(has.available)} available"
        yield Finding(Status.FAIL, found, "", Remedy(note=note))
    else:
        least = has.available if has.left is None else min(has.available, has.left)
        yield ok(f"{found}; {_size(least)} available")
    yield from _mapped(context)


def _mapped(context: Context) -> Iterator[Finding]:
    """Compare what the engine maps with the limit on the process's address space."""
    left = known(lambda: context.facts.process.mappable, None)
    asked = context.needs.by_engine().address_space
    if left is None or asked <= left:
        return
    found = f"{_size(asked)} of address space needed; this process may map {_size(left)} more"
    note = "Raise the limit, ulimit -v unlimited or LimitAS= of systemd, or lower num_bufs, "
    note += "buf_size or batch_size."
    yield Finding(Status.FAIL, found, "RLIMIT_AS", Remedy(note=note))


def _size(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{-(-size // _MIB)} MiB"


@check(
    "hugepages",
    "huge pages",
    wanted="free pages of the default size for all regions of kind huge, on their NUMA nodes",
    why="Packet buffers on huge pages need fewer TLB entries; only pages that are reserved exist.",
)
def hugepages(context: Context) -> Iterator[Finding]:
    needs, pages = context.needs, context.facts.default_pages
    regions = needs.hugepages(pages.size) if needs.given else []
    if needs.given and not regions and not needs.traits.kernel_bypass:
        yield skip("the configuration has no region of kind huge")
        return
    if not needs.given and not _has_nvidia_nic(context):
        yield skip(f"no configuration; {_pools(context)}")
        return
    if regions:
        wanted = sum(count for _, _, count in regions)
    else:
        wanted = -(-_LEAST // pages.size)
    found = str(pages) if pages.total else f"no pages of {pages.unit}"
    # For the text only: /sys may be hidden.
    pools = known(lambda: context.facts.hugepages, [])
    others = [pool for pool in pools if pool.size != pages.size and pool.total]
    if others and pages.free < wanted:
        found += f"; not of the default size: {', '.join(map(str, others))}"
    lacking = list(_on_nodes(context, regions))
    # It may have this very configuration open, as between the runs of a plan.
    own = known(lambda: context.facts.process.used_hugepages, 0) // pages.size
    if regions and own >= wanted:
        yield ok(f"{found}; this process has {own}")
    elif pages.free >= wanted:
        yield ok(found)
        yield from lacking
    elif lacking and pages.size <= _LARGEST_AT_RUN_TIME:
        # The kernel would spread them over all nodes.
        yield from lacking
    else:
        status = Status.FAIL if regions else Status.WARN
        yield Finding(
            status, f"{found} (need {wanted})", "", _reserve(context, pages, wanted, not regions)
        )


def _has_nvidia_nic(context: Context) -> bool:
    try:
        return bool(context.nvidia_nics)
    except DoesNotApplyError:
        return False


def _pools(context: Context) -> str:
    reserved = "; ".join(str(pool) for pool in context.facts.hugepages if pool.total)
    return reserved or "none reserved"


def _on_nodes(context: Context, regions: list[tuple[str, int, int]]) -> Iterator[Finding]:
    """Compare what regions take with what their NUMA nodes have."""
    has = context.facts.node_pages
    if len(has) < 2:
        return
    wanted: Counter[int] = Counter()
    for _, node, count in regions:
        wanted[node] += count
    for node, count in sorted(wanted.items()):
        # A node that does not exist is reported by the check numa.
        if node in has and has[node].free < count:
            pool = has[node]
            path = f"/sys/devices/system/node/node{node}/hugepages/hugepages-{pool.size >> 10}kB"
            total = pool.total - pool.free + count
            remedy = at_every_boot(
                10,
                f"hugepages-node{node}",
                f"echo {total} >{path}/nr_hugepages",
                verify=(f'test "$(cat {path}/nr_hugepages)" -ge {total}',),
            )
            if not _fits(context, total * pool.size):
                remedy = _TOO_MUCH
            found = f"{pool} (need {count})"
            yield Finding(Status.FAIL, found, f"NUMA node {node}", remedy)


def _reserve(context: Context, pages: DefaultPages, wanted: int, as_a_start: bool) -> Remedy:
    total = pages.total_for(wanted)
    if not _fits(context, total * pages.size, _START_LEAVES if as_a_start else _LEAVES):
        return _TOO_MUCH
    setting = f"vm.nr_hugepages={total}"
    now = (f"sysctl -w {setting}",)
    verify = (f'test "$(sysctl -n vm.nr_hugepages)" -ge {total}',)
    if as_a_start:
        words = _start(context, pages, total)
    elif pages.size <= _LARGEST_AT_RUN_TIME:
        file = ("/etc/sysctl.d/90-daqiri-hugepages.conf", f"{setting}\n")
        return Remedy(now, (file,), verify=verify)
    else:
        words = _words(pages.size, total)
    return Remedy(
        now,
        note="Large pages can be reserved reliably only at boot, before memory is fragmented.",
        step=Step.BOOT_LINE,
        kernel_line=words,
        verify=verify,
    )


_TOO_MUCH = Remedy(
    note=(
        "That is more than this host's memory has room for: lower num_bufs or buf_size of the "
        "regions of kind huge, or use a host with more memory."
    )
)


def _fits(context: Context, size: int, leaves: float = _LEAVES) -> bool:
    """Return whether a size leaves a part of the memory: a host without any does not boot."""
    has = known(lambda: context.facts.memory.total, 0)
    return not has or size <= has * (1 - leaves)


def _start(context: Context, pages: DefaultPages, total: int) -> str:
    """Return words for what the guides begin with; a configuration says what it needs."""
    has = known(lambda: context.facts.memory.total, 0)
    room = min(_START, int(has * (1 - _START_LEAVES))) if has else _START
    size = pages.size
    if not pages.total:
        # No other program counts on the default size. The kernel ignores sizes it does not have.
        sizes = [pool.size for pool in context.facts.hugepages if pool.size <= min(room, _GIB)]
        size = max(sizes, default=size)
    needed = total if size == pages.size else -(-total * pages.size // size)
    return _words(size, max(room // size, needed))


def _words(size: int, count: int) -> str:
    """Return words of the kernel command line that reserve huge pages of the default size."""
    shift, unit = next((s, u) for s, u in ((30, "G"), (20, "M"), (10, "K")) if not size % (1 << s))
    name = f"{size >> shift}{unit}"
    return f"default_hugepagesz={name} hugepagesz={name} hugepages={count}"


@check(
    "numa",
    "NUMA nodes of memory regions",
    wanted="affinity names a node of this host, that of the NIC",
    why="The engine places regions on these nodes; memory on another node than the NIC is slow.",
)
def numa(context: Context) -> Iterator[Finding]:
    names = context.facts.root.names("/sys/devices/system/node")
    nodes = {int(name[4:]) for name in names if re.fullmatch(r"node\d{1,5}", name, re.ASCII)}
    near = {device.numa_node for port in context.needs.ports if (device := context.device_of(port))}
    regions = [region for region in context.needs.regions if region.kind != "device"]
    if not context.needs.given:
        yield skip(f"no configuration; {len(nodes) or 1} NUMA node{'s' * (len(nodes) > 1)}")
    for region in regions:
        if region.affinity not in (nodes or {0}):
            found = f"affinity {region.affinity}: no such NUMA node"
            note = f"Set affinity to one of {', '.join(map(str, sorted(nodes or {0})))}."
            yield Finding(Status.FAIL, found, region.name, Remedy(note=note))
        elif len(near - {None}) == 1 and region.affinity not in near and len(nodes) > 1:
            [node] = near - {None}
            found = f"on NUMA node {region.affinity}, the NIC on {node}"
            note = f"Set affinity: {node} for the region."
            yield Finding(Status.WARN, found, region.name, Remedy(note=note))
        else:
            yield ok(f"node {region.affinity}", region.name)
