"""One GPU of this host while CUDA uses it: what it is, and how busy, hot and full."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ._root import FactError

__all__ = ["GpuIdentity", "GpuReader", "GpuReadings"]

_PCI_LENGTH = 32


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """What a GPU is.

    Parameters
    ----------
    name, uuid : str
        Product name; ``GPU-`` and hexadecimal digits. Empty: not reported.
    pci_address : str
        ``domain:bus:device.function``.
    driver : str
        Version of the driver; empty: not reported.
    memory_total, bar1_total : int
        Bytes of its memory, and of what of it other devices can address; 0: not reported.
    """

    name: str
    uuid: str
    pci_address: str
    driver: str
    memory_total: int
    bar1_total: int


@dataclass(frozen=True, slots=True)
class GpuReadings:
    """What a GPU does; NaN: not reported.

    Parameters
    ----------
    utilization, memory_utilization : float
        Time during which a kernel ran, and during which its memory was read or written, percent of
        the driver's last sample (1/6 to 1 s).
    memory_used, bar1_used : float
        Bytes; of the memory, with what the driver reserves.
    temperature : float
        Degrees Celsius.
    power : float
        W.
    sm_clock : float
        MHz.
    """

    utilization: float
    memory_utilization: float
    memory_used: float
    bar1_used: float
    temperature: float
    power: float
    sm_clock: float


class GpuReader:
    """Reads one GPU through NVML. Any thread; nothing is loaded before the first reading.

    NVML counts all GPUs by their place on the PCI bus, CUDA those of ``CUDA_VISIBLE_DEVICES`` in
    the order of ``CUDA_DEVICE_ORDER``: CUDA is asked which GPU it means, and NVML for the one at
    that address. A reading takes a millisecond to tens of them, the first one longer.

    Parameters
    ----------
    index : int
        As CUDA counts in this process.
    """

    def __init__(self, index: int) -> None:
        self.index = index

    @cached_property
    def identity(self) -> GpuIdentity:
        """What the GPU is.

        Raises
        ------
        FactError
            If it cannot be read; the text says what is missing. The next access tries again.
        """
        nvml = self._nvml
        handle = self._handle
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        bar1 = self._ask(nvml.nvmlDeviceGetBAR1MemoryInfo, handle)
        return GpuIdentity(
            name=self._ask(nvml.nvmlDeviceGetName, handle) or "",
            uuid=self._ask(nvml.nvmlDeviceGetUUID, handle) or "",
            pci_address=self._pci_address,
            driver=self._ask(nvml.nvmlSystemGetDriverVersion) or "",
            memory_total=0 if memory is None else memory.total,
            bar1_total=0 if bar1 is None else bar1.bar1Total,
        )

    def read(self) -> GpuReadings:
        """Return what the GPU does now.

        Raises
        ------
        FactError
            If it cannot be read, such as one that has fallen off the bus.
        """
        nvml = self._nvml
        handle = self._handle
        busy = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        bar1 = self._ask(nvml.nvmlDeviceGetBAR1MemoryInfo, handle)
        celsius = self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        milliwatts = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        sm_clock = self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)
        return GpuReadings(
            utilization=_number(busy and busy.gpu),
            memory_utilization=_number(busy and busy.memory),
            memory_used=_number(memory and memory.used),
            bar1_used=_number(bar1 and bar1.bar1Used),
            temperature=_number(celsius),
            power=_number(milliwatts) / 1000,
            sm_clock=_number(sm_clock),
        )

    @cached_property
    def _nvml(self) -> Any:
        try:
            # It takes time to import, and is needed only here.
            import pynvml
        except (ImportError, OSError) as error:
            raise FactError(f"GPU {self.index}: NVML: {error}") from None
        return pynvml

    @cached_property
    def _pci_address(self) -> str:
        try:
            return _pci_address(self.index)
        except FactError as error:
            raise FactError(f"GPU {self.index}: {error}") from None

    @cached_property
    def _handle(self) -> Any:
        """NVML's handle; NVML stays initialized until the process ends."""
        nvml = self._nvml
        address = self._pci_address
        try:
            nvml.nvmlInit()
            return nvml.nvmlDeviceGetHandleByPciBusId(address)
        except nvml.NVMLError as error:
            raise self._failed(error) from None

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return NVML's answer, or None if this GPU, driver or user has no such value."""
        nvml = self._nvml
        try:
            return function(*arguments)
        except nvml.NVMLError as error:
            if error.value in (
                nvml.NVML_ERROR_NOT_SUPPORTED,
                nvml.NVML_ERROR_NO_PERMISSION,
                nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            ):
                return None
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> FactError:
        return FactError(f"GPU {self.index} ({self._pci_address}): NVML: {error}")


def _number(value: int | None) -> float:
    return math.nan if value is None else float(value)


def _pci_address(index: int) -> str:
    """Return the address of the GPU that CUDA counts as ``index``."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise FactError(f"this host has no NVIDIA driver ({error})") from None
    count, device = ctypes.c_int(), ctypes.c_int()
    address = ctypes.create_string_buffer(_PCI_LENGTH)
    result = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if result == 0 and not index < count.value:
        raise FactError(
            f"the NVIDIA driver finds {count.value} GPU{'s' * (count.value != 1)} "
            "(CUDA_VISIBLE_DEVICES may hide others)"
        )
    result = (
        result
        or cuda.cuDeviceGet(ctypes.byref(device), index)
        or cuda.cuDeviceGetPCIBusId(address, _PCI_LENGTH, device)
    )
    if result:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(result, ctypes.byref(text))
        raise FactError(f"CUDA: {(text.value or b'error %d' % result).decode()}")
    return address.value.decode().lower()
