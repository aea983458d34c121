"""Checks of processors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status
from ._files import one_shot_unit


@check(
    "cpu-governor",
    "CPU frequency governor",
    wanted="performance on every processor",
    why="A processor that has to speed up first answers late, and packets are lost meanwhile.",
    sources=("/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",),
)
def cpu_governor(context: Context) -> Iterator[Finding]:
    governors = Counter(cpu.governor for cpu in context.facts.cpus.values())
    if not any(governors):
        yield skip("the kernel does not scale the frequency here (a virtual machine, often)")
    elif set(governors) == {"performance"}:
        yield ok(f"performance on all {governors['performance']}")
    else:
        found = ", ".join(f"{name or 'none'} on {n}" for name, n in sorted(governors.items()))
        command = "/usr/bin/cpupower frequency-set -g performance"
        remedy = Remedy(
            now=("cpupower frequency-set -g performance",),
            files=(one_shot_unit("cpu-governor", "Processors at full speed", command),),
            lasting=("systemctl enable --now daqiri-cpu-governor.service",),
        )
        yield Finding(Status.WARN, found, "", remedy)
