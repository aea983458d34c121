"""The checks, a module per part of a host."""

from .._check import Check
from ._cpu import cpu_governor
from ._gpu import (
    bar1,
    gdrcopy,
    gpu_clocks,
    gpu_persistence,
    gpu_without_root,
    gpudirect,
    nvidia_peermem,
)
from ._memory import hugepages
from ._network import carrier
from ._pcie import pcie_link

__all__ = ["CHECKS"]

CHECKS: dict[str, Check] = {
    each.name: each
    for each in (
        carrier,
        gpudirect,
        nvidia_peermem,
        pcie_link,
        hugepages,
        cpu_governor,
        gpu_persistence,
        gpu_clocks,
        bar1,
        gdrcopy,
        gpu_without_root,
    )
}
"""All checks by name, in the order of a report."""
