"""Picture of a capture: rate over time, and gaps between packets."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
# Smaller gaps are below what clocks of kernels resolve: such packets arrived together.
_RESOLVED_US = 0.01
_LONGEST_US = 1e9


def _gaps_us(timestamps: Times) -> NDArray[np.float64]:
    return np.diff(np.sort(timestamps)) / 1e3


def _draw_rate(axes, timestamps: Times, lengths: NDArray[np.uint32]) -> None:
    seconds = (timestamps - timestamps.min()) / 1e9
    span = max(float(seconds.max()), 1e-6)
    bins = max(10, min(200, timestamps.size // 100))
    megabits, edges = np.histogram(seconds, bins=bins, range=(0, span), weights=lengths * 8 / 1e6)
    rate = megabits / np.diff(edges)
    axes.fill_between(edges[:-1], rate, step="post", alpha=0.35)
    axes.step(edges[:-1], rate, where="post", linewidth=1.2)
    axes.set(xlabel="time since first packet (s)", ylabel="rate (Mb/s)", ylim=(0, None))
    axes.set_title(f"{timestamps.size:,} packets, {int(lengths.sum()):,} bytes", loc="left")


def _draw_gaps(axes, series: dict[str, Times]) -> None:
    gaps = {name: _gaps_us(times) for name, times in series.items() if times.size > 1}
    if not gaps:
        axes.text(
            0.5, 0.5, "fewer than two packets: no gaps", ha="center", transform=axes.transAxes
        )
        return
    merged = np.concatenate(list(gaps.values()))
    low = float(np.min(merged[merged >= _RESOLVED_US], initial=_LONGEST_US))
    high = max(float(merged.max()), low * 1.01)
    edges = np.geomspace(low, high * 1.01, 120)
    for name, values in gaps.items():
        p50, p99 = np.percentile(values, [50, 99])
        label = f"{name}: p50 {p50:.1f} µs, p99 {p99:.1f} µs"
        if together := int(np.count_nonzero(values < _RESOLVED_US)):
            label += f", {together:,} at the same time"
        axes.hist(values, bins=edges, histtype="step", linewidth=1.4, label=label)
    axes.set(xscale="log", yscale="log", xlabel="gap between packets (µs)", ylabel="packets")
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", fontsize=9)
    axes.set_title("gaps between packets", loc="left")


def draw_capture(
    path: Path,
    timestamps: Times,
    lengths: NDArray[np.uint32],
    replayed: Times | None = None,
    title: str = "",
) -> None:
    """
    Write a PNG of a capture's rate over time and gap histograms.

    Parameters
    ----------
    path
        File to write; replaced if it exists.
    timestamps
        Arrival of each packet, shape ``(n,)``, ns.
    lengths
        Bytes of each packet, shape ``(n,)``.
    replayed
        Arrival of each replayed packet, ns; None: no replay.
    title
        Title, drawn above both panels.
    """
    # The object interface does not change a user's pyplot backend and figures.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained", dpi=120)
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1)
    if timestamps.size:
        _draw_rate(upper, timestamps, lengths)
    else:
        upper.text(0.5, 0.5, "nothing was captured", ha="center", transform=upper.transAxes)
    series = {"capture": timestamps}
    if replayed is not None:
        series["replay"] = replayed
    _draw_gaps(lower, series)
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    figure.savefig(path, format="png")
