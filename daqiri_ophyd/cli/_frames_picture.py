"""Picture of a scan with a frame detector: images, a curve over the motor, and losses."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ScannedFrames", "draw_frames"]


@dataclass(frozen=True, kw_only=True)
class ScannedFrames:
    """Frames that were recorded at the positions of a motor.

    Parameters
    ----------
    frame : ndarray, shape (y, x)
        A frame.
    valid : ndarray of bool, shape (y, x)
        Whether each of its pixels arrived.
    typical : ndarray, shape (y, x)
        Median of all frames.
    number : ndarray, shape (n,)
        A number of each frame, for the curve.
    position : ndarray, shape (n,)
        Position of the motor at each frame.
    arrived : ndarray, shape (n,)
        Part of the packets of each frame that arrived, 0 to 1.
    """

    frame: NDArray[Any]
    valid: NDArray[np.bool_]
    typical: NDArray[Any]
    number: NDArray[np.float64]
    position: NDArray[np.float64]
    arrived: NDArray[np.float64]


def draw_frames(
    path: Path,
    scanned: ScannedFrames,
    *,
    number: str,
    position: str,
    unit: str,
    title: str,
    subtitle: str,
    computed: str = "",
) -> None:
    """
    Write a PNG of a scan; pixels that did not arrive are red.

    Parameters
    ----------
    path
        File to write; replaced if it exists.
    scanned
        The frames.
    number, position
        What the number of a frame is, and the position of the motor, for the axes of the curve.
    unit
        Unit of the pixels.
    title, subtitle
        Lines above the panels.
    computed
        Who computed the number of each frame, for the title of the curve.
    """
    # The object interface does not change a user's pyplot backend and figures.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.6), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.subplot_mosaic([["frame", "typical"], ["curve", "lost"]], height_ratios=[5, 4])
    low, high = np.nanpercentile(scanned.typical, [0.5, 98.5])
    lacking = int(np.count_nonzero(~scanned.valid))
    rows = int(np.count_nonzero(~scanned.valid.all(axis=1)))
    images = {
        "frame": np.where(scanned.valid, scanned.frame, np.nan),
        "typical": scanned.typical,
    }
    shown = [
        axes[name].imshow(image, vmin=low, vmax=max(high, low + 1), cmap="viridis")
        for name, image in images.items()
    ]
    for each in shown:
        each.get_cmap().set_bad("red")
        each.axes.set(xlabel="x (pixel)", ylabel="y (pixel)")
    marked = f"{rows:,} rows did not arrive: marked red, not invented" if lacking else "complete"
    axes["frame"].set_title(f"one frame, {marked}", loc="left", fontsize=10)
    axes["typical"].set_title(f"median of {scanned.arrived.size:,} frames", loc="left", fontsize=10)
    both = [axes[name] for name in images]
    figure.colorbar(shown[0], ax=both, label=unit, fraction=0.03, pad=0.02)
    _draw_curve(axes["curve"], scanned)
    axes["curve"].set(xlabel=position, ylabel=f"{number} ({unit})")
    by = f", computed by {computed}" if computed else ""
    axes["curve"].set_title(f"the scan: mean at each position{by}", loc="left", fontsize=10)
    _draw_losses(axes["lost"], scanned.arrived)
    for name in ("curve", "lost"):
        axes[name].spines[["top", "right"]].set_visible(False)
        axes[name].grid(alpha=0.25)
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    figure.text(0.99, 0.985, subtitle, ha="right", va="top", fontsize=9, color="0.35")
    figure.savefig(path, format="png")


def _draw_curve(axes, scanned: ScannedFrames) -> None:
    places, point = np.unique(scanned.position, return_inverse=True)
    means = np.bincount(point, scanned.number) / np.bincount(point)
    axes.plot(places, means, "o-", markersize=4, linewidth=1.4)


def _draw_losses(axes, arrived: NDArray[np.float64]) -> None:
    numbers = np.arange(arrived.size)
    lost = arrived < 1
    axes.plot(numbers[~lost], arrived[~lost] * 100, "o", markersize=3.5)
    axes.plot(numbers[lost], arrived[lost] * 100, "o", markersize=3.5, color="red")
    axes.set(xlabel="frame", ylabel="packets that arrived (%)")
    whole = int(np.count_nonzero(~lost))
    axes.set_title(f"{whole:,} of {arrived.size:,} frames are complete", loc="left", fontsize=10)
