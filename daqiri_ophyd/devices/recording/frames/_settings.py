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
from .._paths import PathTemplate, expand_user
from .._settings import LONGEST_S, RecordingSettings
from .._trigger_info import Triggers
from ._reorder import ReorderPlan, configured_plan

__all__ = ["FrameSettings", "requested_flight"]

_CHUNKED = "files of frames are always chunked, one chunk per frame: leave layout out."


class FrameSettings(RecordingSettings):
    """Settings of a frame detector: its frames, its limits, and its files.

    Files go to ``<directory>/<path>/<file_prefix>_000000.h5``; see `RecordingSettings`. When the
    device is unstaged, several files of one stream get a master file,
    ``<file_prefix>_000000_master.h5``: the frames of all of them in virtual datasets. `master`:
    ``always`` writes it for single files, too, ``never`` leaves it out.

    `pixel_mask`, `dark` and `flatfield` are reference data, which go to master files and are not
    applied: ``mask.npy``, or a dataset of an HDF5 file, ``mask.h5:/entry/mask``. They have the
    shape of a frame, and are read when the device is staged.

    `mode` selects a mode of the plan (``modes`` of its configuration) when the device is staged;
    empty: the plan as it is written. Shape and type of frames are those of the mode.

    Parameters are those of `EngineDevice`; ``member`` is the name of the reorder plan.
    """

    mode = setting("")

    num_frames = setting(1, "frames", minimum=0)
    acquire_time = setting(0.0, "s", minimum=0.0, maximum=LONGEST_S)
    roll_frames = setting(0, "frames", minimum=0)
    roll_bytes = setting(0, "byte", minimum=0)
    roll_seconds = setting(0.0, "s", minimum=0.0, maximum=LONGEST_S)
    start_flow = setting("")
    first_number = setting(-1, minimum=-1, maximum=2**63 - 1)
    require_complete = setting(False)
    writer = setting("buffered", choices=("buffered", "direct", "auto", "cufile"))
    compression = setting("none", choices=("none", "bitshuffle-lz4"))
    compression_threads = setting(1, "threads", minimum=1)
    master = setting("auto", choices=("auto", "always", "never"))
    pixel_mask = setting("", accept=expand_user)
    dark = setting("", accept=expand_user)
    flatfield = setting("", accept=expand_user)

    kernel = fact(lambda detector: detector.plan_device.kernel.get(), "string")
    kernel_arrays = fact(lambda detector: detector.plan_device.kernel_arrays.get(), "string")

    FIXED = (
        *("mode", "num_frames", "roll_frames", "roll_bytes", "roll_seconds"),
        *("master", "pixel_mask", "dark", "flatfield"),
        *RecordingSettings.FIXED,
    )
    REDUCED = "frames"
    # Datasets of the files.
    COLUMNS = (
        *("data", "batch", "timestamp", "last_timestamp", "packets", "missing", "timed_out"),
        *("lossy", "valid", "sequence_number"),
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
        self.mode.offer(("", *configured_plan(self).modes))

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
        # Of the port, or of the whole engine.
        plans: list[ReorderPlan] = self.parent.parent.reorder.members
        return next(plan for plan in plans if plan.member_name == self.member_name)

    @property
    def has_form(self) -> bool:
        """Whether the configuration has the shape and type of frames."""
        return self._configured.frame is not None

    @property
    def _configured(self) -> ReorderConfig:
        plan, mode = configured_plan(self), self.mode.get()
        return plan.modes[mode] if mode else plan

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

    @property
    def plan_columns(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the numbers from packets that each frame has, by the plan's ``columns``.

        Raises
        ------
        ValueError
            If a name is that of a setting, or makes a column that is too long or like those of
            another detector.
        """
        config = self._configured
        own = {name.casefold() for name in self.component_names}
        shapes: dict[str, tuple[int, ...]] = {}
        for column in config.columns:
            name = column.name
            if name.casefold() in own:
                raise ValueError(
                    f"{self.name}: column {name!r} of reorder plan {self.member_name!r} has the "
                    "name of a setting; accepted is one that no other column or setting has, in "
                    "small or capital letters. Rename it in the plan's columns."
                )
            self._require_key(name, f"column {name!r} of its plan")
            shapes[name] = (config.packets_per_batch or 0,) if column.source == "packets" else ()
        return shapes

    def _require_key(self, name: str, what: str) -> None:
        key = f"{self.name}_{name}"
        require_column(key, self.name, f"Give {what} a shorter name.")
        others = (part.name for part in self.parent.members if part is not self)
        if other := next((o for o in others if f"{key}_".startswith(f"{o}_")), None):
            raise ValueError(
                f"{self.name}: {what} would have a column {key!r}, like those of {other}; give it "
                "another name."
            )

    def _require_reductions(self, reductions: Mapping[str, Reduction]) -> None:
        of_plan = {name.casefold() for name in self.plan_columns} if reductions else set[str]()
        for name, reduction in reductions.items():
            if name.casefold() in of_plan:
                raise ValueError(
                    f"{self.name}: a reduction cannot be named {name!r}, like one of the plan's "
                    f"columns: {', '.join(self.plan_columns)}; give it another name."
                )
            self._require_key(name, f"reduction {name!r}")
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

    def _start_flows(self) -> tuple[list[dict[str, Any]], str]:
        if self.port_name:
            return super()._start_flows()
        flows = [
            flow | {"name": f"{port}/{flow['name']}"}
            for port, listed in self.daq.flows.items()
            for flow in listed
        ]
        return flows, "the engine"

    def path_template(self) -> PathTemplate:
        """Return the values of templates for a stage that begins now."""
        return PathTemplate(device=self.name, port=self.port_name, plan=self.member_name)


def requested_flight(device: str, value: Any) -> Triggers:
    """Return how many frames a fly scan has, and when they come, from its description."""
    if hasattr(value, "number_of_events"):
        try:
            triggers = Triggers.of(value, what="a frame detector", row="frame")
        except CaptureError as error:
            raise CaptureError(f"{device}: {error}") from None
        if triggers.deadtime and not triggers.external:
            raise CaptureError(
                f"{device}: deadtime is {triggers.deadtime:g} and trigger is INTERNAL; the time "
                "between exposures is set at the detector. Leave it out here; if something else "
                "triggers the detector, trigger is EXTERNAL_EDGE or EXTERNAL_LEVEL."
            )
        return triggers
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"{device} cannot be prepared with {value!r}; accepted are a number of frames, and a "
            "TriggerInfo of ophyd-async with one number_of_events."
        )
    if value < 0:
        raise ValueError(f"{device}: {value} frames; accepted is 0 (no limit) or more.")
    return Triggers(events=value)
