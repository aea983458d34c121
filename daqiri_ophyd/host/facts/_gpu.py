"""NVIDIA GPUs, through NVML."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .._addresses import pci_address
from .._engine_rules import gpu_refusals
from .._record import read_record
from .._root import FactError, Root

__all__ = ["Gpu", "GpuRefusals", "read_gpu_refusals", "read_gpus"]

RECORDED = "/recorded/gpus.json"
REFUSALS = "/recorded/gpu-refusals.json"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU; None: not reported by the driver.

    Parameters
    ----------
    index : int
        As ``nvidia-smi`` counts: by place on the PCI bus.
    name : str
        Product name.
    pci_address : str
        ``domain:bus:device.function``.
    driver : str
        Version of the driver.
    cuda : tuple of int or None
        Newest CUDA version that the driver supports: major, minor.
    persistence : bool or None
        Whether persistence mode is on.
    sm_clock, max_sm_clock, memory_clock, max_memory_clock : int or None
        MHz.
    bar1_total, bar1_free : int or None
        Bytes that other devices can address.
    integrated, gpudirect, dma_buf : bool or None
        Reported by CUDA: whether its memory is the host's; whether NICs can access its memory at
        all, and through dma-buf.
    cuda_index : int or None
        As CUDA counts in this process, which depends on ``CUDA_VISIBLE_DEVICES`` and
        ``CUDA_DEVICE_ORDER``; None: not reported, it is then taken for `index`.
    hidden : bool
        Whether ``CUDA_VISIBLE_DEVICES`` hides it from this process.
    """

    index: int
    name: str
    pci_address: str
    driver: str = ""
    cuda: tuple[int, int] | None = None
    persistence: bool | None = None
    sm_clock: int | None = None
    max_sm_clock: int | None = None
    memory_clock: int | None = None
    max_memory_clock: int | None = None
    bar1_total: int | None = None
    bar1_free: int | None = None
    integrated: bool | None = None
    gpudirect: bool | None = None
    dma_buf: bool | None = None
    cuda_index: int | None = None
    hidden: bool = False

    @property
    def affinity(self) -> int | None:
        """Number of the GPU in a configuration; None: no configuration can use it."""
        if self.hidden:
            return None
        return self.index if self.cuda_index is None else self.cuda_index


def read_gpus(root: Root) -> list[Gpu]:
    """
    Return the GPUs; those of a recorded host are listed in its ``recorded/gpus.json``.

    Raises
    ------
    FactError
        If there is no driver, or the list is malformed.
    """
    if not root.live:
        gpus = read_record(root, RECORDED, list[Gpu]) or []
        return [replace(gpu, pci_address=_normal(gpu.pci_address)) for gpu in gpus]
    try:
        # pynvml is needed, and takes time to import, only here.
        from ._nvml import live_gpus
    except (ImportError, OSError) as error:
        raise FactError(f"NVML: {error}") from None
    return live_gpus()


def _normal(address: str) -> str:
    return pci_address(address) or address


@dataclass(frozen=True, slots=True)
class GpuRefusals:
    """Why the engine cannot use a GPU; empty: it can.

    Parameters
    ----------
    memory : str
        For memory that a GPU reads and writes.
    kernels : str
        For what runs on a GPU: reorder plans, and copies of packets.
    """

    memory: str = ""
    kernels: str = ""


def read_gpu_refusals(root: Root) -> GpuRefusals:
    """
    Return what the engine says, which loads the driver.

    A recorded host has it in ``recorded/gpu-refusals.json``; without that file, a recorded GPU can
    be used.

    Raises
    ------
    FactError
        If the recording is malformed.
    """
    if root.live:
        return GpuRefusals(*gpu_refusals())
    recorded = read_record(root, REFUSALS, GpuRefusals)
    if recorded is not None:
        return recorded
    absent = "" if read_gpus(root) else "this host has no NVIDIA driver"
    return GpuRefusals(absent, absent)
