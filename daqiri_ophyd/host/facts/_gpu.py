"""NVIDIA GPUs, through NVML."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace

import pynvml

from .._record import read_record
from .._root import FactError, Root

__all__ = ["Gpu", "read_gpus"]

RECORDED = "/recorded/gpus.json"
# CUdevice_attribute of CUDA's driver interface (cuda.h).
_ATTRIBUTES = {"integrated": 18, "gpudirect": 116, "dma_buf": 124}


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU; None: not reported by the driver.

    Parameters
    ----------
    index : int
        As CUDA counts with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.
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


def read_gpus(root: Root) -> list[Gpu]:
    """
    Return the GPUs; those of a recorded host are listed in its ``recorded/gpus.json``.

    Raises
    ------
    FactError
        If there is no driver, or the list is malformed.
    """
    return _live() if root.live else read_record(root, RECORDED, list[Gpu]) or []


def _live() -> list[Gpu]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise FactError(f"NVML: {error}") from None
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        cuda_version = _ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        gpus = [_gpu(index, driver, cuda_version) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        raise FactError(f"NVML: {error}") from None
    finally:
        pynvml.nvmlShutdown()
    # After NVML: a process that uses CUDA occupies part of the free BAR1 itself.
    cuda = _cuda() if gpus else None
    return gpus if cuda is None else [replace(gpu, **_cuda_flags(cuda, gpu)) for gpu in gpus]


def _gpu(index: int, driver: str, cuda: int | None) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    bar1 = _ask(pynvml.nvmlDeviceGetBAR1MemoryInfo, handle)
    persistence = _ask(pynvml.nvmlDeviceGetPersistenceMode, handle)
    return Gpu(
        index=index,
        name=pynvml.nvmlDeviceGetName(handle),
        # NVML writes the domain with eight digits.
        pci_address=pynvml.nvmlDeviceGetPciInfo_v3(handle).busId.lower().removeprefix("0000"),
        driver=driver,
        # 1000 * major + 10 * minor.
        cuda=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
        persistence=None if persistence is None else bool(persistence),
        sm_clock=_ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        max_sm_clock=_ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM),
        memory_clock=_ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        max_memory_clock=_ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        bar1_total=None if bar1 is None else bar1.bar1Total,
        bar1_free=None if bar1 is None else bar1.bar1Free,
    )


def _ask(function, *arguments):
    """Return NVML's answer, or None if the GPU or the driver does not support the request."""
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None


def _cuda() -> ctypes.CDLL | None:
    """Return CUDA's driver interface, or None if CUDA is not available."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return cuda if cuda.cuInit(0) == 0 else None


def _cuda_flags(cuda: ctypes.CDLL, gpu: Gpu) -> dict[str, bool]:
    device, value = ctypes.c_int(), ctypes.c_int()
    if cuda.cuDeviceGetByPCIBusId(ctypes.byref(device), gpu.pci_address.encode()):
        return {}
    flags = {}
    for name, attribute in _ATTRIBUTES.items():
        if cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0:
            flags[name] = bool(value.value)
    return flags
