"""CPUs, and the kernel command line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._engine_rules import available_cores
from .._root import FactError, Root

__all__ = ["CommandLine", "Cpu", "IdleState", "cpu_list", "cpu_ranges", "read_command_line"]
__all__ += ["read_allowed_cpus", "read_cpus", "read_idle_states"]

_NUMBER = re.compile(r"\d{1,10}", re.ASCII)
_CPU = "/sys/devices/system/cpu"
# More than any kernel is built for; guards against a malformed range.
_MOST_CPUS = 1 << 16
# A valid list names a CPU once or twice.
_MOST_NAMED = 8 * _MOST_CPUS


@dataclass(frozen=True, slots=True)
class Cpu:
    """A logical CPU.

    Parameters
    ----------
    number : int
        As in ``cpu_core``.
    node : int or None
        NUMA node; None: not known.
    siblings : frozenset of int
        Logical CPUs of the same physical core, including itself.
    governor : str
        Frequency governor; empty: the frequency is not scaled.
    capacity : int or None
        Speed relative to the fastest core, which has 1024; None: all are the same.
    """

    number: int
    node: int | None
    siblings: frozenset[int]
    governor: str
    capacity: int | None = None


def cpu_list(text: str, last_cpu: int | None = None) -> frozenset[int]:
    """
    Return the numbers in a list such as ``0-3,8``.

    With `last_cpu`, ``N`` is that number and ``all`` stands for ``0-N``, as on the kernel command
    line. Other words are ignored: ``isolcpus=managed_irq,domain,2-3`` begins with flags.

    Raises
    ------
    FactError
        If it names far too many CPUs.
    """
    numbers: set[int] = set()
    named = 0
    if last_cpu is not None:
        text = re.sub(r"\ball\b", "0-N", text)
        text = re.sub(r"\bN\b", str(last_cpu), text)
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        # 0-63:2/4 means 2 of every 4.
        last, _, stride = last.partition(":")
        if not _NUMBER.fullmatch(first) or (last and not _NUMBER.fullmatch(last)):
            continue
        low, high = int(first), min(int(last or first), _MOST_CPUS)
        named += max(high - low + 1, 0)
        if named > _MOST_NAMED:
            raise FactError(f"{text[:40]!r}... is not a list of CPUs")
        used, _, group = stride.partition("/")
        if _NUMBER.fullmatch(used) and _NUMBER.fullmatch(group) and int(group):
            numbers.update(n for n in range(low, high + 1) if (n - low) % int(group) < int(used))
        else:
            numbers.update(range(low, high + 1))
    return frozenset(numbers)


def cpu_ranges(numbers: frozenset[int] | set[int]) -> str:
    """Return numbers as a list such as ``0-3,8``."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in ranges)


def read_cpus(root: Root) -> dict[int, Cpu]:
    """Return the CPUs that are online."""
    nodes = {
        number: int(name[4:])
        for name in root.names("/sys/devices/system/node")
        if name.startswith("node") and name[4:].isdecimal()
        for number in cpu_list(root.optional(f"/sys/devices/system/node/{name}/cpulist"))
    }
    online = cpu_list(root.text(f"{_CPU}/online"))
    if not online:
        raise FactError(f"{_CPU}/online: lists no CPU")
    return {
        number: Cpu(
            number,
            nodes.get(number),
            cpu_list(root.optional(f"{_CPU}/cpu{number}/topology/thread_siblings_list"))
            or frozenset({number}),
            root.optional(f"{_CPU}/cpu{number}/cpufreq/scaling_governor"),
            _capacity(root, number),
        )
        for number in sorted(online)
    }


def read_allowed_cpus(root: Root) -> frozenset[int]:
    """
    Return the CPUs that threads of this process may be pinned to.

    On a recorded host, those of the process that recorded it, and isolated ones; without a record
    of them, those that are online.
    """
    # The kernel leaves isolated CPUs out of the affinity of programs, which may still ask for them.
    status, isolated = root.optional("/proc/self/status"), root.optional(f"{_CPU}/isolated")
    if root.live:
        return available_cores()
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)$", status, re.MULTILINE)
    allowed = cpu_list(match[1]) if match else frozenset()
    return allowed | cpu_list(isolated) if allowed else cpu_list(root.text(f"{_CPU}/online"))


def _capacity(root: Root, number: int) -> int | None:
    text = root.optional(f"{_CPU}/cpu{number}/cpu_capacity")
    return int(text) if _NUMBER.fullmatch(text) else None


@dataclass(frozen=True, slots=True)
class IdleState:
    """A state of a CPU that has nothing to do.

    Parameters
    ----------
    name : str
        Such as ``C6``.
    latency : int
        Microseconds until the CPU runs again.
    enabled : bool
        Whether the kernel may choose it.
    """

    name: str
    latency: int
    enabled: bool


def read_idle_states(root: Root, number: int) -> list[IdleState]:
    """Return the idle states of a CPU; none: the kernel has none."""
    states = []
    for path in root.glob(f"{_CPU}/cpu{number}/cpuidle/state*"):
        latency = root.optional(f"{path}/latency")
        if _NUMBER.fullmatch(latency):
            enabled = root.optional(f"{path}/disable") in ("", "0")
            states.append(IdleState(root.optional(f"{path}/name"), int(latency), enabled))
    return states


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The kernel command line.

    Parameters
    ----------
    words : dict of str to str
        Values by name; empty for a name without a value. For repeated names, the last one.
    last_cpu : int
        Highest number of a CPU, which lists may write as ``N``.
    """

    words: dict[str, str]
    last_cpu: int = 0

    def __contains__(self, name: str) -> bool:
        return name in self.words

    def get(self, name: str) -> str:
        """Return the value of a name, or an empty text."""
        return self.words.get(name, "")

    def cpus(self, name: str) -> frozenset[int]:
        """Return the CPUs that a name lists."""
        return cpu_list(self.get(name), self.last_cpu)


def read_command_line(root: Root) -> CommandLine:
    """Return the kernel's command line."""
    words = {}
    for word in root.text("/proc/cmdline").split():
        if word == "--":
            # What follows is for init.
            break
        name, _, value = word.partition("=")
        words[name] = value
    possible = cpu_list(root.optional(f"{_CPU}/possible") or root.optional(f"{_CPU}/online"))
    return CommandLine(words, max(possible, default=0))
