"""The device that owns an engine: root of the device tree."""

import asyncio
import json
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from ophyd.device import Staged

from daqiri_ophyd.engine import (
    Engine,
    NetworkConfig,
    NotReadyError,
    Port,
    RxQueue,
    TxQueue,
    load_config,
    version,
)

from . import _flow, _tx_queue
from ._base import CounterDevice, EngineDevice, Group, TypedDevice
from ._capture import Capture
from ._flow import Flow, flow_table, inner_configuration, with_flows
from ._paths import PathProvider
from ._port import Port as PortDevice
from ._signals import DataKeys, Readings, fact

__all__ = ["Daq"]

_ON_THE_WIRE_S = 0.01  # for packets that have just left
# Longest configuration in a start document, as JSON; servers limit documents to a few MiB or less.
_LONGEST_CONFIG = 64 << 10
_Part = TypeVar("_Part", bound=EngineDevice)


class Daq(TypedDevice):
    """An acquisition engine with its ports, queues, flows and captures.

    Made by `make_daq`, which derives the tree from the configuration: ``daq.<port>.rx.<queue>``,
    ``daq.<port>.tx.<queue>``, ``daq.<port>.flows.<flow>``, ``daq.<port>.reorder.<plan>``,
    ``daq.<port>.capture`` and ``daq.regions.<memory region>``.

    The engine is opened by `open` or `wait_for_connection`, or when the device or any part of it
    is first staged or its counters are read. Unstaging leaves it open and idle. It is closed by
    `close`, at the end of a ``with`` block, and at the end of the process. A closed device can be
    opened again.

    Reading it reads all counters of all queues. A capture is a detector of its own:
    ``bp.count([daq.port0.capture])``.

    Parameters
    ----------
    configuration : NetworkConfig
        Configuration to open the engine with.
    directory : str, Path or PathProvider, optional
        Default directory of captures, or what decides where they are written.
    """

    regions: Group
    """Memory regions."""
    directory: Path | None
    """Default directory of captures."""
    path_provider: PathProvider | None
    """Decides where captures are written; None: their settings do."""
    unstaging: list[Exception] | None = None
    """Errors of parts while all of them are unstaged; None: each raises its own."""
    start_document: Mapping[str, Any] | None = None
    """Start document of the latest run, if the RunEngine tells; see `run_started`."""

    engine_version = fact(lambda _: version(), "string")
    flow_table = fact(lambda daq: json.dumps(daq.flows), "string")
    configuration_sha256 = fact(lambda daq: daq.config_sha256, "string")

    # What may differ in a run, and what identifies the rest, which is in the start document.
    _FACTS = ("engine_version", "flow_table", "configuration_sha256")

    def __init__(
        self,
        prefix: str = "",
        *,
        configuration: NetworkConfig,
        directory: str | Path | PathProvider | None = None,
        **kwargs: Any,
    ) -> None:
        self._use_configuration(configuration)
        self._engine: Engine | None = None
        self._closing = False
        self._opening = threading.RLock()  # held to open, to close and to change the flows
        self.directory = Path(directory).expanduser() if isinstance(directory, str | Path) else None
        self.path_provider = None if isinstance(directory, str | Path) else directory
        kwargs.setdefault("labels", {"daqiri"})
        super().__init__(prefix, **kwargs)
        # Closes an engine that the user did not close: at garbage collection or interpreter exit.
        self._finalizer: weakref.finalize[Any, Any] | None = None

    # --- The engine

    @property
    def config(self) -> NetworkConfig:
        """The configuration; while the engine is open, with its adjustments."""
        return self._configuration if self._engine is None else self._engine.config

    @property
    def configuration_dict(self) -> dict[str, Any]:
        """The configuration as plain data, every default written out."""
        return self._configuration_dict

    @property
    def flows(self) -> dict[str, list[dict[str, Any]]]:
        """Receive flows of each port."""
        return flow_table(self._configuration_dict)

    @property
    def config_sha256(self) -> str:
        """SHA-256 of the configuration with every default written out, as hexadecimal digits.

        Equal for files that differ in comments, order of keys and defaults only. Changed flows
        change it; whether the engine is open does not.
        """
        return self._config_sha256

    def metadata(self) -> dict[str, Any]:
        """Return what identifies the engine, for a run's start document; it need not be open.

        Returns
        -------
        dict
            ``config_sha256``, ``engine`` (as ``daqiri-ophyd info`` names it), ``version`` of the
            package, ``flows``: names of the receive flows by attribute of the port's device, and
            ``config``: the configuration as plain data, every default written out. If that is more
            than 64 KiB of JSON, its size is in ``config_bytes`` instead.
        """
        inner = inner_configuration(self._configuration_dict)
        flows = self.flows
        # Keys of documents have no dots and slashes, as names of ports may have.
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

    @property
    def is_open(self) -> bool:
        """Whether the engine is open."""
        return self._engine is not None and not self._engine.closed

    @property
    def connected(self) -> bool:
        """Whether the engine is open."""
        return self.is_open

    def wait_for_connection(self, all_signals: bool = False, timeout: object = None) -> None:
        """Open the engine if it is closed; there is nothing to wait for.

        Raises
        ------
        DaqiriError
            If it cannot be opened on this host.
        """
        self.open()

    @property
    def is_closing(self) -> bool:
        """Whether the engine is closed, or about to be."""
        return self._closing or not self.is_open

    @property
    def engine(self) -> Engine:
        """The open engine.

        Raises
        ------
        NotReadyError
            If it is not open.
        """
        if self._engine is None or self._engine.closed:
            raise NotReadyError(
                f"The engine of {self.name} is not open. Call {self.name}.open(), or use it in a "
                "plan that stages it."
            )
        return self._engine

    def open(self) -> Self:
        """Open the engine; does nothing if it is open.

        Raises
        ------
        DaqiriError
            If it cannot be opened on this host; the text says what is missing.
        """
        if self.is_open:
            return self
        with self._opening:
            if self.is_open:
                return self
            engine = Engine.open(self._configuration)
            self._configuration_dict = engine.config.to_dict()
            self._finalizer = weakref.finalize(self, Engine.close, engine)
            self._engine = engine
        for port in self._parts(PortDevice):
            port.drop_all_traffic.put(False)
        for part in self._parts(CounterDevice):
            part.monitor()
        return self

    def close(self) -> None:
        """Stop captures and transmissions, complete the files, close the engine. Idempotent."""
        with self._opening:
            if self._engine is None:
                return
            self._closing = True
            try:
                self.stop()
            finally:
                self._engine.close()
                self._engine = None
                self._closing = False
                if self._finalizer is not None:
                    self._finalizer.detach()

    def __enter__(self) -> Self:
        """Open the engine."""
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the engine."""
        self.close()

    def port_device(self, name: str) -> PortDevice:
        """Return the device of the port with this name in the configuration."""
        ports = {part.port_name: part for part in self._parts(PortDevice)}
        if name not in ports:
            known = ", ".join(map(repr, ports))
            raise LookupError(f"{self.name} has no port {name!r}; there are {known}.")
        return ports[name]

    def port(self, name: str) -> Port:
        """Return the open port with this name in the configuration."""
        return self.engine.port(name)

    def rx_queue(self, port: str, queue: str) -> RxQueue:
        """Return the open receive queue with this name in the configuration."""
        return self.port(port).rx_queue(queue)

    def tx_queue(self, port: str, queue: str) -> TxQueue:
        """Return the open transmit queue with this name in the configuration."""
        return self.port(port).tx_queue(queue)

    # --- Bluesky

    def run_started(self, name: str, doc: Mapping[str, Any]) -> None:
        """Take note of a run, for paths with its scan id; a subscriber of the RunEngine.

        ``RE.subscribe(daq.run_started, "start")``
        """
        if name == "start":
            self.start_document = doc

    def stage(self) -> list[object]:
        """Open the engine if it is closed, and stage all parts."""
        self.open()
        return super().stage()

    def unstage(self) -> list[object]:
        """Unstage all parts; the engine stays open.

        Raises
        ------
        CaptureError
            If files of a capture are in no document; all parts are unstaged all the same.
        """
        self.unstaging = []
        try:
            unstaged: list[object] = super().unstage()
        finally:
            errors, self.unstaging = self.unstaging, None
        if errors:
            raise errors[0]
        return unstaged

    async def pause(self) -> None:
        """Pause transmissions first, then captures after their linger time.

        In this order, a plan that captures what it sends loses no packet. Pausing any part of the
        engine pauses all of it. Packets that cannot leave, because nobody takes them, stay in their
        queue.
        """
        # A coroutine, which the RunEngine awaits: its loop goes on meanwhile. A second suspension
        # cancels it, and pauses again: packets may still be on their way then.
        sending = [queue for queue in self._parts(_tx_queue.TxQueue) if queue.pause_sending()]
        recording = [capture for capture in self._parts(Capture) if capture.is_recording]
        for queue in sending:
            await queue.wait_sent()
        if sending and recording:
            await asyncio.sleep(max(capture.linger.get() for capture in recording))
        for capture in recording:
            capture.pause_recording()

    def resume(self) -> None:
        """Resume what `pause` paused, captures first."""
        for capture in self._parts(Capture):
            capture.resume_recording()
        for queue in self._parts(_tx_queue.TxQueue):
            queue.resume_sending()

    def stop_interrupted(self) -> None:
        """Stop transmissions that a pause interrupted, and let their packets arrive."""
        # After a pause nothing is on its way, but for what was held and leaves at this moment.
        held = [queue.stop_interrupted() for queue in self._parts(_tx_queue.TxQueue)]
        if any(held):
            time.sleep(_ON_THE_WIRE_S)

    def _parts(self, cls: type[_Part]) -> list[_Part]:
        return [part for _, part in self.walk_subdevices() if isinstance(part, cls)]

    def read_facts(self) -> Readings:
        """Return what is part of every device's configuration: flows, version, hash."""
        found = [getattr(self, attribute).read() for attribute in self._FACTS]
        return {name: value for each in found for name, value in each.items()}

    def describe_facts(self) -> DataKeys:
        """Return the data keys of `read_facts`."""
        found = [getattr(self, attribute).describe() for attribute in self._FACTS]
        return {name: key for each in found for name, key in each.items()}

    def configure(self, d: Mapping[str, Any]) -> tuple[Readings, Readings]:
        """Change the configuration; key ``flows`` is for `change_flows`.

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

    def change_flows(self, changes: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        """Change flows; an open engine is closed and opened again, unless they are so already.

        Parameters
        ----------
        changes : mapping
            ``{port: {flow: {key: value}}}`` by the names in the configuration. ``queue`` is the
            name of a receive queue; ``match`` replaces the match; ``id`` the flow's number; any
            other key is one of the match, and ``None`` removes it.

        Raises
        ------
        RuntimeError
            If the device or a part of it is staged, or packets are being sent.
        LookupError
            If there is no such port, flow or queue.
        DaqiriError
            If the result is not valid, or cannot be opened on this host; nothing is changed.
        """
        with self._opening:
            busy = {part.name: part.busy for part in self._parts(EngineDevice) if part.busy}
            busy = busy if self._staged == Staged.no else {self.name: "staged"}
            _flow.require_free_flows(self.name, busy)
            before, was_open = self._configuration, self.is_open
            after = load_config(with_flows(before, changes, self.name))
            if after == before:
                return
            self.close()
            self._use_configuration(after)
            try:
                if was_open:
                    self.open()
            except BaseException:
                self._use_configuration(before)
                self.open()
                raise
        for flow in self._parts(Flow):
            flow.follow_configuration()

    def _use_configuration(self, configuration: NetworkConfig) -> None:
        self._configuration = configuration
        self._configuration_dict = configuration.to_dict()
        self._config_sha256 = _flow.configuration_hash(self._configuration_dict)
