"""Reorder plans as devices."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ophyd import Component
from ophyd.device import Staged
from ophyd.ophydobj import Kind

from daqiri_ophyd.engine import (
    Engine,
    InvalidParameterError,
    NotSupportedError,
    ReorderConfig,
    ReorderCounters,
    frame_form,
)
from daqiri_ophyd.engine import ReorderPlan as EnginePlan

from ...daq._configuration import inner_configuration
from ...parts._base import CounterDevice, EngineDevice
from ...parts._signals import EngineSignal, counter, fact, setting
from .._errors import CaptureError
from .._paths import expand_user
from ._frame_signal import FrameSignal
from ._kernel_setting import apply_kernel, kernel_setting, load_arrays

__all__ = ["ReorderPlan", "configured_plan", "plan_label"]


def configured_plan(part: EngineDevice) -> ReorderConfig:
    """Return the configuration of the plan of a part, which one port has, or the whole engine."""
    plans = part.interface.rx.reorder_configs if part.port_name else part.daq.config.reorder_configs
    return next(plan for plan in plans if plan.name == part.member_name)


def plan_label(part: EngineDevice) -> str:
    """Return the plan's name in the engine: ``port0/images``, or ``images`` of several ports."""
    return f"{part.port_name}/{part.member_name}" if part.port_name else part.member_name


def _setting(name: str) -> Any:
    return lambda plan: plan.configured[name]


class ReorderPlan(CounterDevice):
    """A reorder plan of a port, or of several: packets of its flows become frames.

    The counters are those of `daqiri_ophyd.engine.ReorderCounters`. Counters of frames have
    ``_frames`` in their names, because ophyd uses ``complete`` for flyers. They begin at 0 whenever
    the engine is opened. The receive queues that the flows lead to deliver the frames, or
    ``daq.<port>.frames.<plan>`` (``daq.frames.<plan>``) records them. `last_frame` is a copy of a
    recent frame for displays.

    `kernel` is the path of a CUDA C++ file. Its kernel ``frame`` processes each frame on the GPU
    before it is delivered or recorded. `kernel_arrays` has the paths of the ``.npy`` files with the
    kernel's arrays, in their order, separated by commas. Empty: none. See
    `daqiri_ophyd.engine.ReorderPlan.set_kernel`. An open engine uses a setting as soon as it is
    set, so set the arrays first. Neither can be changed while the plan's frame detector is staged:
    they are part of its configuration.

    With `last_frame_binning` of n > 1, `last_frame` has the means of blocks of n x n pixels; see
    `daqiri_ophyd.engine.ReorderPlan.preview`. The binning applies to later copies and descriptors,
    so it cannot be changed while this device or the plan's frame detector is staged.
    """

    complete_frames = counter("frames", hinted=True)
    incomplete_frames = counter("frames", hinted=True)
    lost_frames = counter("frames")
    skipped_frames = counter("frames")
    untaken_frames = counter("frames")
    missing = counter("packets")
    packets = counter("packets")
    placed = counter("packets")
    duplicate = counter("packets")
    late = counter("packets")
    early = counter("packets")
    malformed = counter("packets")
    left_out = counter("packets")
    no_buffer = counter("packets")
    restarts = counter("restarts")
    frame_rate = counter("frames/s", dtype="number")
    last_frame = Component(FrameSignal, kind=Kind.omitted)
    last_frame_binning = setting(1)

    kernel = kernel_setting(accept=expand_user)
    kernel_arrays = kernel_setting()

    plan_name = fact(lambda plan: plan.member_name, "string")
    reorder_type = fact(_setting("reorder_type"), "string")
    memory_region = fact(_setting("memory_region"), "string")
    payload_byte_offset = fact(_setting("payload_byte_offset"), "integer", "byte")
    flow_ids = fact(lambda plan: list(configured_plan(plan).flow_ids), "array")
    method = fact(lambda plan: json.dumps(plan.configured["method"]), "string")

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        # Contents of `kernel` and `kernel_arrays`, read when they were set.
        self._source = ""
        self._arrays: list[NDArray[Any]] = []
        super().__init__(prefix, **kwargs)
        self.last_frame_binning.restrict(self._accept_binning, 1)

    @property
    def configured(self) -> dict[str, Any]:
        """The plan as configured, with all defaults."""
        inner = inner_configuration(self.daq.configuration_dict)
        plans = inner.get("reorder_configs", ())
        if self.port_name:
            port = next(i for i in inner["interfaces"] if i["name"] == self.port_name)
            plans = port["rx"]["reorder_configs"]
        return next(plan for plan in plans if plan["name"] == self.member_name)

    @property
    def form(self) -> "tuple[tuple[int, ...], np.dtype[Any]]":
        """Shape and type of `last_frame`; (-1,) without ``frame``."""
        return self._form_with(self.last_frame_binning.get())

    def _form_with(self, binning: int) -> "tuple[tuple[int, ...], np.dtype[Any]]":
        plan = self.engine_plan.config if self.daq.is_open else configured_plan(self)
        return frame_form(plan, binning)

    def _accept_binning(self, binning: int) -> int:
        try:
            self._form_with(binning)
        except InvalidParameterError as error:
            raise ValueError(str(error)) from None
        return binning

    @property
    def engine_plan(self) -> EnginePlan:
        """The plan of the open engine."""
        return self.daq.engine.reorder_plan(plan_label(self))

    def refuse_change(self, signal: EngineSignal[Any]) -> None:
        """Raise if a setting is changed that frames or descriptors of a run depend on."""
        frames = self.parent.parent.frames.members
        busy = [each for each in frames if each.member_name == self.member_name]
        if signal is self.last_frame_binning:
            busy.append(self)
        for device in busy:
            if device._staged != Staged.no:  # noqa: SLF001 - ophyd has no other way
                raise CaptureError(
                    f"{signal.name} cannot be changed while {device.name} is staged."
                )

    def use_kernel(self, kernel: str | None = None, kernel_arrays: str | None = None) -> None:
        """Process frames with another kernel, or other arrays, if the engine is open.

        Raises
        ------
        ValueError, OSError, DaqiriError
            If a file cannot be read, or the engine does not accept its content.
        """
        arrays = self._arrays if kernel_arrays is None else load_arrays(kernel_arrays)
        source = self._source
        if kernel is None:
            kernel = self.kernel.get()
        else:
            source = Path(kernel).read_text("utf-8-sig") if kernel else ""
            if kernel and not source.strip():
                raise ValueError("the file is empty")
        if kernel and self.configured["reorder_type"] != "gpu":
            raise NotSupportedError(
                f"{self.kernel.name} is {kernel!r}, and reorder plan {self.member_name!r} has "
                f"reorder_type {self.configured['reorder_type']!r}; kernels run on a GPU: set "
                "reorder_type: gpu in the configuration"
            )
        if self.daq.is_open:
            apply_kernel(self.engine_plan, source, arrays)
        self._source, self._arrays = source, arrays

    def begin(self, engine: Engine) -> None:
        """Apply the kernel and arrays, as read when they were set, to an opening engine.

        Raises
        ------
        DaqiriError
            If the engine does not accept them.
        """
        if self._source:
            apply_kernel(engine.reorder_plan(plan_label(self)), self._source, self._arrays)

    def monitor(self) -> None:
        """Update subscribed signals for as long as the engine is open."""
        super().monitor()
        self.last_frame.restart()

    def take_values(self) -> dict[str, Any]:
        """Read the counters of the plan; opens the engine if it is closed."""
        self.daq.open()
        return self._values(self.engine_plan.counters())

    def take_copied(self, counters: NDArray[np.void]) -> dict[str, Any]:
        """Return the same values from the engine's periodic copy."""
        plans = counters["reorder"][self.port_name] if self.port_name else counters["plans"]
        row = plans[self.member_name]
        return self._values(ReorderCounters.of_row(row))

    def _values(self, counters: ReorderCounters) -> dict[str, Any]:
        frames = ("complete", "incomplete", "lost", "skipped", "untaken")
        values = {
            f"{name}_frames" if name in frames else name: value
            for name, value in asdict(counters).items()
        }
        return {**values, "frame_rate": self.engine_plan.frame_rate()}
