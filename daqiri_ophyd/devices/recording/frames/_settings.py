"""Settings of a frame detector."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from daqiri_ophyd.engine import ReorderConfig, frame_form

from ...parts._signals import Readings, fact, setting
from ...reductions import Reduction
from ...tree._naming import require_column
from .._errors import CaptureError
from .._paths import PathTemplate
from .._settings import LONGEST_S, RecordingSettings
from ._reorder import ReorderPlan

__all__ = ["FrameSettings", "number_of_frames"]

_CHUNKED = "files of frames are always chunked, one chunk per frame: leave layout out."


class FrameSettings(RecordingSettings):
    """Settings of a frame detector: its frames, its limits, and its files.

    Files go to ``<directory>/<path>/<file_prefix>_000000.h5``; see `RecordingSettings`.

    Parameters are those of `EngineDevice`; ``member`` is the name of the reorder plan.
    """

    num_frames = setting(1, "frames", minimum=0)
    acquire_time = setting(0.0, "s", minimum=0.0, maximum=LONGEST_S)
    roll_frames = setting(0, "frames", minimum=0)
    roll_bytes = setting(0, "byte", minimum=0)
    roll_seconds = setting(0.0, "s", minimum=0.0, maximum=LONGEST_S)
    start_flow = setting("")
    first_number = setting(-1, minimum=-1, maximum=2**32 - 1)
    require_complete = setting(False)
    writer = setting("buffered", choices=("buffered", "direct", "auto", "cufile"))
    compression = setting("none", choices=("none", "bitshuffle-lz4"))
    compression_threads = setting(1, "threads", minimum=1)

    kernel = fact(lambda detector: detector.plan_device.kernel.get(), "string")
    kernel_arrays = fact(lambda detector: detector.plan_device.kernel_arrays.get(), "string")

    FIXED = ("num_frames", "roll_frames", "roll_bytes", "roll_seconds", *RecordingSettings.FIXED)
    REDUCED = "frames"
    # Datasets of the files.
    COLUMNS = (
        *("data", "batch", "timestamp", "last_timestamp", "packets", "missing", "timed_out"),
        *("lossy", "valid"),
    )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # A setting of earlier versions.
            if name == "layout":
                raise AttributeError(f"{self.name} has no setting layout; {_CHUNKED}")
            return super().__getattr__(name)

    def configure(self, d: Mapping[str, Any]) -> tuple[Readings, Readings]:
        """Change settings, given by their names.

        Returns
        -------
        tuple of dict
            Configuration before and after.

        Raises
        ------
        ValueError
            If there is no such setting, or a value is not accepted.
        """
        if "layout" in d:
            raise ValueError(f"layout of {self.name} is {d['layout']!r}; {_CHUNKED}")
        return super().configure(dict(d))

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        super().__init__(prefix, **kwargs)
        self.file_prefix.put("{plan}")

    @property
    def form(self) -> tuple[tuple[int, ...], "np.dtype[Any]"]:
        """Shape and type of a frame.

        Raises
        ------
        CaptureError
            If the plan has no ``frame``, which defines them.
        """
        if not self.has_form:
            raise CaptureError(
                f"{self.name}: reorder plan {self.member_name!r} has no key frame. Add frame: "
                "{shape: [...], dtype: ...} to it in the configuration."
            )
        return frame_form(self._configured)

    @property
    def plan_device(self) -> ReorderPlan:
        """The device of the plan that makes the frames."""
        plans: list[ReorderPlan] = self.daq.port_device(self.port_name).reorder.members
        return next(plan for plan in plans if plan.member_name == self.member_name)

    @property
    def has_form(self) -> bool:
        """Whether the configuration has the shape and type of frames."""
        return self._configured.frame is not None

    @property
    def _configured(self) -> ReorderConfig:
        plans = self.interface.rx.reorder_configs
        return next(plan for plan in plans if plan.name == self.member_name)

    @property
    def frame_bytes(self) -> int:
        """Bytes of a frame."""
        shape, dtype = self.form
        return math.prod(shape) * dtype.itemsize

    @property
    def frames_per_file(self) -> int | None:
        """Frames of each file of a fly scan but the last, if its files are one data source.

        0: they differ; None: each file is a data source of its own.
        """
        if self.on_error.get() == "resume":  # a file that had an error may be short, or be gone
            return None
        if self.roll_seconds.get():
            return 0
        sizes = [self.roll_frames.get(), -(-self.roll_bytes.get() // self.frame_bytes)]
        return min((frames for frames in sizes if frames), default=None)

    def _require_reductions(self, reductions: Mapping[str, Reduction]) -> None:
        for name, reduction in reductions.items():
            key = f"{self.name}_{name}"
            require_column(key, self.name, "Give the reduction a shorter name.")
            others = (part.name for part in self.parent.members if part is not self)
            if other := next((o for o in others if f"{key}_".startswith(f"{o}_")), None):
                raise ValueError(
                    f"{self.name}: reduction {name!r} would have a column {key!r}, like those of "
                    f"{other}; give it another name."
                )
            if reduction.require is None:
                continue
            try:
                reduction.require(self.form[0])
            except ValueError as error:
                raise ValueError(f"{self.name}: reduction {name!r}: {error}") from error

    @property
    def limited(self) -> bool:
        """Whether a fly scan ends by itself, because a number of frames or a time is set."""
        return self.num_frames.get() > 0 or self.acquire_time.get() > 0

    def start_flow_id(self) -> int | None:
        """Return the id of the flow with which each acquisition begins; None: at once.

        Raises
        ------
        CaptureError
            If there is no such flow, or its id is 0.
        """
        name = self.start_flow.get()
        return self.find_start_flow(name)["id"] if name else None

    def path_template(self) -> PathTemplate:
        """Return the values of templates for a stage that begins now."""
        return PathTemplate(device=self.name, port=self.port_name, plan=self.member_name)


def number_of_frames(device: str, value: Any) -> int:
    """Return the number of frames of a fly scan from its description."""
    number = getattr(value, "number_of_events", value)
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(
            f"{device} cannot be prepared with {value!r}; accepted are a number of frames, and a "
            "TriggerInfo of ophyd-async with one number_of_events."
        )
    if number < 0:
        raise ValueError(f"{device}: {number} frames; accepted is 0 (no limit) or more.")
    if value is number:
        return number
    trigger = getattr(value, "trigger", None)
    if getattr(trigger, "name", "INTERNAL") != "INTERNAL":
        raise CaptureError(
            f"{device}: trigger is {trigger}; accepted is INTERNAL. To begin with a packet, set "
            "start_flow to the flow that it matches."
        )
    for name in ("exposures_per_event", "exposures_per_collection", "collections_per_event"):
        if (found := getattr(value, name, 1)) != 1:
            raise CaptureError(f"{device}: {name} is {found}; accepted is 1: each frame is a row.")
    return number
