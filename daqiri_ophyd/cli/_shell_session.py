"""The IPython session of ``daqiri-ophyd shell``."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import matplotlib.pyplot as plt
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky.magics import get_labeled_devices
from bluesky.utils import RunEngineInterrupted
from bluesky.utils import TransitionError as NotRunningError  # pyright: ignore[reportPrivateImportUsage]
from IPython.terminal.interactiveshell import TerminalInteractiveShell
from IPython.terminal.ipapp import TerminalIPythonApp
from ophyd.sim import SynAxis

import daqiri_ophyd.plans as plans

from ..devices import Capture, Daq, FrameDetector, make_daq, reductions
from ..engine import NetworkConfig
from ._data_directory import captures_of
from ._output import print_error, print_line, print_message
from ._shell_magics import register
from ._shell_source import Source, make_source
from ._signals import ended_by
from ._workspace import latest_scan_id, open_catalog

__all__ = ["run_session"]

Detector = Capture | FrameDetector
# Of a frame, for plots and peaks.
_REDUCTION = "total"
_LOSSES = ("_dropped", "_missing_packets", "_lost_before_engine")


def run_session(name: str, config: NetworkConfig, data: Path, catalog: str | None) -> bool:
    """Run a session until its user ends it, or a script on standard input.

    Parameters
    ----------
    name : str
        The argument of the command: a path, a profile or a network interface.
    config : NetworkConfig
        Its configuration.
    data : Path
        Directory of captures, catalog and metadata.
    catalog : str, optional
        Directory of the catalog, or address of a server.

    Returns
    -------
    bool
        False if the script raised an error.
    """
    print_message(f"opening the engine, and the catalog {catalog or data / 'catalog'}")
    plots, backend = _plots()
    with _namespace(name, config, data, catalog, plots) as names:
        shell = _make_shell(names, plots)
        with _ending_on_signals(shell, names["RE"]):
            if not sys.stdin.isatty():
                return bool(shell.run_cell(sys.stdin.read()).success)
            print_line(_banner(names, name, backend, names["catalog"].page()))
            shell.mainloop()
    return True


def _plots() -> tuple[bool, str]:
    """Return whether there are windows for plots, and where plots are shown."""
    backend = plt.get_backend()
    try:
        plt.switch_backend(backend)
    except ImportError as error:
        plt.switch_backend("agg")
        return False, f"none: {error}"
    # Bluesky draws from its thread, which it can do with Qt only.
    if "qt" in backend.lower():
        return True, f"windows ({backend})"
    return False, "none: they need a display, and Qt (pip install PyQt6)"


@contextmanager
def _namespace(
    name: str, config: NetworkConfig, data: Path, catalog_name: str | None, plots: bool
) -> Iterator[dict[str, Any]]:
    """Open device and catalog; yield the names of the session; close them in reverse order."""
    data = data.resolve()
    daq = make_daq(config, directory=captures_of(data))
    motor = SynAxis(name="motor", labels={"motors"})
    source = make_source(name, daq, motor)
    with daq.open(), open_catalog(data, catalog_name) as catalog:
        run_engine = RunEngine(
            {"scan_id": latest_scan_id(catalog)}, during_task=plans.WaitForPlan()
        )
        plans.setup(run_engine, daq, catalog, plots=plots, metadata=data / "metadata")
        run_engine.subscribe(_LossReport())
        names: dict[str, Any] = {"RE": run_engine, "daq": daq, "catalog": catalog, "motor": motor}
        names |= {"bp": bp, "bps": bps, "plans": plans}
        names |= {"source": source} if source else {}
        names |= {key: each for key, each in _detectors(daq).items() if key not in names}
        try:
            yield names
        finally:
            if run_engine.state == "paused":
                print_message("the paused plan is aborted")
                run_engine.abort(reason="the session was ended")
            if source:
                source.stop()


def _detectors(daq: Daq) -> dict[str, Detector]:
    """Return frame detectors, then captures, by short names; prepare their columns."""
    found: list[tuple[str, str, Detector]] = []
    for path, part in get_labeled_devices(user_ns={"daq": daq}).get("detectors", []):
        if isinstance(part, Capture | FrameDetector):
            _, port, *_, last = path.split(".")
            found.append((last, f"{port}_{last}", part))
    found.sort(key=lambda each: isinstance(each[2], Capture))
    short = [name for name, _, _ in found]
    named = {name if short.count(name) == 1 else long: detector for name, long, detector in found}
    for detector in named.values():
        # What is lost is in the data, and reported once for each run: a plot has one curve.
        detector.on_drop.put("flag")
        detector.dropped.kind = "normal"
        if isinstance(detector, FrameDetector):
            detector.missing_packets.kind = "normal"
            detector.reductions = {_REDUCTION: reductions.total()}
    return named


class _LossReport:
    """Prints once for each run what its readings lack."""

    def __init__(self) -> None:
        self._lost: dict[str, int] = {}

    def __call__(self, name: str, doc: dict[str, Any]) -> None:
        if name == "start":
            self._lost = {}
        elif name == "event":
            for key, value in doc["data"].items():
                if key.endswith(_LOSSES) and value:
                    self._lost[key] = self._lost.get(key, 0) + value
        elif name == "stop":
            with suppress(OSError):  # the terminal is closed
                for key, value in self._lost.items():
                    print_message(f"lost: {key} {value:,}")


def _make_shell(names: dict[str, Any], plots: bool) -> TerminalInteractiveShell:
    app = TerminalIPythonApp.instance(display_banner=False)
    app.initialize([])
    shell: Any = app.shell
    shell.confirm_exit = False
    # The text of an error says what is wrong; Bluesky's traceback before it has 60 lines.
    shell.InteractiveTB.set_mode(mode="Minimal")
    if not sys.stdout.isatty():
        shell.colors = "nocolor"
    shell.user_ns.update(names)
    register(shell, names["RE"])
    shell.set_custom_exc((RunEngineInterrupted,), _print_interrupted)
    if plots:
        shell.enable_matplotlib("qt")
    return shell


def _print_interrupted(
    shell: Any, kind: type, error: BaseException, trace: TracebackType, **_: Any
) -> None:
    # It has the methods to go on with; its traceback is Bluesky's own.
    print_error(str(error))


@contextmanager
def _ending_on_signals(shell: Any, run_engine: RunEngine) -> Iterator[None]:
    """End the session on SIGTERM and SIGHUP; a plan that runs is paused first, at once."""
    prompt = shell.prompt_for_code

    def prompt_unless_ended() -> str:
        if ended_by() is not None:
            raise EOFError
        return prompt()

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}

    def pause() -> None:
        with suppress(NotRunningError):
            run_engine.request_pause(defer=False)

    def end(number: int, frame: FrameType | None) -> None:
        shown = shell.pt_app.app if shell.pt_app else None
        if shown is not None and shown.is_running:
            shown.loop.call_soon_threadsafe(lambda: shown.exit(exception=EOFError))
        # In a thread: the request waits for the RunEngine, which may wait for this handler.
        threading.Thread(target=pause, name="end", daemon=True).start()
        before[number](number, frame)  # notes it, and interrupts other commands

    shell.prompt_for_code = prompt_unless_ended
    for number, handler in before.items():
        if callable(handler):  # with nohup, SIGHUP is ignored
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _banner(names: dict[str, Any], config: str, plots: str, page: str) -> str:
    source: Source | None = names.get("source")
    detectors = [key for key, each in names.items() if isinstance(each, Capture | FrameDetector)]
    example = f"scan([{detectors[0]}], motor, -1, 1, 11)" if detectors else "count([daq])"
    packets = (
        "source     simulated packets, most or brightest at motor position 0"
        if source
        else "           packets come from the network, or from daqiri-ophyd simulate in a terminal"
    )
    return f"""\
daqiri-ophyd, configuration {config}. Runs are stored in {names["catalog"]!r}

RE         runs plans, with a table and progress bars. Plots: {plots}
daq        the engine; its detectors: {", ".join(detectors) or "none"}
motor      a simulated motor
{packets}
catalog    runs; web page: {page}
bp, bps    Bluesky's plans and their parts; plans: those of packets
%ct        counts and stores; %mov motor 1 moves; %wa lists devices
%tb Context shows where the last error came from

Try:
  {"source.start()" if source else "daq.read()"}
  RE(bp.{example})
  catalog.client[-1]["primary"].read()
Ctrl-C pauses a plan; Ctrl-D ends the session.
"""
