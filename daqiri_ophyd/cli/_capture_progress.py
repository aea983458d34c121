"""A line on the terminal with the progress of a recording."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import RenderableType
from rich.text import Text

from ..engine import QueueRecording
from ._output import counts_text, messages, printable

__all__ = ["show_counts", "shown_live"]

# Time over which rates are computed, s, and lines per second.
_RATE_S = 1.0
_PER_SECOND = 4
_UNITS = ("b/s", "kb/s", "Mb/s", "Gb/s")


@contextmanager
def show_counts(recording: QueueRecording) -> Iterator[None]:
    """Show packets, rate, losses and file of a recording on stderr if it is a terminal."""
    with shown_live(counts_line(recording, time.monotonic)):
        yield


@contextmanager
def shown_live(content: Callable[[], RenderableType]) -> Iterator[None]:
    """Show what a function returns on stderr, again and again, if it is a terminal."""
    if not messages.is_terminal:
        yield
        return
    from rich.live import Live

    live = Live(
        console=messages,
        get_renderable=content,
        refresh_per_second=_PER_SECOND,
        transient=True,
        redirect_stdout=False,
    )
    # A terminal that is closed ends no work.
    with suppress(OSError, SystemExit):
        live.start()
    try:
        yield
    finally:
        with suppress(OSError, SystemExit):
            live.stop()


def counts_line(recording: QueueRecording, clock: Callable[[], float]) -> Callable[[], Text]:
    """Return a function that returns the line for now; rates are those of the last second."""
    queues = [recording.port.rx_queue(name) for name in recording.queues]
    begun = clock()
    seen = deque([(begun, 0)])

    def line() -> Text:
        snapshots = [recorder.snapshot() for recorder in recording.recorders]
        now, total = clock(), sum(snapshot.bytes for snapshot in snapshots)
        while len(seen) > 1 and now - seen[1][0] >= _RATE_S:
            seen.popleft()
        since, before = seen[0]
        rate = 8 * (total - before) / (now - since) if now > since else 0.0
        seen.append((now, total))
        dropped: Counter[str] = Counter()
        for queue, at_begin in zip(queues, recording.before, strict=True):
            dropped.update(queue.counters().dropped)
            dropped.subtract(at_begin)
        early = recording.port.counters().lost_before_engine
        dropped["before the engine"] = early - recording.port_before.lost_before_engine
        files = [snapshot.path.name for snapshot in snapshots if snapshot.path is not None]
        seconds = int(now - begun)
        parts = [
            f"{sum(snapshot.packets for snapshot in snapshots):,} packets",
            f"dropped {counts_text(sum(dropped.values()), dropped)}",
        ]
        if files:
            elapsed = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            parts = [elapsed, parts[0], rate_text(rate), parts[1], ", ".join(files)]
        else:
            parts.append("storing the run")
        return Text(printable("  ".join(parts)), no_wrap=True, overflow="ellipsis")

    return line


def rate_text(bits_per_s: float) -> str:
    """Return a rate with three digits and its unit."""
    scaled, unit = bits_per_s, 0
    while scaled >= 999.5 and unit + 1 < len(_UNITS):
        scaled, unit = scaled / 1000, unit + 1
    digits = 0 if scaled >= 99.95 or not unit else 1 if scaled >= 9.995 else 2
    return f"{scaled:,.{digits}f} {_UNITS[unit]}"
