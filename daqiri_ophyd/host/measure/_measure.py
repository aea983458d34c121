"""Running the measurements."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ._disk import disk_write
from ._jitter import sleep_lateness, spin_interruptions
from ._memory import memory_copy
from ._udp import udp_loopback

__all__ = ["MEASUREMENTS", "Measurement", "measure_host"]

Measure = Callable[[float, str], tuple[dict[str, float], str]]

MEASUREMENTS: dict[str, tuple[str, Measure]] = {
    "memory-copy": ("copying in memory, one core", memory_copy),
    "udp-loopback": ("UDP on loopback without loss, one core per side", udp_loopback),
    "sleep": ("how late a sleep of 100 us ends", sleep_lateness),
    "spin": ("interruptions of a busy thread", spin_interruptions),
    "disk-write": ("writing to the folder of the captures", disk_write),
}
"""Title and function by name; the function takes seconds and a folder."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measured property of a host.

    Parameters
    ----------
    name, title : str
        Name, and description.
    values : dict of str to float
        Figures by name; the names end in the unit.
    text : str
        The figures in one line; for a measurement that failed, the reason.
    """

    name: str
    title: str
    values: dict[str, float]
    text: str


def measure_host(
    only: Iterable[str] = (), *, seconds: float = 2.0, folder: str | os.PathLike[str] = "."
) -> Iterator[Measurement]:
    """Run measurements one after the other; each result is yielded when it is known.

    No files or sockets are left behind; traffic goes to 127.0.0.1 only.

    Parameters
    ----------
    only : iterable of str
        Names in `MEASUREMENTS`; empty: all.
    seconds : float
        Time for each, 0.1 to 60 s.
    folder : path
        Folder for the file that measures the disk.

    Yields
    ------
    Measurement
        In the order of `MEASUREMENTS`.

    Raises
    ------
    ValueError
        If a name or the time is not one of these.
    """
    chosen = list(only) or list(MEASUREMENTS)
    if unknown := [name for name in chosen if name not in MEASUREMENTS]:
        names = ", ".join(MEASUREMENTS)
        raise ValueError(f"no measurement is called {unknown[0]!r}; there are: {names}")
    if not 0.1 <= seconds <= 60:
        raise ValueError(f"seconds is {seconds}; accepted are 0.1 to 60")
    return _each(chosen, seconds, os.fspath(folder))


def _each(chosen: list[str], seconds: float, folder: str) -> Iterator[Measurement]:
    for name, (title, measure) in MEASUREMENTS.items():
        if name in chosen:
            try:
                values, text = measure(seconds, folder)
            except OSError as error:
                values, text = {}, f"failed: {error}"
            yield Measurement(name, title, values, text)
