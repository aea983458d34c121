"""The engine of a device: opening, closing, and reopening to change flows."""

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from bluesky.run_engine import in_bluesky_event_loop
from ophyd.device import Staged
from ophyd.utils import RedundantStaging

from daqiri_ophyd.engine import (
    DaqiriError,
    Engine,
    NetworkConfig,
    NotReadyError,
    NotSupportedError,
    Port,
    RxQueue,
    TxQueue,
    load_config,
)

from ..parts._base import CounterDevice, EngineDevice, TypedDevice
from ..parts._run_engine import calling_task
from ..parts._status import StageStatus
from ..recording.frames._reorder import ReorderPlan
from ..traffic._flow import Flow, flow_attributes, flow_classes, follow_flows
from ..tree._naming import device_name, require_column, require_own_column
from ._configuration import configuration_hash, flow_table, require_free_flows, with_flows
from ._open_devices import all_devices, name_holder
from ._port import Port as PortDevice
from ._requests import Changes, FlowTable, Names, Request, Requests

__all__ = ["EngineOwner"]

_Part = TypeVar("_Part", bound=EngineDevice)


class EngineOwner(TypedDevice):
    """A device that owns an engine; Bluesky's hooks are in `Daq`.

    Parameters
    ----------
    configuration : NetworkConfig
        Configuration to open the engine with.
    """

    def __init__(self, prefix: str = "", *, configuration: NetworkConfig, **kwargs: Any) -> None:
        self._use_configuration(configuration)
        self._begin_closed()
        super().__init__(prefix, **kwargs)
        all_devices.add(self)

    def _begin_closed(self) -> None:
        """Begin without an engine; in a forked child, other threads may have held the locks."""
        self._engine: Engine | None = None
        self._opening = threading.RLock()  # held to open, to close and to change the flows
        self._following = threading.RLock()  # held while devices of flows are added and removed
        self._requests = Requests(self._opening, self._serve, self._follow_flows)
        self._stager: Callable[[], Any] = _no_task  # task of the plan that staged it last
        # Closes an engine that the user did not close: at garbage collection or interpreter exit.
        self._finalizer: weakref.finalize[Any, Any] | None = None

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

        Files that differ only in comments, order of keys and written-out defaults have the same
        hash. Changing flows changes it; opening and closing the engine does not.
        """
        return self._config_sha256

    @property
    def is_open(self) -> bool:
        """Whether the engine is open."""
        return self._engine is not None and not self._engine.closed

    @property
    def connected(self) -> bool:
        """Whether the engine is open."""
        return self.is_open

    def wait_for_connection(self, all_signals: bool = False, timeout: object = None) -> None:
        """Open the engine if it is closed; the arguments have no effect.

        Raises
        ------
        DaqiriError
            If it cannot be opened on this host.
        """
        self.open()

    @property
    def opening(self) -> AbstractContextManager[Any]:
        """Lock that is held while the engine is opened or closed."""
        return self._opening

    @property
    def engine(self) -> Engine:
        """The open engine.

        Raises
        ------
        NotReadyError
            If it is not open.
        """
        if not self.is_open:
            self._requests.settle()  # a thread may be about to open it
        if self._engine is None or self._engine.closed:
            raise NotReadyError(
                f"The engine of {self.name} is not open. Call {self.name}.open(), or use it in a "
                "plan that stages it."
            )
        return self._engine

    def open(self, engine: Engine | None = None) -> Self:
        """Open the engine; does nothing if it is open.

        Parameters
        ----------
        engine : Engine, optional
            An engine that was opened with this configuration, to use instead of opening one. It is
            closed with the device.

        Raises
        ------
        DaqiriError
            If it cannot be opened on this host; the message names the missing resource.
        RuntimeError
            If an engine is given that is closed, or another one is open.
        """
        if engine is not None and engine.closed:
            raise RuntimeError(f"The engine given to {self.name} is closed. Give an open one.")
        if self.is_open and engine is None:
            return self
        with self._opening:
            if self.is_open:
                if engine in (None, self._engine):
                    return self
                raise RuntimeError(
                    f"The engine of {self.name} is already open. Close it before another is used."
                )
            if engine is None:
                try:
                    engine = Engine.open(self._configuration)
                except DaqiriError as error:
                    raise name_holder(error) from None
            try:
                for plan in self._parts(ReorderPlan):
                    plan.begin(engine)
            except BaseException:
                engine.close()
                raise
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
        self._requests.settle()
        with self._opening:
            if self._engine is None:
                return
            try:
                self.stop()
            finally:
                self._engine.close()
                self._engine = None
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

    def port(self, name: str) -> Port:
        """Return the open port with this name in the configuration."""
        return self.engine.port(name)

    def rx_queue(self, port: str, queue: str) -> RxQueue:
        """Return the open receive queue with this name in the configuration."""
        return self.port(port).rx_queue(queue)

    def tx_queue(self, port: str, queue: str) -> TxQueue:
        """Return the open transmit queue with this name in the configuration."""
        return self.port(port).tx_queue(queue)

    def stage_part(
        self, part: Any, stage: Callable[[], list[object]]
    ) -> list[object] | StageStatus:
        """Stage a part, and open the engine if it is closed.

        Parameters
        ----------
        part : ophyd.Device
            This device or a part of it.
        stage : callable
            Stages the part.

        Returns
        -------
        list or StageStatus
            The staged devices. If the RunEngine stages and the engine has to be opened, it is
            opened on a thread, and this is a status, which plans wait for.

        Raises
        ------
        RuntimeError
            If another RunEngine has staged the device or a part of it.
        RedundantStaging
            If the part is staged.
        """
        self.require_free()
        if part._staged != Staged.no:  # noqa: SLF001
            # ophyd's own message has the whole tree.
            raise RedundantStaging(f"{part.name} is already staged. Unstage it first.")
        task = calling_task()
        self._stager = _no_task if task is None else weakref.ref(task)
        if not in_bluesky_event_loop() or (self.is_open and not self._requests.waiting):
            self._requests.settle()
            self.open()
            return stage()
        request = self._requests.add(Request(opened=True))
        self._requests.begin()
        return StageStatus(part, stage()).end_with(request.done)

    def require_free(self) -> None:
        """Raise if another RunEngine has staged the device or a part of it.

        Raises
        ------
        RuntimeError
            It has, and its plan has not ended.
        """
        if self.staged_by_another():
            raise RuntimeError(
                f"{self.name} is in use: a plan of another RunEngine of this process has staged "
                "it or a part of it. Wait until that plan has ended."
            )

    def staged_by_another(self) -> bool:
        """Return whether a RunEngine other than the calling one has staged it, or a part of it.

        False if the plan that staged it has ended, and in a script. A plan that was refused must
        not unstage what another one uses.
        """
        # RunEngines of a process may share one event loop, but each plan has its own task.
        task, caller = self._stager(), calling_task()
        if task is None or caller is None or task is caller or task.done():
            return False
        parts = [self, *self._parts(EngineDevice)]
        return any(part._staged != Staged.no for part in parts)  # noqa: SLF001

    def change_flows(self, changes: Changes) -> None:
        """Change, add and remove flows.

        If the open engine can change its flows, it continues and loses no packet to the change.
        Otherwise it is closed and reopened. Flows that are already as requested stay unchanged.

        Parameters
        ----------
        changes : mapping
            ``{port: {flow: {key: value}}}`` by the names in the configuration. ``queue`` is the
            name of a receive queue; ``match`` replaces the match; ``id`` the flow's number. Any
            other key is one of the match, and ``None`` removes it. A flow that does not exist is
            appended to the others; it needs ``id`` and ``queue``. ``None`` in place of the keys
            removes the flow.

        Raises
        ------
        RuntimeError
            If the engine has to be reopened while the device or a part of it is staged or packets
            are being sent; or if flows are added or removed while a device that reads them is
            staged.
        LookupError
            If there is no such port, flow or queue.
        ValueError
            If devices of two flows would have the same attribute.
        DaqiriError
            If the result is not valid, or cannot be opened on this host; nothing is changed.
        """
        request = self._ask_for(Request(changes))
        self._requests.settle()
        request.done.result()

    def restore_flows(self, table: FlowTable, names: Names) -> None:
        """Set named flows of ports to those of a table, which `flows` has returned.

        Named flows that are not in the table are removed; other flows stay as they are. Raises the
        same errors as `change_flows`.

        Parameters
        ----------
        table : mapping
            Flows of each port.
        names : mapping
            Names of flows by port.
        """
        request = self._ask_for(Request(table=table, restored=names))
        self._requests.settle()
        request.done.result()

    def begin_change(self, changes: Changes) -> Future[None]:
        """Change flows on a thread, combined with requests that arrive until the engine is closed.

        Parameters and errors are those of `change_flows`.

        Returns
        -------
        Future
            Done when the flows are changed; has an exception if the engine cannot be opened so.
        """
        request = self._ask_for(Request(changes))
        self._requests.begin()
        return request.done

    def _parts(self, cls: type[_Part]) -> list[_Part]:
        with self._following:
            return [part for _, part in self.walk_subdevices() if isinstance(part, cls)]

    def _ask_for(self, request: Request) -> Request:
        """Request changed flows, unless they are already as requested."""
        requests = self._requests
        with requests.adding:
            busy = {part.name: part.busy for part in self._parts(EngineDevice) if part.busy}
            busy = busy if self._staged == Staged.no else {self.name: "staged"}
            before = self._changed(self._configuration, requests.waiting)
            after = self._changed(before, [request])
            self._require_devices(before, after)
            if busy and after != before:
                self._require_change_while_open(after, busy)
            if requests.waiting or after != before:
                requests.waiting.append(request)
            else:
                request.done.set_result(None)
        return request

    def _changed(self, configuration: NetworkConfig, requests: list[Request]) -> NetworkConfig:
        for request in requests:
            if request.changes or request.restored:
                configuration = load_config(with_flows(configuration, request, self.name))
        return configuration

    def _require_devices(self, before: NetworkConfig, after: NetworkConfig) -> None:
        """Raise if flows cannot have devices, or the readings of a staged device would change."""
        had, wanted = (flow_table(each.to_dict()) for each in (before, after))
        owners: dict[str, str] = {}
        for port in self._parts(PortDevice):
            was, will_be = (flow_classes(table[port.port_name]) for table in (had, wanted))
            for name, attribute in flow_attributes(will_be).items():
                stem = device_name(port.flows, attribute, will_be[name], port=port.port_name)
                flow = f"port {port.port_name!r}, flow {name!r}"
                require_column(f"{stem}_packets", flow, "Give the flow a shorter name.")
                require_own_column(f"{stem}_packets", flow, owners)
            if was == will_be:
                continue
            parts = [self, port, port.flows]
            parts += [flow for flow in port.flows.members if flow.member_name not in will_be]
            staged = [part.name for part in parts if part._staged != Staged.no]  # noqa: SLF001
            if staged:
                raise RuntimeError(
                    f"{staged[0]} is staged, and its readings are those of the flows of port "
                    f"{port.port_name!r}. Bluesky's plans and stage_decorator stage the whole "
                    "engine, also for one of its parts, so flows can only be added or removed "
                    "between runs. During a run, change keys of existing flows."
                )

    def _require_change_while_open(self, after: NetworkConfig, busy: Mapping[str, str]) -> None:
        """Raise `RuntimeError` unless the open engine can change its flows."""
        engine = self._engine
        if engine is None or engine.closed:
            require_free_flows(self.name, busy)
            return
        try:
            engine.check_flows(after)
        except NotSupportedError as error:
            require_free_flows(self.name, busy, str(error))

    def _changed_while_open(self, after: NetworkConfig) -> bool:
        """Change the flows of the open engine; return False if it has to be reopened."""
        engine = self.engine
        try:
            engine.change_flows(after)
        except NotSupportedError:
            return False
        self._use_configuration(after)
        self._configuration_dict = engine.config.to_dict()
        return True

    def _serve(self, take: Callable[[], list[Request]]) -> bool:
        before, was_open = self._configuration, self.is_open
        after = before
        try:
            requests = take()
            after = self._changed(before, requests)
            if was_open and after != before:
                if self._changed_while_open(after):
                    return True
                self.close()  # other requests may arrive meanwhile
                after = self._changed(before, requests := take())
            if after != before:
                self._use_configuration(after)
            if was_open or any(request.opened for request in requests):
                self.open()
        except BaseException:
            if self._configuration is not before:
                self._use_configuration(before)
            if was_open:
                self.open()
            raise
        return after != before

    def _follow_flows(self) -> None:
        # The later of two threads sees the current flows. Subscribers are called without the lock:
        # they may wait for another change.
        with self._following:
            table = self.flows
            for port in self._parts(PortDevice):
                follow_flows(port.flows, table[port.port_name])
        for flow in self._parts(Flow):
            flow.follow_configuration()

    def _use_configuration(self, configuration: NetworkConfig) -> None:
        self._configuration = configuration
        self._configuration_dict = configuration.to_dict()
        self._config_sha256 = configuration_hash(self._configuration_dict)


def _no_task() -> None:
    return None


def _begin_child() -> None:
    for owner in list(all_devices):
        owner._begin_closed()  # noqa: SLF001


os.register_at_fork(after_in_child=_begin_child)
