"""A RunEngine, a device and a catalog, for commands that run plans."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bluesky import RunEngine
from bluesky.utils import MsgGenerator, RunEngineInterrupted
from bluesky.utils import TransitionError as NotRunningError  # pyright: ignore[reportPrivateImportUsage]
from tiled.client.utils import handle_error, retry_context

from ..catalog import Catalog, RunWriter
from ..devices import Capture, Daq, make_daq
from ..engine import Engine, NetworkConfig
from ..plans import WaitForPlan
from ._data_directory import captures_of
from ._signals import HeldInterrupts, ended_by

# Between attempts to pause a RunEngine, s.
_RETRY_S = 0.02
_LATEST_RUNS = 20


@dataclass(frozen=True)
class Workspace:
    """RunEngine, device and catalog to run a plan and store its run."""

    engine: RunEngine
    daq: Daq
    catalog: Catalog
    writer: RunWriter
    interrupts: HeldInterrupts | None = None

    def run(self, plan: MsgGenerator[Any]) -> str:
        """Run a plan that has one run; return its uid.

        Ctrl-C, SIGTERM and SIGHUP abort it, with files and run complete; if held interrupts stop a
        recording, the first one stops its capture instead.
        """
        try:
            uids: Any = self.engine(plan)
        except RunEngineInterrupted:
            if self.engine.state != "idle":
                received = ended_by()
                self.engine.abort(
                    reason="interrupted from the keyboard"
                    if received is None
                    else f"ended by {received.name}"
                )
            raise KeyboardInterrupt from None
        finally:
            if self.interrupts is not None:
                self.interrupts.release()
        return uids[-1]


class _EndOnInterrupt:
    """Ctrl-C pauses at once; by default a RunEngine waits for a checkpoint first.

    One that came earlier, and was held, acts once packets are recorded for the run. If held
    interrupts stop a recording, the first one stops its capture, and the plan ends as at a limit.
    """

    def __init__(self, engine: RunEngine, daq: Daq, interrupts: HeldInterrupts | None) -> None:
        self._engine = engine
        self._captures = [part for _, part in daq.walk_subdevices() if isinstance(part, Capture)]
        self._interrupts = interrupts
        self._stopping = False
        self._before: Any = None
        self._left = threading.Event()

    def __enter__(self) -> None:
        self._left.clear()
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        held = self._interrupts
        if held is not None and held.noted:
            self._stopping = True
            stops = held.stop is not None
            self._on_thread(self._stop_captures if stops else self._request_pause_once_recording)

    def __exit__(self, *_: object) -> None:
        self._left.set()
        signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, *_: object) -> None:
        stops = self._interrupts is not None and self._interrupts.stop is not None
        request = self._stop_captures if stops and not self._stopping else self._request_pause
        self._stopping = True
        self._on_thread(request)

    @staticmethod
    def _on_thread(request: Callable[[], None]) -> None:
        # The request waits for the RunEngine, which may wait for the handler of the signal.
        threading.Thread(target=request, name="ctrl-c", daemon=True).start()

    def _is_recording(self) -> bool:
        while not any(capture.is_recording for capture in self._captures):
            if self._left.wait(_RETRY_S):
                return False
        return True

    def _stop_captures(self) -> None:
        if self._is_recording():
            for capture in self._captures:
                capture.stop(success=True)

    def _request_pause_once_recording(self) -> None:
        if self._is_recording():
            self._request_pause()

    def _request_pause(self) -> None:
        # It may not be running yet, or may have paused or ended meanwhile.
        while not self._left.wait(_RETRY_S):
            with suppress(NotRunningError):
                return self._engine.request_pause(defer=False)


def open_catalog(
    data: Path,
    name: str | None = None,
    moved: dict[str, str] | None = None,
    readable: Iterable[str | Path] | None = None,
    *,
    create: bool = True,
) -> Catalog:
    """
    Open the catalog at an address or in a directory; None: that of the data directory.

    Folders that were moved are read in their new places, and `readable` ones where they are.

    Raises
    ------
    CatalogError
        If it cannot be opened, or is in a directory that has none and ``create`` is false.
    """
    data = data.resolve()
    captures = captures_of(data)
    if create:
        captures.mkdir(parents=True, exist_ok=True)
    folders = [captures, *(moved or {}).values(), *(readable or ())]
    if name is not None and "://" in name:
        return Catalog.connect(
            name, readable=folders, moved=moved, backup_directory=data / "backup"
        )
    directory = data / "catalog" if name is None else name
    return Catalog.open(directory, folders, moved=moved, create=create)


def latest_scan_id(catalog: Catalog) -> int:
    """Return the largest scan id of the latest runs; 0: there is none.

    One request, for nothing but the scan ids.
    """
    client = catalog.client
    request = client.context.http_client.build_request(
        "GET",
        client.item["links"]["search"],
        params={
            "sort": "-start.time",
            "page[limit]": _LATEST_RUNS,
            "fields": "metadata",
            "select_metadata": "start.scan_id",
        },
    )
    runs: list[dict[str, Any]] = []
    for attempt in retry_context():
        with attempt:
            runs = handle_error(client.context.http_client.send(request)).json()["data"]
    found = (run["attributes"]["metadata"]["selected"] for run in runs)
    return max((number for number in found if isinstance(number, int)), default=0)


@contextmanager
def open_workspace(
    config: NetworkConfig | dict[str, Any],
    data: Path,
    catalog: str | None = None,
    engine: Engine | None = None,
    interrupts: HeldInterrupts | None = None,
    ship_to: str = "",
) -> Iterator[Workspace]:
    """
    Open catalog, device and RunEngine; close them in reverse order.

    Parameters
    ----------
    config : NetworkConfig or dict
        Configuration of the device.
    data : Path
        Directory of catalog and captures.
    catalog : str, optional
        Directory of the catalog, or address of a server.
    engine : Engine, optional
        An open engine for the device.
    interrupts : HeldInterrupts, optional
        Interrupts of a recording that a capture of the run continues.
    ship_to : str
        Address of an object store for the files. Default: that of the configuration.
    """
    daq = make_daq(config, directory=captures_of(data), ship_to=ship_to)
    with open_catalog(data, catalog, readable=[daq.ship_to] if daq.ship_to else None) as opened:
        with daq.open(engine):
            pause = partial(_EndOnInterrupt, daq=daq, interrupts=interrupts)
            scan_id = {"scan_id": latest_scan_id(opened)}
            run_engine = RunEngine(scan_id, context_managers=[pause], during_task=WaitForPlan())
            writer = opened.writer()
            run_engine.subscribe(writer)
            yield Workspace(run_engine, daq, opened, writer, interrupts)
