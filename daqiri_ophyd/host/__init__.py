"""Host checks: whether a host can receive the stream, and how to fix what is wrong."""

from ._addresses import is_unspecified, listens_at, pci_address
from ._check import Check, Context
from ._check_host import check_host
from ._engine_rules import EngineTraits, engine_traits
from ._finding import Finding, Remedy, Report, Result, Status, Step
from ._fix_script import fix_script
from ._gpu_reader import GpuIdentity, GpuReader, GpuReadings
from ._needs import Needs
from ._picture import pcie_picture
from ._platform import Platform
from ._recording import record_host
from ._root import FactError, require_host
from .checks import CHECKS
from .facts import Facts
from .measure import MEASUREMENTS, Measurement, measure_host

__all__ = [
    "CHECKS",
    "MEASUREMENTS",
    "Check",
    "Context",
    "EngineTraits",
    "FactError",
    "Facts",
    "Finding",
    "GpuIdentity",
    "GpuReader",
    "GpuReadings",
    "Measurement",
    "Needs",
    "Platform",
    "Remedy",
    "Report",
    "Result",
    "Status",
    "Step",
    "check_host",
    "engine_traits",
    "fix_script",
    "is_unspecified",
    "listens_at",
    "measure_host",
    "pci_address",
    "pcie_picture",
    "record_host",
    "require_host",
]
