"""The latest frame of a reorder plan as a signal."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from event_model.documents import DataKey
from numpy.typing import NDArray

from daqiri_ophyd.engine import NotReadyError

from ...parts._signals import DataKeys, TypedSignal
from ...parts._ticker import default_ticker

__all__ = ["FrameSignal"]


class FrameSignal(TypedSignal[NDArray[Any]]):
    """A read-only copy of a recent frame of a `ReorderPlan`, independent of readers of frames.

    Its value is the latest copy: an array of zeros until there is a frame. Each reading, and each
    tick while the signal has subscribers, copies the frame that the engine kept for it, at most ten
    times a second. With `ReorderPlan.last_frame_binning` the value has means of pixels. When the
    binning changes, it is an array of zeros until there is a frame with the new binning.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(dtype="array", value=None, **kwargs)
        self._metadata["write_access"] = False
        self._number = 0
        # The latest copy, and its binning.
        self._latest: tuple[int, NDArray[Any]] | None = None

    def describe(self) -> DataKeys:
        """Return the data key, with shape and type of the plan's frames, or of their means."""
        shape, dtype = self.device.form
        key: DataKey = {
            "source": self.source_name,
            "dtype": "array",
            "shape": [None if size < 0 else size for size in shape],
            "dtype_numpy": dtype.str,
        }
        return {self.name: key}

    def get(self, **_: Any) -> NDArray[Any]:
        """Return the latest copy; subscribers are not called."""
        self._look()
        latest, (shape, dtype) = self._latest, self.device.form
        if latest is not None and latest[0] == self.device.last_frame_binning.get():
            frame = latest[1]
            # In another mode of the plan, frames have another form.
            if frame.dtype == dtype and (-1 in shape or frame.shape == shape):
                return frame
        return np.zeros([max(0, size) for size in shape], dtype)

    def subscribe(
        self, callback: Callable[..., Any], event_type: str | None = None, run: bool = True
    ) -> int:
        """Call ``callback`` with each copy; see `ophyd.ophydobj.OphydObject.subscribe`."""
        cid = super().subscribe(callback, event_type=event_type, run=run)
        self.monitor()
        return cid

    def monitor(self) -> None:
        """Check for frames while there are subscribers and the engine is open."""
        if self._is_monitored():
            default_ticker().add(self._notify)

    def restart(self) -> None:
        """Start again with an engine that was opened, which numbers copies from 1."""
        self._number = 0
        self.monitor()

    def _is_monitored(self) -> bool:
        return self.device.daq.is_open and bool(self._callbacks[self.SUB_VALUE])

    def _notify(self) -> None:
        if not self._is_monitored():
            default_ticker().remove(self._notify)
            self.monitor()  # another thread may have opened the engine
        elif (frame := self._look()) is not None:
            self._run_subs(
                sub_type=self.SUB_VALUE,
                old_value=None,
                value=frame,
                timestamp=self._metadata["timestamp"],
            )

    def _look(self) -> NDArray[Any] | None:
        """Read the engine's copy, and return it if it is new."""
        if not self.device.daq.is_open:
            return None
        binning = self.device.last_frame_binning.get()
        try:
            frame = self.device.engine_plan.preview(self._number, binning=binning)
        except NotReadyError:
            return None  # another thread has closed it
        if frame is None:
            return None
        self._number = frame.number
        self._latest = binning, frame.data
        self._metadata["timestamp"] = frame.timestamp / 1e9 if frame.timestamp else time.time()
        return frame.data
