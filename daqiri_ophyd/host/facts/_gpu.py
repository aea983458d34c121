"""NVIDIA GPUs, through NVML."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pynvml

from .._root import FactError, Root

__all__ = ["Gpu", "read_gpus"]

RECORDED = "/recorded/gpus.json"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as its driver sees it; None: the driver does not say.

    Parameters
    ----------
    index : int
        As CUDA counts with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.
    name : str
        Product.
    pci_address : str
        ``domain:bus:device.function``.
    driver : str
        Version of the driver.
    persistence : bool or None
        Whether the driver stays loaded.
    sm_clock, max_sm_clock, memory_clock, max_memory_clock : int or None
        MHz.
    bar1_total, bar1_free : int or None
        Bytes that other devices can address.
    """

    index: int
    name: str
    pci_address: str
    driver: str = ""
    persistence: bool | None = None
    sm_clock: int | None = None
    max_sm_clock: int | None = None
    memory_clock: int | None = None
    max_memory_clock: int | None = None
    bar1_total: int | None = None
    bar1_free: int | None = None


def read_gpus(root: Root) -> list[Gpu]:
    """
    Return the GPUs; those of a recorded host are listed in its ``recorded/gpus.json``.

    Raises
    ------
    FactError
        If there is no driver, or the list is malformed.
    """
    return _live() if root.live else _recorded(root)


def _recorded(root: Root) -> list[Gpu]:
    try:
        return [Gpu(**gpu) for gpu in root.json(RECORDED) or ()]
    except TypeError as error:
        names = ", ".join(field.name for field in fields(Gpu))
        raise FactError(
            f"{RECORDED}: {error}; accepted is a list of objects with {names}"
        ) from None


def _live() -> list[Gpu]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise FactError(f"NVML: {error}") from None
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        return [_gpu(index, driver) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        raise FactError(f"NVML: {error}") from None
    finally:
        pynvml.nvmlShutdown()


def _gpu(index: int, driver: str) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    bar1 = _ask(pynvml.nvmlDeviceGetBAR1MemoryInfo, handle)
    persistence = _ask(pynvml.nvmlDeviceGetPersistenceMode, handle)
    return Gpu(
        index=index,
        name=pynvml.nvmlDeviceGetName(handle),
        # NVML writes the domain with eight digits.
        pci_address=pynvml.nvmlDeviceGetPciInfo_v3(handle).busId.lower().removeprefix("0000"),
        driver=driver,
        persistence=None if persistence is None else bool(persistence),
        sm_clock=_ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        max_sm_clock=_ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM),
        memory_clock=_ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        max_memory_clock=_ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        bar1_total=None if bar1 is None else bar1.bar1Total,
        bar1_free=None if bar1 is None else bar1.bar1Free,
    )


def _ask(function, *arguments):
    """Return what NVML says, or None where the GPU or the driver has no answer."""
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None
