"""Readings of all engines, as series whose counters go on when an engine is opened anew."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..engine import EngineSnapshot, UnreadableEngine, ask_engines
from ..ship import ShipperSnapshot, running_shippers
from ._instruments import Instrument, measure

__all__ = ["Readings", "Series"]

_OF_FLOWS = {"daqiri.flow.packets", "daqiri.flow.bytes"}

Key = tuple[str, tuple[tuple[str, str], ...]]
Answer = EngineSnapshot | UnreadableEngine | ShipperSnapshot


def ask_all() -> list[Answer]:
    """Return the state of all engines and of all uploads of this user.

    Raises
    ------
    PermissionError
        As `ask_engines`.
    """
    return [*ask_engines(), *running_shippers()]


@dataclass
class Series:
    """Values of a metric with the same attributes.

    Parameters
    ----------
    instrument : Instrument
        The metric.
    attributes : dict of str to str
        Names and values of its attributes.
    values : list of float
        One value; of a histogram: counts up to each bound, then all.
    created : float
        Time of the first opening of an engine that has it, s since the epoch.
    """

    instrument: Instrument
    attributes: dict[str, str]
    values: list[float]
    created: float


@dataclass
class _Total:
    pid: int
    values: list[float]
    created: float


class Readings:
    """Reads engines; their counters go on, as long as their process runs.

    The counters of an engine begin at 0 when it is opened anew, and may be cleared. A reader of
    series that only compares values would count too little after a short run, or, if a process has
    two engines with the same names, see one series twice. Increases are added up here instead.

    Parameters
    ----------
    pid : int, optional
        Read only the engines of this process.
    ask : callable
        Returns the state of the engines.
    """

    def __init__(self, pid: int | None = None, ask: Callable[[], list[Answer]] = ask_all) -> None:
        self._pid = pid
        self._ask = ask
        self._lock = threading.Lock()
        self._totals: dict[Key, _Total] = {}
        # By engine (process, time of opening): the values of the last reading.
        self._last: dict[tuple[int, int], dict[Key, tuple[float, ...]]] = {}
        self._kept: list[Series] = []
        self._read_at = -1.0

    def read(self, at_most_old: float = 0.0) -> list[Series]:
        """Return the series of all engines that are open.

        Parameters
        ----------
        at_most_old : float
            Age of an earlier reading that is accepted, s.

        Raises
        ------
        PermissionError
            As `ask_engines`.
        """
        with self._lock:
            if self._read_at < 0 or time.monotonic() - self._read_at > at_most_old:
                answers = self._ask()
                own = self._pid
                self._kept = self._series([a for a in answers if own is None or a.pid == own])
                self._read_at = time.monotonic()
            return self._kept

    def _series(self, engines: list[Answer]) -> list[Series]:
        series: dict[Key, Series] = {}
        last: dict[tuple[int, int], dict[Key, tuple[float, ...]]] = {}
        unreadable = {engine.pid for engine in engines if isinstance(engine, UnreadableEngine)}
        for engine in engines:
            opened = 0 if isinstance(engine, UnreadableEngine) else engine.opened_ns
            before = self._last.get((engine.pid, opened), {})
            now = last.setdefault((engine.pid, opened), {})
            for each in measure(engine):
                key = (each.instrument.name, each.attributes)
                now[key] = each.values
                if each.instrument.kind == "gauge":
                    values, created = each.values, 0.0
                    if (found := series.get(key)) and each.instrument.unit != "s":
                        found.values[0] += values[0]
                        continue
                else:
                    total = self._add(engine.pid, opened, key, each.values, before.get(key))
                    values, created = total.values, total.created
                series[key] = Series(each.instrument, dict(each.attributes), list(values), created)
        for (pid, opened), values in self._last.items():
            # One that does not answer for a moment goes on where it was.
            if pid in unreadable:
                last.setdefault((pid, opened), values)
        self._last = last
        self._forget(series, {pid for pid, _ in last})
        return list(series.values())

    def _forget(self, series: dict[Key, Series], with_engines: set[int]) -> None:
        """Forget processes that have ended, and flows that were removed: others come, for ever."""
        gone = {total.pid for total in self._totals.values()} - with_engines
        gone = {pid for pid in gone if not os.path.exists(f"/proc/{pid}")}
        for key, total in list(self._totals.items()):
            was_removed = key[0] in _OF_FLOWS and total.pid in with_engines and key not in series
            if total.pid in gone or was_removed:
                del self._totals[key]

    def _add(
        self,
        pid: int,
        opened: int,
        key: Key,
        values: tuple[float, ...],
        before: tuple[float, ...] | None,
    ) -> _Total:
        total = self._totals.get(key)
        if total is None:
            total = self._totals[key] = _Total(pid, [0.0] * len(values), opened / 1e9)
        # Cleared, if there is less than before.
        if before is None or any(new < old for new, old in zip(values, before, strict=True)):
            before = (0.0,) * len(values)
        for i, (new, old) in enumerate(zip(values, before, strict=True)):
            total.values[i] += new - old
        return total
