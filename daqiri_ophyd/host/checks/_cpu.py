"""Checks of CPUs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status
from .._needs import Poller
from .._platform import Platform
from ..facts import cpu_ranges
from ._files import at_every_boot, grub_words

# The four fastest cores of a GB10.
_SPARK_CORES = frozenset(range(16, 20))
_ISOLATING = ("isolcpus", "nohz_full", "rcu_nocbs")
_WORDS = (*_ISOLATING, "rcu_nocb_poll", "irqaffinity")


@check(
    "cpu-isolation",
    "isolated CPUs",
    wanted="queue cores in isolcpus, nohz_full and rcu_nocbs, and not in irqaffinity",
    why="Other threads or interrupts on a polling core make it miss packets.",
    sources=("/proc/cmdline",),
)
def cpu_isolation(context: Context) -> Iterator[Finding]:
    line = context.facts.command_line
    needs = context.needs
    cores = frozenset(poller.core for poller in needs.pollers if poller.core is not None)
    if needs.given and not cores:
        yield skip("no queue of the configuration is pinned to a core")
        return
    missing = [name for name in _WORDS if name not in line]
    wrong = [f"without {', '.join(missing)}"] if missing else []
    for name in _ISOLATING:
        if name in line and (lacking := cores - line.cpus(name)):
            wrong.append(f"{name} lacks {cpu_ranges(lacking)}")
    if hit := cores & line.cpus("irqaffinity"):
        wrong.append(f"irqaffinity has {cpu_ranges(hit)}")
    if not wrong:
        yield ok(f"isolcpus={line.get('isolcpus')}")
    elif not needs.given and (line.cpus("isolcpus") or context.platform == Platform.GENERIC):
        yield skip("; ".join(wrong) + "; give a configuration to check whether it matters")
    else:
        yield Finding(Status.WARN, "; ".join(wrong), "", _isolate(context, cores))


def _isolate(context: Context, cores: frozenset[int]) -> Remedy:
    every = frozenset(context.facts.cpus)
    if not cores and context.platform == Platform.SPARK:
        cores = _SPARK_CORES & every
    cores = cores or frozenset(sorted(every)[1:][-3:])
    if not cores or not every - cores:
        note = "The queues leave no core for other work: use fewer cores, or a larger host."
        return Remedy(note=note)
    own, rest = cpu_ranges(cores), cpu_ranges(every - cores)
    words = f"isolcpus={own} nohz_full={own} rcu_nocbs={own} rcu_nocb_poll irqaffinity={rest}"
    return Remedy(
        files=(grub_words("isolation", words),),
        lasting=("update-grub",),
        note="Requires a reboot. One core for each queue; leave some for other work.",
    )


@check(
    "queue-cores",
    "cores of the configuration's queues",
    wanted="online, on the port's NUMA node, one per physical core, not the master core",
    why="Two pollers share a core's time; memory on another node is slow.",
    sources=("/sys/devices/system/cpu", "/sys/devices/system/node"),
)
def queue_cores(context: Context) -> Iterator[Finding]:
    needs, cpus = context.needs, context.facts.cpus
    if not needs.pollers:
        yield skip("no configuration" if not needs.given else "the configuration has no poller")
        return
    placed: dict[frozenset[int], list[Poller]] = defaultdict(list)
    for poller in needs.pollers:
        if poller.core is None:
            yield ok("not pinned", poller.queue)
        elif poller.core not in cpus:
            note = f"Use cores that are online: {cpu_ranges(frozenset(cpus))}."
            found = f"core {poller.core} is not online"
            # Threads of sockets run all the same, not pinned.
            status = Status.WARN if needs.engine == "socket" else Status.FAIL
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
    """Check a core against the NUMA node of the queues' NIC."""
    cpus = context.facts.cpus
    node = cpus[core].node
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
    sources=("/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",),
)
def cpu_governor(context: Context) -> Iterator[Finding]:
    governors = Counter(cpu.governor for cpu in context.facts.cpus.values())
    if not any(governors):
        yield skip("the kernel does not scale the frequency here (often so in a virtual machine)")
    elif set(governors) == {"performance"}:
        yield ok(f"performance on all {governors['performance']}")
    else:
        found = ", ".join(f"{name or 'none'} on {n}" for name, n in sorted(governors.items()))
        command = "cpupower frequency-set -g performance"
        remedy = at_every_boot("cpu-governor", "CPUs at full speed", command)
        yield Finding(Status.WARN, found, "", remedy)
