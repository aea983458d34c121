"""Picture of a scan with a frame detector: a frame, the mean, and the received packets."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["draw_frames"]


def _draw_image(figure, axes, image: NDArray[Any], title: str) -> None:
    low, high = np.nanpercentile(image, [0.5, 98.5])
    shown = axes.imshow(image, vmin=low, vmax=max(high, low + 1), cmap="viridis")
    shown.get_cmap().set_bad("red")
    figure.colorbar(shown, ax=axes, fraction=0.03, pad=0.02)
    axes.set_title(title, loc="left", fontsize=10)


def draw_frames(
    path: Path,
    frame: NDArray[Any],
    valid: NDArray[np.bool_],
    mean: NDArray[np.float64],
    timestamps: NDArray[np.int64],
    complete: NDArray[np.float64],
    position: NDArray[np.float64],
    title: str = "",
) -> None:
    """
    Write a PNG of frames that were recorded at the positions of a motor.

    Parameters
    ----------
    path
        File to write; replaced if it exists.
    frame
        A frame, shape ``(y, x)``.
    valid
        Whether each of its pixels arrived; missing pixels are drawn in red.
    mean
        Mean of all frames, shape ``(y, x)``.
    timestamps
        Arrival of each frame, shape ``(n,)``, ns.
    complete
        Fraction of the packets of each frame that arrived, shape ``(n,)``, 0 to 1.
    position
        Position of the motor at each frame, shape ``(n,)``.
    title
        Title, drawn above the panels.
    """
    # The object interface does not change a user's pyplot backend and figures.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.6), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    order = np.argsort(timestamps)
    timestamps, complete, position = timestamps[order], complete[order], position[order]
    axes = figure.subplot_mosaic([["frame", "mean"], ["time", "time"]], height_ratios=[5, 3])
    lacking = int(np.count_nonzero(~valid))
    text = f"a frame, {lacking:,} pixels did not arrive (red)" if lacking else "a frame"
    _draw_image(figure, axes["frame"], np.where(valid, frame, np.nan), text)
    _draw_image(figure, axes["mean"], mean, f"mean of {timestamps.size:,} frames")
    seconds = (timestamps - timestamps.min()) / 1e9
    time = axes["time"]
    time.plot(seconds, complete * 100, "o", markersize=3.5, label="packets that arrived")
    time.set(xlabel="time since first frame (s)", ylabel="packets that arrived (%)")
    whole = int(np.count_nonzero(complete == 1))
    time.set_title(f"{whole:,} of {complete.size:,} frames are complete", loc="left", fontsize=10)
    motor = time.twinx()
    motor.step(seconds, position, where="post", color="tab:orange", linewidth=1.2)
    motor.set_ylabel("motor", color="tab:orange")
    time.spines["top"].set_visible(False)
    motor.spines["top"].set_visible(False)
    time.grid(alpha=0.25)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    figure.savefig(path)
