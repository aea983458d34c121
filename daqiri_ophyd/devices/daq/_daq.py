"""The device that owns an engine: root of the device tree."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from daqiri_ophyd.engine import NetworkConfig, version

from ..parts._base import Group
from ..parts._run_engine import FollowedRuns
from ..parts._signals import DataKeys, Readings, fact
from ..parts._status import StageStatus
from ..recording._errors import CaptureError
from ..recording._paths import PathProvider
from ..recording._recorded import Recorded
from ..recording.frames._frame_detector import FrameDetector
from ..recording.frames._masters import write_joined
from ..traffic import _tx_queue
from . import _configuration
from ._engine_owner import EngineOwner
from ._port import Port as PortDevice

__all__ = ["Daq"]

_ON_THE_WIRE_S = 0.01  # for packets that have just left
# Longest configuration in a start document, as JSON. Servers limit documents to some MiB.
_LONGEST_CONFIG = 64 << 10


class Daq(EngineOwner):
    """An acquisition engine with its ports, queues, flows and captures.

    Created by `make_daq`, which derives the tree from the configuration: ``daq.<port>.rx.<queue>``,
    ``daq.<port>.tx.<queue>``, ``daq.<port>.flows.<flow>``, ``daq.<port>.reorder.<plan>``,
    ``daq.<port>.frames.<plan>``, ``daq.<port>.capture`` and ``daq.regions.<memory region>``.
    Reorder plans with flows of several ports are ``daq.reorder.<plan>``, ``daq.frames.<plan>``. A
    configuration that uses GPUs also has a detector ``daq.gpus.gpu_<index>`` for each.

    The engine is opened by `open` or `wait_for_connection`, or when the device or any part of it is
    first staged or its counters are read. In a plan, staging opens the engine on a thread, and the
    plan waits while the RunEngine continues. In a script, `stage` returns when the engine is open.
    Unstaging leaves it open and idle. The engine is closed by `close`, at the end of a ``with``
    block, and when the process ends. A closed device can be opened again.

    Reading the device reads all counters of all queues. A capture is a separate detector:
    ``bp.count([daq.port0.capture])``.

    Parameters
    ----------
    configuration : NetworkConfig
        Configuration to open the engine with.
    directory : str, Path or PathProvider, optional
        Default directory of captures, or a path provider, which selects where they are written.
    ship_to : str
        Default address of an object store for files of captures and frames; default: that of the
        configuration.
    """

    regions: Group
    """Memory regions."""
    directory: Path | None
    """Default directory of captures."""
    ship_to: str
    """Default address of an object store for files; empty: they stay where they are."""
    path_provider: PathProvider | None
    """Path provider of captures; None: their settings select where they are written."""
    masters: Sequence[Path] = ()
    """Master files of frames of several plans of a stream, of the last stage."""
    unstaging: list[Exception] | None = None
    """Errors of parts while all parts are unstaged; None: each part raises its own."""
    capture_failed_at: float = -1.0
    """When the latest prepared capture failed (`time.monotonic`); others may share its stream."""

    engine_version = fact(lambda _: version(), "string")
    flow_table = fact(lambda daq: json.dumps(daq.flows), "string")
    configuration_sha256 = fact(lambda daq: daq.config_sha256, "string")

    # Flows may change in a run. The rest is in the start document, and these facts identify it.
    _FACTS = ("engine_version", "flow_table", "configuration_sha256")

    def __init__(
        self,
        prefix: str = "",
        *,
        configuration: NetworkConfig,
        directory: str | Path | PathProvider | None = None,
        ship_to: str = "",
        **kwargs: Any,
    ) -> None:
        self.ship_to = ship_to or configuration.ship_to
        self.directory = Path(directory).expanduser() if isinstance(directory, str | Path) else None
        self.runs = FollowedRuns()
        """Runs of the RunEngines that use it."""
        self.path_provider = None if isinstance(directory, str | Path) else directory
        kwargs.setdefault("labels", {"daqiri"})
        super().__init__(prefix, configuration=configuration, **kwargs)

    def metadata(self) -> dict[str, Any]:
        """Return the identity of the engine for a start document; it need not be open.

        Returns
        -------
        dict
            ``config_sha256``, ``engine`` (as ``daqiri-ophyd info`` names it), ``version`` of the
            package, ``flows``: names of the receive flows by attribute of the port's device, and
            ``config``: the configuration as plain data, every default written out. If that is more
            than 64 KiB of JSON, its size is in ``config_bytes`` instead.
        """
        inner = _configuration.inner_configuration(self._configuration_dict)
        flows = self.flows
        # Keys of documents cannot have dots and slashes; names of ports can.
        ports = {part.attr_name: part.port_name for part in self._parts(PortDevice)}
        size = len(json.dumps(inner))
        config = {"config": inner} if size <= _LONGEST_CONFIG else {"config_bytes": size}
        return {
            "config_sha256": self.config_sha256,
            "engine": "loopback" if inner["loopback"] else inner["engine"],
            "version": version(),
            "flows": {key: [flow["name"] for flow in flows[port]] for key, port in ports.items()},
            **config,
        }

    def __repr__(self) -> str:
        """Return the name, the engine, its ports and whether it is open."""
        inner = _configuration.inner_configuration(self._configuration_dict)
        engine = "loopback" if inner["loopback"] else inner["engine"]
        ports = ", ".join(repr(port["name"]) for port in inner["interfaces"])
        state = "open" if self.is_open else "closed"
        return f"<Daq {self.name!r}: engine {engine!r}, ports {ports}; {state}>"

    def port_device(self, name: str) -> PortDevice:
        """Return the device of the port with this name in the configuration."""
        interfaces = _configuration.inner_configuration(self._configuration_dict)["interfaces"]
        _configuration.find_named(interfaces, name, "port", self.name)
        return next(part for part in self._parts(PortDevice) if part.port_name == name)

    # --- Bluesky

    def run_started(self, name: str, doc: Mapping[str, Any]) -> None:
        """Store the start document of a run, for files and for paths with its scan id.

        A RunEngine that stages the device, or a part of it, is known from then on. For runs that
        are opened before:

        ``RE.subscribe(daq.run_started, "start")``
        """
        if name == "start":
            self.runs.latest = doc

    def stage(self) -> list[object] | StageStatus:
        """Open the engine if it is closed, and stage all parts; see `stage_part`."""
        return self.stage_part(self, super().stage)

    def unstage(self) -> list[object]:
        """Unstage all parts; the engine stays open.

        Raises
        ------
        CaptureError
            If files of a capture are in no document, or a master file cannot be written. All parts
            are unstaged nevertheless.
        """
        if self.staged_by_another():
            return []
        self.unstaging = []
        try:
            unstaged: list[object] = super().unstage()
        finally:
            errors, self.unstaging = self.unstaging, None
        detectors = [detector.take_recordings() for detector in self._parts(FrameDetector)]
        self.masters, problem = write_joined(detectors, self.runs.failed)
        if problem:
            errors.append(CaptureError(f"{self.name}: {problem}"))
        if errors:
            raise errors[0]
        return unstaged

    async def pause(self) -> None:
        """Pause transmissions first, then captures after their linger time.

        In this order, a plan that captures the packets it sends loses none. Pausing any part of the
        engine pauses the whole engine. Packets that cannot leave, because no receiver accepts them,
        stay in their queue.
        """
        # A coroutine that the RunEngine awaits, so its loop continues. A second suspension cancels
        # it and pauses again: packets may still be in transit then.
        sending = [queue for queue in self._parts(_tx_queue.TxQueue) if queue.pause_sending()]
        recording = [capture for capture in self._parts(Recorded) if capture.is_recording]
        for queue in sending:
            await queue.wait_sent()
        if sending and recording:
            await asyncio.sleep(max(capture.linger.get() for capture in recording))
        for capture in recording:
            capture.pause_recording()

    def resume(self) -> None:
        """Resume what `pause` paused, captures first."""
        for part in self._parts(Recorded):
            part.resume_recording()
        for queue in self._parts(_tx_queue.TxQueue):
            queue.resume_sending()

    def stop_interrupted(self) -> None:
        """Stop transmissions that a pause interrupted, and wait for their packets to arrive."""
        # After a pause no packets are in transit, except held ones that leave at this moment.
        held = [queue.stop_interrupted() for queue in self._parts(_tx_queue.TxQueue)]
        if any(held):
            time.sleep(_ON_THE_WIRE_S)

    def read_facts(self) -> Readings:
        """Return the facts in every device's configuration: flows, version, hash."""
        found = [getattr(self, attribute).read() for attribute in self._FACTS]
        return {name: value for each in found for name, value in each.items()}

    def describe_facts(self) -> DataKeys:
        """Return the data keys of `read_facts`."""
        found = [getattr(self, attribute).describe() for attribute in self._FACTS]
        return {name: key for each in found for name, key in each.items()}

    def configure(self, d: Mapping[str, Any]) -> tuple[Readings, Readings]:
        """Change the configuration; key ``flows`` is passed to `change_flows`.

        Returns
        -------
        tuple of dict
            Configuration before and after.
        """
        rest, before = dict(d), self.read_configuration()
        if (flows := rest.pop("flows", None)) is not None:
            self.change_flows(flows)
        super().configure(rest)
        return before, self.read_configuration()
