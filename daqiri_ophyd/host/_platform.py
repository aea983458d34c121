"""Kinds of hosts."""

from __future__ import annotations

from enum import StrEnum

from ._root import FactError
from .facts import Facts

__all__ = ["Platform", "detect_platform"]


class Platform(StrEnum):
    """Kind of host, as far as remedies differ: which checks apply depends on the hardware.

    ``generic``: any Linux host with any NIC. ``igx``: NVIDIA IGX Orin with a discrete GPU.
    ``spark``: NVIDIA DGX Spark (GB10). ``gpunetio``: a GPU that polls a ConnectX or BlueField.
    """

    GENERIC = "generic"
    IGX = "igx"
    SPARK = "spark"
    GPUNETIO = "gpunetio"


def detect_platform(facts: Facts) -> Platform:
    """Return the kind of a host, from its product name, its GPUs and its NICs."""
    product = facts.product.lower()
    if "dgx spark" in product or "dgx_spark" in product or "gb10" in product:
        return Platform.SPARK
    if "igx" in product:
        return Platform.IGX
    try:
        if any("GB10" in gpu.name for gpu in facts.gpus):
            return Platform.SPARK
    except FactError:
        pass
    nvidia_gpu = any(device.is_nvidia_gpu for device in facts.pci.values())
    mellanox = any(device.is_nvidia_nic for device in facts.pci.values())
    return Platform.GPUNETIO if nvidia_gpu and mellanox else Platform.GENERIC
