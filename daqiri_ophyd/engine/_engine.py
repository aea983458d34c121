"""Engines and their ports."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd import _native
from daqiri_ophyd._native import FlowConfig, InterfaceConfig, NetworkConfig

from ._config import ConfigSource, flows_text, read_config
from ._connections import Connection, option_bytes
from ._counters import counters_dtype
from ._dma_buf import DmaBuf
from ._errors import ConfigError, InvalidParameterError
from ._flow import Flow
from ._link import Link
from ._log import forward_log
from ._port_counters import PortCounters
from ._reorder import ReorderPlan
from ._rx_queue import RxQueue
from ._snapshot import EngineSnapshot
from ._tx_queue import TxQueue

__all__ = ["LINKTYPE_ETHERNET", "LINKTYPE_RAW", "Engine", "Port", "capabilities", "version"]

LINKTYPE_ETHERNET = 1
"""Packets are Ethernet frames."""
LINKTYPE_RAW = 101
"""Packets are payloads of sockets; in files the recorder adds reconstructed IP headers."""
_NO_PORT = -1  # of plans with flows of several ports


class Port:
    """A port of an engine: one interface with its queues.

    Attributes
    ----------
    id : int
        Position of the interface in the configuration.
    config : InterfaceConfig
        Its part of the configuration.
    rx, tx : tuple of RxQueue, TxQueue
        Receive queues and transmit queues, in the order of the configuration.
    reorder : dict of str to ReorderPlan
        Reorder plans by name.
    """

    def __init__(self, number: int, config: InterfaceConfig, session: _native.Session) -> None:
        self._session = session
        self.id = number
        self.config = config
        self.rx = tuple(
            RxQueue(self, queue, session.rx_queue(number, queue.id)) for queue in config.rx.queues
        )
        self.tx = tuple(
            TxQueue(self, queue, session.tx_queue(number, queue.id)) for queue in config.tx.queues
        )
        self.reorder = {
            plan.name: ReorderPlan(number, position, plan, session)
            for position, plan in enumerate(config.rx.reorder_configs)
        }

    @property
    def name(self) -> str:
        """Name of the interface."""
        return self.config.name

    @property
    def flows(self) -> tuple[Flow, ...]:
        """Receive flows: those of the configuration in its order, then those added at run time."""
        return tuple(self._flows(self._session.flows(self.id)))

    @property
    def address(self) -> str:
        """Address of the interface as configured."""
        return self.config.address

    def rx_queue(self, queue: str | int) -> RxQueue:
        """Return the receive queue with this name or id.

        Raises
        ------
        InvalidParameterError
            If there is no such queue.
        """
        return _find(self.rx, queue, f"port {self.name!r}", "receive queue")

    def tx_queue(self, queue: str | int) -> TxQueue:
        """Return the transmit queue with this name or id.

        Raises
        ------
        InvalidParameterError
            If there is no such queue.
        """
        return _find(self.tx, queue, f"port {self.name!r}", "transmit queue")

    def flow(self, flow: str | int) -> Flow:
        """Return the receive flow with this name or id.

        Raises
        ------
        InvalidParameterError
            If there is no such flow.
        """
        return _find(self.flows, flow, f"port {self.name!r}", "flow")

    def add_flow(self, flow: Mapping[str, Any]) -> Flow:
        """Add a flow while packets flow; see `add_flows`."""
        return self.add_flows([flow])[0]

    def add_flows(self, flows: Sequence[Mapping[str, Any]]) -> list[Flow]:
        """Add flows while packets flow, all at once.

        They are inserted before the flows of the configuration and before flows added earlier; the
        first flow that matches receives the packet. When this returns, all packets are steered by
        the new flows. No packet is lost to the change.

        Parameters
        ----------
        flows : sequence of dict
            As under ``rx.flows`` of a configuration, without ``id``: ``name``, ``match``, and
            ``action``, ``actions`` or ``queue``, the name or id of a receive queue.

        Returns
        -------
        list of Flow
            The flows, with their ids, which the engine never assigns to another flow.

        Raises
        ------
        InvalidParameterError
            If a flow is not valid, or duplicates an added flow. No flow is added then.
        NoSpaceAvailableError
            If there would be more than ``dynamic_flow_capacity`` added flows.
        NotSupportedError
            If the engine cannot change flows while it runs.
        NotReadyError
            If the engine is closed.
        """
        listed = [self._with_action(flow, number) for number, flow in enumerate(flows)]
        return self._flows(self._session.add_flows(self.id, flows_text(listed)))

    def remove_flow(self, flow: Flow | str | int) -> None:
        """Remove a flow that was added at run time, given by itself, its name or its id.

        When this returns, no more packets are steered to it. Earlier packets keep its id.

        Raises
        ------
        InvalidParameterError
            If there is no such flow, or it belongs to the configuration.
        NotReadyError
            If the engine is closed.
        """
        found = flow if isinstance(flow, Flow) else self.flow(flow)
        self._session.remove_flow(found.id)

    def _flows(self, listed: Iterable[tuple[FlowConfig, int, bool]]) -> list[Flow]:
        return [Flow(self.id, key, flow, added, self._session) for flow, key, added in listed]

    def _with_action(self, flow: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Return a flow to add in the form of a configuration."""
        if "id" in flow:
            raise InvalidParameterError(
                f"flows[{number}].id: found {flow['id']!r}; the engine chooses the ids of added "
                "flows, remove the key"
            )
        keys = {"id": 1, **flow}
        if (queue := keys.pop("queue", None)) is not None:
            keys["action"] = {"type": "queue", "id": self.rx_queue(queue).id}
        return keys

    def now(self) -> int:
        """Return the time of the port's clock, ns: the clock of launch times and timestamps."""
        return self._session.now(self.id)

    @property
    def mac_address(self) -> str:
        """Ethernet address, such as 02:00:00:00:00:01; zeros where there is none."""
        return self._session.mac_address(self.id)

    def link(self) -> Link:
        """Return the current state of the port's network interface, as the kernel reports it."""
        return Link(*self._session.link(self.id))

    def counters(self, max_age: float = 0.0) -> PortCounters:
        """Return what the host lost of the port's packets before the engine.

        Each call reads the kernel's statistics, which takes some drivers milliseconds. For a closed
        engine they are those of its end.

        Parameters
        ----------
        max_age : float
            How old the statistics may be, s.
        """
        return PortCounters(*self._session.port_counters(self.id, round(max_age * 1e9)))

    @property
    def link_type(self) -> int:
        """Link type of the port's pcap files: LINKTYPE_ETHERNET or LINKTYPE_RAW."""
        return self._session.link_type(self.id)

    def receive_path(self, queue: str | int) -> str:
        """Return the receive path of the receive queue with this name or id.

        The values are those of `RxQueueState`.

        Raises
        ------
        InvalidParameterError
            If there is no such queue.
        """
        return self._session.receive_path(self.id, self.rx_queue(queue).id)

    def connections(self) -> list[Connection]:
        """Return the port's connections: the socket of a server first, then its peers.

        Returns
        -------
        list of Connection
            The current ones; empty on streams without connections (raw streams).
        """
        return [Connection(*row) for row in self._session.connections(self.id)]

    def drop_all_traffic(self) -> None:
        """Drop arriving packets and those that the queues hold, counted as ``filtered``.

        Raises
        ------
        NotReadyError
            If the engine is closed.
        """
        self._session.set_drop_all(self.id, True)

    def allow_all_traffic(self) -> None:
        """End `drop_all_traffic`; packets that arrived earlier do not reach a queue."""
        self._session.set_drop_all(self.id, False)

    def __repr__(self) -> str:
        return f"<Port {self.name!r} at {self.address}>"


class Engine:
    """A running configuration. Several can run in one process.

    Create it with `open`. It is a context manager that closes the engine. Open engines are closed
    when the interpreter exits. In a forked child the engine is closed, while the parent's engine
    continues: start processes with the ``spawn`` method, and open engines in the process that uses
    them.

    Attributes
    ----------
    config : NetworkConfig
        The configuration with all defaults and adjustments.
    warnings : list of str
        Values of the configuration that were adjusted, and why.
    ports : tuple of Port
        In the order of the configuration.
    reorder : dict of str to ReorderPlan
        Reorder plans with flows of several ports, by name; those of one port are in `Port.reorder`.
    """

    def __init__(self, session: _native.Session, adjusted: list[str]) -> None:
        self._session = session
        self._changing = threading.Lock()  # held to change the fields of `counters`
        self.config: NetworkConfig = session.config
        self.warnings = list(dict.fromkeys(adjusted + session.warnings))
        self._counters_dtype = counters_dtype(self.config)
        self.ports = tuple(
            Port(number, interface, session)
            for number, interface in enumerate(self.config.interfaces)
        )
        self.reorder = {
            plan.name: ReorderPlan(_NO_PORT, position, plan, session)
            for position, plan in enumerate(self.config.reorder_configs)
        }

    @classmethod
    def open(cls, config: ConfigSource) -> Engine:
        """Allocate memory, configure and start an engine.

        Parameters
        ----------
        config : NetworkConfig, dict, str or Path
            As for `load_config`, or its result.

        Returns
        -------
        Engine
            A running engine. If opening fails, all resources are freed.

        Raises
        ------
        ConfigError
            If the configuration has errors.
        NotSupportedError
            If this build or this host lacks a feature that the configuration requires.
        NoFreePacketBuffersError
            If there is not enough memory or too few hugepages.
        InvalidParameterError
            If a core or an address does not exist on this host.
        DaqiriError
            If the system rejects a request, for example because a socket is in use.
        """
        read, report = read_config(config, None)
        if read is None or not report.ok:
            raise ConfigError(report)
        adjusted = [f"{problem.path}: {problem.message}" for problem in report.warnings]
        forward_log()
        return cls(_native.Session.open(read), adjusted)

    @property
    def name(self) -> str:
        """I/O engine: ``loopback``, ``socket``, ``packet``, ``dpdk`` or ``ibverbs``."""
        return "loopback" if self.config.loopback else self.config.engine

    def port(self, port: str | int) -> Port:
        """Return the port with this name, address or id.

        Raises
        ------
        InvalidParameterError
            If there is no such port.
        """
        names = {candidate.name for candidate in self.ports}
        if port not in names:
            port = next((p.id for p in self.ports if p.address == port), port)
        return _find(self.ports, port, "the engine", "port")

    def reorder_plan(self, name: str) -> ReorderPlan:
        """Return the plan with this name: ``port0/images`` of a port, ``images`` of several.

        Raises
        ------
        InvalidParameterError
            If there is no such plan.
        """
        plans = self.reorder | {
            f"{port.name}/{plan.name}": plan
            for port in self.ports
            for plan in port.reorder.values()
        }
        if name not in plans:
            known = ", ".join(map(repr, plans)) or "none"
            raise InvalidParameterError(
                f"the engine has no reorder plan {name!r}; there are {known}"
            )
        return plans[name]

    def change_flows(self, config: ConfigSource) -> None:
        """Replace the flows of the configuration while packets flow, all at once.

        Flows that keep their name keep their counters. Flows added at run time (`Port.add_flows`)
        stay before the flows of the configuration. When this returns, all packets are steered by
        the new flows. No packet is lost to the change.

        Parameters
        ----------
        config : NetworkConfig, dict, str or Path
            As for `load_config`, or its result: the engine's configuration with other ``rx.flows``.

        Raises
        ------
        ConfigError
            If the configuration has errors.
        NotSupportedError
            If the engine has to be reopened for the change: engine ``socket``; keys other than
            ``rx.flows``; another queue for a flow of a reorder plan. Nothing is changed then.
        InvalidParameterError
            If a flow has the name of one that was added at run time. Nothing is changed then.
        NotReadyError
            If the engine is closed.
        """
        wanted = self._read(config)
        with self._changing:
            self._session.change_flows(wanted)
            self.config = self._session.config
            self._counters_dtype = counters_dtype(self.config)
            for port in self.ports:
                port.config = self.config.interfaces[port.id]

    def check_flows(self, config: ConfigSource) -> None:
        """Raise the errors of `change_flows` without changing anything."""
        self._session.check_flows(self._read(config))

    @staticmethod
    def _read(config: ConfigSource) -> NetworkConfig:
        read, report = read_config(config, None)
        if read is None or not report.ok:
            raise ConfigError(report)
        return read

    def export_dma_buf(self, region: str) -> DmaBuf:
        """Return a dma-buf of a memory region of ``kind: device``, for drivers of other devices.

        Parameters
        ----------
        region : str
            Name of the memory region.

        Raises
        ------
        InvalidParameterError
            If there is no such region.
        NotSupportedError
            If the region is of another kind, or the GPU's driver cannot export it.
        NotReadyError
            If the engine is closed.
        """
        return DmaBuf(*self._session.export_dma_buf(region))

    def free_buffers(self, region: str) -> int:
        """Return the number of free buffers of a memory region.

        Parameters
        ----------
        region : str
            Name of the memory region.

        Raises
        ------
        InvalidParameterError
            If there is no such region.
        """
        return self._session.free_buffers(region)

    def snapshot(self) -> EngineSnapshot:
        """Return the current counters and levels of all parts of the engine in one call.

        Raises
        ------
        NotReadyError
            If the engine was opened by the process that this one was forked from.
        """
        return EngineSnapshot.from_json(self._session.snapshot())

    @property
    def counters(self) -> NDArray[np.void]:
        """Counters of queues and flows, and levels, copied by a thread of the engine every 0.1 s.

        For frequent reading of many counters, such as by a live display: it costs one call, and
        nothing on the threads that move packets. The numbers of one queue are consistent. All are
        at most 0.1 s old, unless the thread had to wait for a CPU. If exact numbers matter, such as
        for the balance after a run, use `RxQueue.counters`, `TxQueue.counters` or `snapshot`. For a
        closed engine, all of these return the same numbers.

        Returns
        -------
        ndarray, shape ()
            Structured, read-only, of uint64; a new array each time.
            ``time_ns`` and ``steady_ns`` are the time of the copy, see `EngineSnapshot`.
            ``counters["ports"][port]`` has the fields of `PortCounters`, which are at most a second
            old. ``counters["rx"][port][queue]`` has the fields of `RxCounters` and `QueueLevels`;
            ``counters["tx"][port][queue]`` has those of `TxCounters` and `QueueLevels`, and the
            quantiles of `TxQueueState`. Drops by reason are in ``["dropped"][reason]``.
            ``counters["flows"][port][flow]`` has the fields of `FlowCounters`, for the flows of
            the configuration;
            ``counters["reorder"][port][plan]`` those of `ReorderCounters`, and
            ``counters["plans"][plan]`` for plans with flows of several ports.

        Raises
        ------
        NotReadyError
            If the engine was opened by the process that this one was forked from.

        Examples
        --------
        >>> engine.counters["rx"]["port0"]["rx_q0"]["received"]  # doctest: +SKIP
        array(20000, dtype=uint64)
        """
        with self._changing:
            return self._session.counters().view(self._counters_dtype).reshape(())

    def connect(self, address: str, port: int, source: str | None = None) -> int:
        """Connect to a server, or (UDP) register a peer with a server's socket.

        A client is already connected to its ``remote_addr``. Further connections of a TCP client
        are re-established in the same way, see ``retry_connect_s``.

        Parameters
        ----------
        address : str
            Numeric IPv4 or IPv6 address.
        port : int
            Port, 1 to 65535.
        source : str, optional
            Local address to connect from.

        Returns
        -------
        int
            Connection id, for ``connection_id`` of `TxQueue.send` and for `RxQueue.receive_from`.

        Raises
        ------
        ConnectFailureError
            If there is no answer within 10 s, or no interface can connect to the address.
        NoSpaceAvailableError
            If the interface has 1023 TCP connections. A UDP server does not raise this: it replaces
            the peer whose last packet is the oldest.
        NotReadyError
            If the engine is closed.
        NotSupportedError
            If the engine has no connections.
        """
        return self._session.connect(address, port, source or "")

    def server_connection(self, address: str, port: int) -> int:
        """Return the connection id of the server socket at an address.

        Raises
        ------
        InvalidParameterError
            If no interface listens at this address.
        NotSupportedError
            If the engine has no connections.
        """
        return self._session.server_connection(address, port)

    def set_socket_option(
        self, connection: int, level: int, option: int, value: int | bytes
    ) -> None:
        """Set an option on a connection's socket, as setsockopt(2) does.

        It applies to the current socket: a TCP client that reconnects has the defaults.

        Parameters
        ----------
        connection : int
            Connection id; the id of a server is that of its listening (TCP) or only (UDP) socket.
        level, option : int
            Such as ``socket.IPPROTO_IP`` and ``socket.IP_TOS``.
        value : int or bytes
            A number is passed as a C ``int``.

        Raises
        ------
        InvalidParameterError
            If there is no such connection.
        GenericFailureError
            If the kernel rejects the option.
        NotReadyError
            If the connection is closed, or is not established yet.
        """
        self._session.set_socket_option(connection, level, option, option_bytes(value))

    @property
    def closed(self) -> bool:
        """Whether the engine is closed."""
        return self._session.closed

    def close(self) -> None:
        """Stop the engine. Idempotent; any thread may call it.

        Submitted packets that are due are still sent; those with a launch time in the future are
        dropped and counted as ``flushed``. Receive queues deliver the packets that they hold, and
        can be read to the end; recorders write them and complete their files. Bursts and arrays
        stay valid. A memory region, on the host or a GPU, is freed as soon as no burst, frame or
        array of it is held, whether this object still exists or not.
        """
        self._session.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_session") and not self._session.closed:
            text = f"{self!r} was dropped; close() it"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
            self._session.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Engine {self.name} {state}, ports {[port.name for port in self.ports]}>"


_Named = TypeVar("_Named", Port, RxQueue, TxQueue, Flow)


def _find(candidates: tuple[_Named, ...], wanted: str | int, owner: str, kind: str) -> _Named:
    for candidate in candidates:
        if wanted in (candidate.name, candidate.id) and not isinstance(wanted, bool):
            return candidate
    found = ", ".join(f"{candidate.name!r} ({candidate.id})" for candidate in candidates)
    raise InvalidParameterError(f"{owner} has no {kind} {wanted!r}; it has {found or 'none'}")


def capabilities() -> dict[str, str]:
    """Return the I/O engines and whether this build has them.

    Returns
    -------
    dict of str to str
        ``available`` or the reason why not, by engine.
    """
    return _native.capabilities()


def engine_facts() -> dict[str, dict[str, str]]:
    """Return what the libraries of engines are, and find on this host.

    Returns
    -------
    dict of str to dict
        By engine, such as ``dpdk``: its library's version, drivers, and network cards with what
        keeps the engine from using them. Only engines that this build has, and that tell something.
    """
    return {name: dict(facts) for name, facts in _native.engine_facts().items()}


def version() -> str:
    """Return the version of the engine, ``YYYY.MM.PATCH``."""
    return _native.version()


def cmake_dir() -> Path:
    """Return the folder of the CMake package of the engine's C++ library, for ``daqiri_DIR``."""
    return Path(_native.__file__).parent / "cmake"
