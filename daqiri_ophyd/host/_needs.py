"""Requirements of an engine's configuration on its host."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ._addresses import is_multicast, pci_address
from ._engine_rules import (
    EngineTraits,
    HostNeeds,
    engine_traits,
    host_needs,
    hugepages_needed,
    rejected_here,
)
from ._root import FactError

__all__ = ["Needs", "Poller", "PortNeeds", "Region"]


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
    rx_queues : int
        Number of receive queues.
    local_port : int
        UDP or TCP port that it binds; 0: any.
    local_host : str
        IP address that it binds; empty: any.
    remote_host : str
        IP address that it sends to; empty: any.
    opens_at_once : bool
        Whether it opens only if it can bind and reach these; a TCP client tries again and again.
    joins_group : bool
        Whether its address chooses the interface of a multicast group.
    hardware_timestamps, accurate_send : bool
        As configured.
    """

    name: str
    address: str
    pollers: tuple[Poller, ...]
    rx_queues: int
    local_port: int
    local_host: str
    remote_host: str
    opens_at_once: bool
    joins_group: bool
    hardware_timestamps: bool
    accurate_send: bool

    @property
    def pci_address(self) -> str | None:
        """Address on the PCI bus, if the port is named by it."""
        return pci_address(self.address)


@dataclass(frozen=True, slots=True)
class Needs:
    """All requirements of a configuration on a host.

    Parameters
    ----------
    given : bool
        Whether there is a configuration.
    engine : str
        Its name; empty: no configuration.
    sockets : bool
        Whether the stream is one of sockets.
    master_core : int or None
        Core of the housekeeping threads.
    ports : tuple of PortNeeds
        Interfaces; those of a loopback engine too.
    regions : tuple of Region
        Memory regions.
    gpus : dict of int to str
        GPUs that it uses, and the first thing that uses each.
    gpu_plans : tuple of str
        Reorder plans that run on a GPU.
    text : str
        The configuration itself, to ask the engine about.
    """

    given: bool = False
    engine: str = ""
    sockets: bool = False
    master_core: int | None = None
    ports: tuple[PortNeeds, ...] = ()
    regions: tuple[Region, ...] = ()
    gpus: Mapping[int, str] = field(default_factory=dict)
    gpu_plans: tuple[str, ...] = ()
    text: str = ""

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
        ports = tuple(_port(i) for i in cfg.get("interfaces", ()))
        engine = "loopback" if cfg.get("loopback") == "sw" else cfg["engine"]
        plans = tuple(
            plan
            for section in (*(i.get("rx", {}) for i in cfg.get("interfaces", ())), cfg)
            for plan in section.get("reorder_configs", ())
            if plan.get("reorder_type") == "gpu"
        )
        return cls(
            given=True,
            engine=engine,
            sockets=cfg.get("stream_type") == "socket",
            master_core=cfg.get("master_core"),
            ports=ports,
            regions=regions,
            gpus=_gpus(plans, regions),
            gpu_plans=tuple(plan["name"] for plan in plans),
            # YAML has no pairs of escapes for one character.
            text=json.dumps(config, ensure_ascii=False),
        )

    @property
    def pollers(self) -> tuple[Poller, ...]:
        """Threads of all queues."""
        return tuple(poller for port in self.ports for poller in port.pollers)

    @property
    def traits(self) -> EngineTraits:
        """What the engine declares about itself."""
        return engine_traits(self.engine)

    @property
    def kernel_sockets(self) -> bool:
        """Whether packets go through sockets of the kernel."""
        return self.sockets and not self.traits.kernel_bypass

    @property
    def nic_writes_to_gpu(self) -> bool:
        """Whether NICs write to the memory of a GPU, or may; otherwise packets are copied there."""
        if not self.memory("device"):
            return False
        return self.traits.device_memory or self.copies_without_nic

    @property
    def copies_without_nic(self) -> bool:
        """Whether the engine copies packets to a GPU that NICs do not reach."""
        return bool(self._written)

    @property
    def _written(self) -> Sequence[str]:
        try:
            return self.by_engine().written
        except FactError:
            return ()

    @property
    def mapped_regions(self) -> list[Region]:
        """Regions in the memory of GPUs that NICs write to."""
        names = self._written
        return [
            region
            for region in self.regions
            if region.kind == "device" and (region.name in names or not names)
        ]

    def memory(self, *kinds: str) -> int:
        """Return the bytes of all regions of these kinds."""
        return sum(region.size for region in self.regions if region.kind in kinds)

    def by_engine(self) -> HostNeeds:
        """
        Return what the engine itself says that it needs.

        Raises
        ------
        FactError
            If the configuration is not valid.
        """
        return host_needs(self.text)

    def rejected_here(self) -> list[str]:
        """
        Return what the engine rejects on this host, which is not a recorded one.

        Raises
        ------
        FactError
            If the configuration is not valid.
        """
        return rejected_here(self.text)

    def hugepages(self, size: int) -> list[tuple[str, int, int]]:
        """Return region, NUMA node and number of huge pages of a size, as the engine takes them."""
        return hugepages_needed(self.text, size)


def _gpus(plans: Iterable[Mapping[str, Any]], regions: tuple[Region, ...]) -> dict[int, str]:
    """Return the GPUs that are used, and the first thing that uses each."""
    found: dict[int, str] = {}
    for region in regions:
        if region.kind in ("device", "host_pinned"):
            # Pinned memory is that of the first GPU.
            gpu = region.affinity if region.kind == "device" else 0
            found.setdefault(gpu, f"memory region {region.name!r} of kind {region.kind}")
    devices = {region.name: region.affinity for region in regions if region.kind == "device"}
    for plan in plans:
        gpu = devices.get(plan["memory_region"], 0)
        found.setdefault(gpu, f"reorder config {plan['name']!r}")
    return found


def _port(interface: Mapping[str, Any]) -> PortNeeds:
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
    sockets = interface.get("socket_config", {})
    local, remote = (urlsplit(str(sockets.get(key, ""))) for key in ("local_addr", "remote_addr"))
    hosts = [each.hostname or "" for each in (local, remote) if each.scheme == "udp"]
    return PortNeeds(
        name=interface["name"],
        address=str(interface.get("address", "")),
        pollers=pollers,
        rx_queues=len(rx.get("queues", ())),
        local_port=local.port or 0,
        local_host=local.hostname or "",
        remote_host="" if sockets.get("mode") == "server" else remote.hostname or "",
        opens_at_once="udp" in (local.scheme, remote.scheme) or sockets.get("mode") == "server",
        joins_group=any(is_multicast(host) and "%" not in host for host in hosts),
        hardware_timestamps=bool(rx.get("hardware_timestamps")),
        accurate_send=bool(tx.get("accurate_send")),
    )
