"""Settings of the kernel that processes a plan's frames."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from ophyd import Component
from ophyd.ophydobj import Kind

from daqiri_ophyd.engine import ReorderPlan

from ...parts._signals import EngineSignal
from .._paths import expand_user

__all__ = ["KernelSetting", "apply_kernel", "kernel_setting", "load_arrays"]


class KernelSetting(EngineSignal[str]):
    """A setting that an open engine uses at once, and a closed one when it is opened.

    Setting it compiles the kernel and copies its arrays, which takes up to a second.

    Parameters are those of `EngineSignal`.
    """

    def put(self, value: Any, **kwargs: Any) -> None:
        """Check and store a value; an open engine uses it.

        Raises
        ------
        TypeError
            If it is not a string.
        ValueError
            If a file cannot be read.
        CaptureError
            While the plan's frame detector is staged.
        DaqiriError
            If the engine does not accept the kernel or an array; see
            `daqiri_ophyd.engine.ReorderPlan.set_kernel`.
        """
        self.device.refuse_change(self)
        with self.device.daq.opening:
            try:
                converted = self._convert(value)
                self.device.use_kernel(**{self.attr_name: converted})
            except (OSError, ValueError, RuntimeError) as error:
                # RuntimeError: no such home directory.
                raise ValueError(f"{self.name} is {value!r}: {error}") from error
            super().put(converted, **kwargs)


def kernel_setting(**limits: Any) -> Component[KernelSetting]:
    """Return the component of a `KernelSetting`, a part of the configuration."""
    return Component(KernelSetting, value="", kind=Kind.config, **limits)


def load_arrays(paths: str) -> list[NDArray[Any]]:
    """Return the arrays of ``.npy`` files; ``paths`` separates them by commas.

    Raises
    ------
    ValueError, OSError
        If one cannot be read.
    """
    arrays = []
    for path in filter(None, map(str.strip, paths.split(","))):
        try:
            array = np.load(expand_user(path), allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path!r} is not a file of numpy.save ({error})") from error
        if not isinstance(array, np.ndarray):
            array.close()
            raise ValueError(f"{path!r} has several arrays; save each with numpy.save")
        arrays.append(array)
    return arrays


def apply_kernel(plan: ReorderPlan, source: str, arrays: list[NDArray[Any]]) -> None:
    """Set the kernel that processes the plan's frames; empty: none."""
    if source:
        plan.set_kernel(source, arrays)
    else:
        plan.remove_kernel()
