"""The checks, a module per part of a host."""

from .._check import Check
from ._cpu import cpu_governor
from ._memory import hugepages
from ._network import carrier
from ._pcie import pcie_link

__all__ = ["CHECKS"]

CHECKS: dict[str, Check] = {
    each.name: each
    for each in (
        carrier,
        pcie_link,
        hugepages,
        cpu_governor,
    )
}
"""All checks by name, in the order of a report."""
