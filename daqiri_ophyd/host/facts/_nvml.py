"""NVIDIA GPUs of this host, through NVML and CUDA's driver."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pynvml

from .._addresses import pci_address
from .._root import FactError
from ._gpu import Gpu

__all__ = ["live_gpus"]

# CUdevice_attribute of CUDA's driver interface (cuda.h).
_ATTRIBUTES = {"integrated": 18, "gpudirect": 116, "dma_buf": 124}


def live_gpus() -> list[Gpu]:
    """
    Return the GPUs of this host.

    Raises
    ------
    FactError
        If there is no driver.
    """
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
    # NVML writes the domain with eight digits.
    address = pynvml.nvmlDeviceGetPciInfo_v3(handle).busId
    bar1 = _ask(pynvml.nvmlDeviceGetBAR1MemoryInfo, handle)
    persistence = _ask(pynvml.nvmlDeviceGetPersistenceMode, handle)
    return Gpu(
        index=index,
        name=pynvml.nvmlDeviceGetName(handle),
        pci_address=pci_address(address) or address.lower(),
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


def _cuda_flags(cuda: ctypes.CDLL, gpu: Gpu) -> dict[str, int | bool]:
    device, value = ctypes.c_int(), ctypes.c_int()
    if cuda.cuDeviceGetByPCIBusId(ctypes.byref(device), gpu.pci_address.encode()):
        return {"hidden": True}
    # CUDA's handle of a device is its number.
    flags: dict[str, int | bool] = {"cuda_index": device.value}
    for name, attribute in _ATTRIBUTES.items():
        if cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0:
            flags[name] = bool(value.value)
    return flags
