"""Prepare a RunEngine for a session with an acquisition engine."""

from __future__ import annotations

# pyright: reportAttributeAccessIssue=false
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from bluesky import RunEngine
from bluesky.utils import PersistentDict, ProgressBarManager

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import Daq

from ._metadata import engine_metadata_wrapper
from ._streams import reading_streams_wrapper

if TYPE_CHECKING:
    from bluesky.callbacks.best_effort import BestEffortCallback

__all__ = ["Session", "setup"]

_PREPROCESSORS = (engine_metadata_wrapper, reading_streams_wrapper)


@dataclass(frozen=True)
class Session:
    """A RunEngine with its device, catalog, table and plots; made by `setup`.

    Attributes
    ----------
    run_engine : RunEngine
        The RunEngine.
    daq : Daq
        Device whose runs it follows.
    catalog : Catalog or None
        Catalog in which its runs are stored.
    live : BestEffortCallback or None
        Table, plots and, in ``live.peaks``, peaks of the last run; None if no call had ``table``.
    """

    run_engine: RunEngine
    daq: Daq
    catalog: Catalog | None
    live: BestEffortCallback | None


@dataclass
class _Prepared:
    """What a RunEngine has got from `setup` so far."""

    daq: Daq | None = None
    run_started: int = -1
    catalog: Catalog | None = None
    writer: int = -1
    live: BestEffortCallback | None = None
    metadata: Path | None = None
    has_progress: bool = False


_prepared: WeakKeyDictionary[RunEngine, _Prepared] = WeakKeyDictionary()


def setup(
    run_engine: RunEngine,
    daq: Daq,
    catalog: Catalog | None = None,
    *,
    table: bool = True,
    plots: bool | None = None,
    progress: bool = True,
    metadata: str | Path | None = None,
) -> Session:
    """Prepare a RunEngine for a session, as the startup collection and ``daqiri-ophyd shell`` do.

    From then on, the runs of every plan are stored in the catalog, their start documents have the
    configuration of the engine (`engine_metadata_wrapper`), readings of a stream share a file of
    frames (`reading_streams_wrapper`), paths with ``{scan_id}`` work in all plans, and the terminal
    shows a table of each run and progress bars. If the terminal is closed, scans continue.

    It can be called again. What the RunEngine has is kept and never subscribed twice; another
    device or catalog takes the place of the earlier one. The earlier device is closed, since it has
    the sockets.

    Parameters
    ----------
    run_engine : RunEngine
        A RunEngine that is idle.
    daq : Daq
        Device of the session.
    catalog : Catalog, optional
        Catalog for the runs. Default: that of an earlier call, else none.
    table : bool
        Print a table of each run (bluesky's `BestEffortCallback`). Without it, there are no plots
        either.
    plots : bool
        Plot hinted columns of each run in windows, which requires a display. Default: as in an
        earlier call, else no plots.
    progress : bool
        Show progress bars, unless the RunEngine has a ``waiting_hook``.
    metadata : str or Path, optional
        Directory in which ``RE.md`` is kept: scan ids continue from the last session. It works for
        one session at a time.

    Returns
    -------
    Session
        RunEngine, device, catalog and table.

    Examples
    --------
    >>> RE = RunEngine(during_task=WaitForPlan())
    >>> daq = make_daq(profiles.path("loopback"), directory="captures")
    >>> catalog = Catalog.open("catalog", readable=["captures"])
    >>> daqiri_ophyd.setup(RE, daq, catalog)
    """
    has = _prepared.setdefault(run_engine, _Prepared())
    if has.daq is not daq:
        if has.daq is not None:
            run_engine.unsubscribe(has.run_started)
            has.daq.close()
        # Also runs that are opened before the engine is staged are known, for paths with {scan_id}.
        has.daq, has.run_started = daq, run_engine.subscribe(daq.run_started, "start")
    if catalog is not None and has.catalog is not catalog:
        writer = catalog.writer()
        if has.catalog is not None:
            run_engine.unsubscribe(has.writer)
        has.catalog, has.writer = catalog, run_engine.subscribe(writer)
    for wrapper in _PREPROCESSORS:
        if wrapper not in run_engine.preprocessors:
            run_engine.preprocessors.append(wrapper)
    if metadata is not None and has.metadata != Path(metadata):
        _keep_metadata(run_engine, Path(metadata))
        has.metadata = Path(metadata)
    if progress and not has.has_progress and run_engine.waiting_hook is None:
        has.has_progress = True
        run_engine.waiting_hook = _on_terminal(ProgressBarManager())
    if table:
        if has.live is None:
            # Here: it imports matplotlib.
            from bluesky.callbacks.best_effort import BestEffortCallback

            has.live = BestEffortCallback()
            has.live.disable_plots()
            run_engine.subscribe(_on_terminal(has.live))
        if plots is not None:
            (has.live.enable_plots if plots else has.live.disable_plots)()
    return Session(run_engine, daq, has.catalog, has.live)


def _keep_metadata(run_engine: RunEngine, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    kept = PersistentDict(str(folder))
    last = max(kept.get("scan_id", 0), run_engine.md.get("scan_id", 0))
    kept.update({**run_engine.md, "scan_id": last})
    run_engine.md = kept


def _on_terminal(show: Callable[..., Any]) -> Callable[..., None]:
    """Return a function that shows something, unless the terminal is closed: scans continue."""

    def shown(*args: Any) -> None:
        with contextlib.suppress(OSError):
            show(*args)

    return shown
