"""Checks of CPUs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status, Step
from .._needs import Poller
from .._platform import Platform
from ..facts import cpu_ranges
from ._files import at_every_boot

# The four fastest cores of a GB10.
_SPARK_CORES = frozenset(range(16, 20))
_ISOLATING = ("isolcpus", "nohz_full", "rcu_nocbs")
_WORDS = (*_ISOLATING, "rcu_nocb_poll", "irqaffinity")
# Of the fastest core's speed; a core below is a small one.
_BIG = 0.9
# Microseconds; deeper states lose packets that come in bursts.
_MOST_LATENCY = 10


@check(
    "cpu-isolation",
    "isolated CPUs",
    wanted="queue cores and siblings in isolcpus, nohz_full, rcu_nocbs, and not in irqaffinity",
    why="Other threads or interrupts on a polling core, or on its sibling, make it miss packets.",
)
def cpu_isolation(context: Context) -> Iterator[Finding]:
    line = context.facts.command_line
    needs = context.needs
    cores = frozenset(poller.core for poller in needs.pollers if poller.core is not None)
    if needs.given and not cores:
        yield skip("no queue of the configuration is pinned to a core")
        return
    if not needs.given and not line.cpus("isolcpus") and context.platform == Platform.GENERIC:
        yield skip("no isolated CPUs; give a configuration to check whether it matters")
        return
    # The check queue-cores reports those that are not online.
    cores = _with_siblings(context, (cores or line.cpus("isolcpus")) & context.facts.cpus.keys())
    if needs.given and not cores:
        yield skip("no core of the configuration's queues is online")
        return
    isolable = cores - _boot_cpus(context)
    if needs.given and (kept := cores - isolable):
        note = "Give the queues other cores: the kernel's own work runs on CPU 0."
        found = f"{cpu_ranges(kept)}: the CPU that boots cannot be isolated"
        yield Finding(Status.WARN, found, "", Remedy(note=note))
    missing = [name for name in _WORDS if name not in line]
    wrong = [f"without {', '.join(missing)}"] if missing else []
    for name in _ISOLATING:
        if name in line and (lacking := isolable - line.cpus(name)):
            wrong.append(f"{name} lacks {cpu_ranges(lacking)}")
    if hit := isolable & line.cpus("irqaffinity"):
        wrong.append(f"irqaffinity has {cpu_ranges(hit)}")
    if not wrong:
        yield ok(f"isolcpus={line.get('isolcpus')}")
    elif isolable or not needs.given:
        yield Finding(Status.WARN, "; ".join(wrong), "", _isolate(context, isolable))
    # It leaves isolated CPUs alone.
    open_cores = cores - line.cpus("isolcpus") - line.cpus("nohz_full")
    if needs.given and open_cores and "irqbalance" in context.facts.services:
        found = f"irqbalance moves interrupts to {cpu_ranges(open_cores)}"
        remedy = Remedy(
            now=("systemctl stop irqbalance",),
            lasting=("systemctl disable irqbalance",),
            note="Isolated CPUs are left alone by irqbalance; stopping it is for the others.",
            verify=("! systemctl is-active irqbalance",),
            verify_lasting=("! systemctl is-enabled irqbalance",),
        )
        yield Finding(Status.WARN, found, "", remedy)


def _with_siblings(context: Context, cores: frozenset[int]) -> frozenset[int]:
    """Return CPUs with all others of their physical cores."""
    cpus = context.facts.cpus
    return cores.union(*(cpus[core].siblings & cpus.keys() for core in cores if core in cpus))


def _boot_cpus(context: Context) -> frozenset[int]:
    """Return CPU 0, which keeps the kernel's time and other work of its own, and its siblings."""
    return _with_siblings(context, frozenset({0}))


def _isolate(context: Context, cores: frozenset[int]) -> Remedy:
    every = frozenset(context.facts.cpus)
    if not cores and context.platform == Platform.SPARK:
        cores = _SPARK_CORES & every - _boot_cpus(context)
    if not cores:
        # The last three physical cores.
        free = every - _boot_cpus(context)
        physical = sorted({context.facts.cpus[core].siblings for core in free}, key=max)
        cores = frozenset[int]().union(*physical[-3:]) & free
    if not cores or not every - cores:
        note = "No core is left to isolate beside CPU 0: use fewer cores, or a larger host."
        return Remedy(note=note)
    own, rest = cpu_ranges(cores), cpu_ranges(every - cores)
    note = "One core for each queue, with its sibling; leave some for other work."
    if given := [name for name in _WORDS if name in context.facts.command_line]:
        note += f" Remove {', '.join(given)} where the kernel command line has them now."
    return Remedy(
        note=note,
        step=Step.BOOT_LINE,
        kernel_line=(
            f"isolcpus={own} nohz_full={own} rcu_nocbs={own} rcu_nocb_poll irqaffinity={rest}"
        ),
    )


@check(
    "queue-cores",
    "cores of the configuration's queues",
    wanted="allowed, on the port's NUMA node, one per physical core, fast, not the master core",
    why="Two pollers share a core's time; memory on another node is slow, and so are small cores.",
)
def queue_cores(context: Context) -> Iterator[Finding]:
    needs = context.needs
    if not needs.pollers:
        yield skip("no configuration" if not needs.given else "the configuration has no poller")
        return
    allowed, cpus = context.facts.allowed_cpus, context.facts.cpus
    placed: dict[frozenset[int], list[Poller]] = defaultdict(list)
    for poller in needs.pollers:
        if poller.core is None:
            yield ok("not pinned", poller.queue)
        elif poller.core not in cpus or poller.core not in allowed:
            online = poller.core in cpus
            note = f"Use cores that are online: {cpu_ranges(allowed & frozenset(cpus))}."
            found = f"core {poller.core} is not online"
            if online:
                note = f"Use {cpu_ranges(allowed)}, or let the process use more: taskset, cpuset."
                found = f"core {poller.core} is not available to this process"
            # As the engine has it: threads of sockets run all the same, not pinned.
            status = Status.WARN if needs.sockets else Status.FAIL
            yield Finding(status, found, poller.queue, Remedy(note=note))
        else:
            placed[cpus[poller.core].siblings].append(poller)
    nodes = _nodes(context)
    for siblings, pollers in placed.items():
        names = ", ".join(poller.queue for poller in pollers)
        cores = {poller.core for poller in pollers if poller.core is not None}
        # Pollers with the same cpu_core are one thread; those on two siblings are two.
        if len(cores) > 1:
            found = f"cores {cpu_ranges(cores)} are one physical core"
            note = "Give one of them a core of its own: lscpu -e shows siblings."
            yield Finding(Status.WARN, found, names, Remedy(note=note))
        elif needs.master_core in siblings:
            found = f"core {needs.master_core} is also the master core"
            note = "Give master_core another core."
            yield Finding(Status.WARN, found, names, Remedy(note=note))
        else:
            (core,) = cores
            for wanted in {nodes.get(poller.queue) for poller in pollers}:
                queues = ", ".join(p.queue for p in pollers if nodes.get(p.queue) == wanted)
                yield _near(context, core, wanted, queues)


def _near(context: Context, core: int, wanted: int | None, queues: str) -> Finding:
    """Check a core's speed, and its NUMA node against that of the queues' NIC."""
    cpus = context.facts.cpus
    node = cpus[core].node
    fastest = max(cpu.capacity or 0 for cpu in cpus.values())
    if (cpus[core].capacity or fastest) < _BIG * fastest:
        big = frozenset(n for n, cpu in cpus.items() if (cpu.capacity or 0) >= _BIG * fastest)
        note = f"Use a fast core: {cpu_ranges(big)}."
        return Finding(Status.WARN, f"core {core} is a small core", queues, Remedy(note=note))
    if None in (node, wanted) or node == wanted:
        return ok(f"core {core}", queues)
    local = frozenset(number for number, cpu in cpus.items() if cpu.node == wanted)
    note = f"Use cores of node {wanted}: {cpu_ranges(local)}."
    if not local:
        note = f"Node {wanted} has no core online; use the nearest node: numactl --hardware."
    found = f"core {core} is on NUMA node {node}, the NIC on {wanted}"
    return Finding(Status.WARN, found, queues, Remedy(note=note))


def _nodes(context: Context) -> dict[str, int | None]:
    """Return the NUMA nodes of the ports' NICs by queue."""
    nodes: dict[str, int | None] = {}
    for port in context.needs.ports:
        device = context.device_of(port)
        for poller in port.pollers:
            nodes[poller.queue] = device.numa_node if device else None
    return nodes


@check(
    "cpu-governor",
    "CPU frequency governor",
    wanted="performance on every CPU",
    why="A CPU that first has to speed up responds late, and packets are lost.",
)
def cpu_governor(context: Context) -> Iterator[Finding]:
    governors = Counter(cpu.governor for cpu in context.facts.cpus.values())
    if not any(governors):
        yield skip("the kernel does not scale the frequency here (often so in a virtual machine)")
    elif set(governors) == {"performance"}:
        yield ok(f"performance on all {governors['performance']} CPUs")
    else:
        found = ", ".join(
            f"{name or 'none'} on {n} CPU{'s' * (n != 1)}" for name, n in sorted(governors.items())
        )
        remedy = at_every_boot(
            20,
            "cpu-governor",
            "cpupower frequency-set -g performance",
            verify=(
                "! grep -qv performance /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
            ),
        )
        yield Finding(Status.WARN, found, "", remedy)


_SHALLOW = (
    "for s in /sys/devices/system/cpu/cpu*/cpuidle/state*; do "
    f'[ "$(cat "$s/disable")" = 1 ] || [ "$(cat "$s/latency")" -le {_MOST_LATENCY} ] || exit 1; '
    "done"
)


@check(
    "cpu-idle",
    "idle states of the queue cores",
    wanted=f"none that takes more than {_MOST_LATENCY} us to leave",
    why="A sleeping core needs that long until it handles the next packet.",
)
def cpu_idle(context: Context) -> Iterator[Finding]:
    pinned = {poller.core for poller in context.needs.pollers if poller.core is not None}
    cores = pinned & context.facts.cpus.keys()
    if not cores:
        given = context.needs.given
        yield skip(
            "no queue of the configuration is pinned to a core" if given else "no configuration"
        )
    for core in sorted(cores):
        states = context.facts.idle_states(core)
        deep = [s for s in states if s.enabled and s.latency > _MOST_LATENCY]
        if not states:
            yield skip("not reported by the kernel (often so in a virtual machine)", f"core {core}")
        elif not deep:
            slowest = max((state.latency for state in states if state.enabled), default=0)
            yield ok(f"at most {slowest} us", f"core {core}")
        else:
            found = ", ".join(f"{state.name} takes {state.latency} us" for state in deep)
            remedy = at_every_boot(
                21,
                "cpu-idle",
                f"cpupower idle-set -D {_MOST_LATENCY + 1}",
                verify=(_SHALLOW,),
                note="CPUs then draw more power. The BIOS may have a setting for C-states, too.",
            )
            yield Finding(Status.WARN, found, f"core {core}", remedy)
