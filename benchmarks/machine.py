"""The machine of a result, and the share of the machine that others used."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def describe() -> dict[str, str | int | float]:
    """Processor, cores, memory, kernel, date (UTC), commit and load of this machine."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": _commit(),
        "load_average": round(os.getloadavg()[0], 1),
    }


def sentence(machine: dict[str, str | int | float]) -> str:
    """Return the description as one line of text."""
    gpu = f"{machine['gpu']}, " if "gpu" in machine else ""
    return (
        f"{gpu}{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"{machine['kernel']}, Python {machine['python']}; {machine['date']}, commit "
        f"{machine['commit']}, load average at the start {machine['load_average']}"
    )


def gpu() -> str:
    """Return the first GPU and its driver; empty if the driver does not report them."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return ""
    name, _, driver = said.partition("\n")[0].partition(", ")
    return f"{name}, driver {driver}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    git = ["git", "-C", str(ROOT)]
    try:
        commit = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
        changed = subprocess.check_output(
            [*git, "status", "--porcelain", "--untracked-files=no"], text=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + (" with changes" if changed.strip() else "")


@dataclass(frozen=True)
class Ticks:
    """Ticks of all cores since boot, from /proc/stat."""

    total: int
    idle: int
    steal: int

    @classmethod
    def now(cls) -> Ticks:
        """Read them."""
        line = Path("/proc/stat").read_text().partition("\n")[0].split()
        # user nice system idle iowait irq softirq steal; guest time is part of user.
        counts = [int(word) for word in line[1:9]]
        return cls(sum(counts), counts[3] + counts[4], counts[7])

    def steal_since(self, before: Ticks) -> float:
        """Share of the time that the host gave to others, 0 to 1."""
        return (self.steal - before.steal) / max(1, self.total - before.total)
