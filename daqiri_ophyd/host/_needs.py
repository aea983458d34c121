"""Requirements of an engine's configuration on its host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Needs", "Poller", "PortNeeds", "Region"]

_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", re.IGNORECASE)
# Ethernet with a VLAN tag, IPv4 and UDP around a socket's payload.
_HEADERS = 46


@dataclass(frozen=True, slots=True)
class Poller:
    """A thread that serves a queue.

    Parameters
    ----------
    queue : str
        ``port/queue``.
    core : int or None
        Core it is pinned to; None: not pinned.
    realtime_priority : int
        0: none.
    """

    queue: str
    core: int | None
    realtime_priority: int = 0


@dataclass(frozen=True, slots=True)
class Region:
    """A memory region.

    Parameters
    ----------
    name, kind : str
        As configured.
    affinity : int
        GPU of a device region, NUMA node of any other.
    size : int
        Bytes.
    """

    name: str
    kind: str
    affinity: int
    size: int


@dataclass(frozen=True, slots=True)
class PortNeeds:
    """An interface of the configuration.

    Parameters
    ----------
    name, address : str
        As configured.
    pollers : tuple of Poller
        Threads of its queues.
    rx_queues, tx_queues : int
        Number of queues.
    frame : int
        Bytes of the largest packet its regions hold, headers included.
    buffered : int
        Bytes of the packet buffers of its receive queues.
    hardware_timestamps, accurate_send : bool
        As configured.
    receive_path : str
        As configured, on engine ``packet``.
    """

    name: str
    address: str
    pollers: tuple[Poller, ...]
    rx_queues: int
    tx_queues: int
    frame: int
    buffered: int
    hardware_timestamps: bool
    accurate_send: bool
    receive_path: str

    @property
    def pci_address(self) -> str | None:
        """Address on the PCI bus, if the port is named by it."""
        return self.address.lower() if _PCI.match(self.address) else None


@dataclass(frozen=True, slots=True)
class Needs:
    """All requirements of a configuration on a host.

    Parameters
    ----------
    given : bool
        Whether there is a configuration.
    engine : str
        ``loopback``, ``socket``, ``packet``, ``dpdk`` or ``ibverbs``; empty: no configuration.
    master_core : int or None
        Core of the housekeeping threads.
    ports : tuple of PortNeeds
        Interfaces; those of a loopback engine too.
    regions : tuple of Region
        Memory regions.
    """

    given: bool = False
    engine: str = ""
    master_core: int | None = None
    ports: tuple[PortNeeds, ...] = ()
    regions: tuple[Region, ...] = field(default=())

    @classmethod
    def of(cls, config: Mapping[str, Any] | None) -> Needs:
        """Return the requirements of a valid configuration, from `NetworkConfig.to_dict`."""
        if config is None:
            return cls()
        cfg = config.get("daqiri", config)
        cfg = cfg.get("cfg", cfg)
        regions = tuple(
            Region(r["name"], r["kind"], r["affinity"], r["num_bufs"] * r["buf_size"])
            for r in cfg.get("memory_regions", ())
        )
        buffers = {r["name"]: r for r in cfg.get("memory_regions", ())}
        ports = tuple(_port(i, cfg, buffers) for i in cfg.get("interfaces", ()))
        return cls(True, _engine(cfg), cfg.get("master_core"), ports, regions)

    @property
    def pollers(self) -> tuple[Poller, ...]:
        """Threads of all queues."""
        return tuple(poller for port in self.ports for poller in port.pollers)

    def memory(self, *kinds: str) -> int:
        """Return the bytes of all regions of these kinds."""
        return sum(region.size for region in self.regions if region.kind in kinds)


def _engine(cfg: Mapping[str, Any]) -> str:
    if cfg.get("loopback") == "sw":
        return "loopback"
    if engine := cfg.get("engine"):
        return engine
    interfaces = cfg.get("interfaces", ())
    if cfg.get("stream_type") == "raw":
        named_by_pci = any(_PCI.match(i["address"]) for i in interfaces)
        return "dpdk" if named_by_pci else "packet"
    schemes = {
        urlsplit(address).scheme
        for i in interfaces
        for key in ("local_addr", "remote_addr")
        if (address := i.get("socket_config", {}).get(key))
    }
    return "ibverbs" if schemes & {"roce", "rdma"} else "socket"


def _port(
    interface: Mapping[str, Any], cfg: Mapping[str, Any], buffers: Mapping[str, Mapping[str, Any]]
) -> PortNeeds:
    rx, tx = interface.get("rx", {}), interface.get("tx", {})
    queues = [*rx.get("queues", ()), *tx.get("queues", ())]
    pollers = tuple(
        Poller(
            f"{interface['name']}/{queue['name']}",
            core if isinstance(core := queue.get("cpu_core"), int) else None,
            queue.get("realtime_priority", 0),
        )
        for queue in queues
        if queue.get("poll_mode", "indirect") == "indirect"
    )
    frames = [
        sum(buffers[name]["buf_size"] for name in queue.get("memory_regions", ()))
        for queue in queues
    ]
    frame = max(frames, default=0)
    sockets = interface.get("socket_config", {})
    if any(str(sockets.get(key)).startswith("tcp:") for key in ("local_addr", "remote_addr")):
        # TCP splits a stream to fit the MTU.
        frame = 0
    elif payload := sockets.get("max_payload_size"):
        frame = min(frame, payload) + _HEADERS if frame else payload + _HEADERS
    own = {name for queue in rx.get("queues", ()) for name in queue.get("memory_regions", ())}
    return PortNeeds(
        name=interface["name"],
        address=str(interface.get("address", "")),
        pollers=pollers,
        rx_queues=len(rx.get("queues", ())),
        tx_queues=len(tx.get("queues", ())),
        frame=frame,
        buffered=sum(buffers[name]["num_bufs"] * buffers[name]["buf_size"] for name in own),
        hardware_timestamps=bool(rx.get("hardware_timestamps")),
        accurate_send=bool(tx.get("accurate_send")),
        receive_path=str(rx.get("receive_path", "af_packet")),
    )
