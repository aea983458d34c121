"""What the engine asks of a host: its own rules, so that a check says what the engine does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from daqiri_ophyd import _native

from ._root import FactError

__all__ = ["EngineTraits", "HostNeeds", "InterfaceNeeds", "Privilege", "available_cores"]
__all__ += ["default_hugepages", "engine_traits", "gpu_refusals", "host_needs", "hugepages_needed"]
__all__ += ["rejected_here"]


@dataclass(frozen=True, slots=True)
class Privilege:
    """A capability that the engine uses.

    Parameters
    ----------
    capability : str
        Such as ``CAP_NET_RAW``.
    use : str
        What for.
    required : bool
        Whether the engine opens only with it.
    """

    capability: str
    use: str
    required: bool


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """What an engine declares about itself.

    Parameters
    ----------
    in_memory : bool
        Whether packets stay in the memory of the process.
    has_sockets : bool
        Whether it has socket streams.
    kernel_bypass : bool
        Whether it drives the NIC itself.
    rdma_cards : bool
        Whether it drives NICs of NVIDIA only, by way of their RDMA driver.
    device_memory : bool
        Whether NICs write to the memory of a GPU.
    """

    in_memory: bool
    has_sockets: bool
    kernel_bypass: bool
    rdma_cards: bool
    device_memory: bool


@dataclass(frozen=True, slots=True)
class InterfaceNeeds:
    """What the engine asks the kernel for, on one interface; sizes in bytes, 0: none.

    Parameters
    ----------
    receive_buffer, send_buffer : int
        Of a socket.
    locked : int
        Memory that counts against RLIMIT_MEMLOCK.
    mtu : int
        Largest packet of the interface, in bytes, that the buffers of its queues call for; 0: any.
    requires_up : bool
        Whether it opens only while the network interface is up.
    link_types : list of int
        Types of network interfaces that it accepts (ARPHRD_ of linux/if_arp.h); empty: any.
    privileges : list of Privilege
        Capabilities that it uses.
    virtual_device : bool
        Whether it is a virtual device of DPDK.
    """

    receive_buffer: int
    send_buffer: int
    locked: int
    mtu: int
    requires_up: bool
    link_types: Sequence[int]
    privileges: Sequence[Privilege]
    virtual_device: bool


@dataclass(frozen=True, slots=True)
class HostNeeds:
    """What the engine asks of a host for a configuration.

    Parameters
    ----------
    engine : str
        Its name.
    refusals : list of str
        What this build, or the engine, does not have on any host.
    memory : int
        Bytes of the host's memory, with copies of packets for a GPU.
    address_space : int
        Bytes that the process maps: the memory, rings of the kernel and stacks of threads.
    staged : list of str
        Memory regions of a GPU whose packets have such copies.
    written : list of str
        Those of them that network cards write to where they can; elsewhere the engine copies.
    interfaces : dict of str to InterfaceNeeds
        By name.
    """

    engine: str
    refusals: Sequence[str]
    memory: int
    address_space: int
    staged: Sequence[str]
    written: Sequence[str]
    interfaces: Mapping[str, InterfaceNeeds]


@lru_cache(maxsize=8)
def host_needs(config: str) -> HostNeeds:
    """
    Return what a configuration, as text, asks of a host.

    Raises
    ------
    FactError
        If the configuration is not valid.
    """
    try:
        found = _native.host_needs(config)
    except ValueError as error:
        raise FactError(f"the configuration is not valid: {error}") from None
    interfaces = {}
    for name, own in found.pop("interfaces").items():
        privileges = [Privilege(*each) for each in own.pop("privileges")]
        interfaces[name] = InterfaceNeeds(**own, privileges=privileges)
    return HostNeeds(**found, interfaces=interfaces)


def rejected_here(config: str) -> list[str]:
    """
    Return what the engine rejects of a configuration on this host, as it is now.

    Raises
    ------
    FactError
        If the configuration is not valid.
    """
    try:
        return _native.rejected_here(config)
    except ValueError as error:
        raise FactError(f"the configuration is not valid: {error}") from None


def hugepages_needed(config: str, size: int) -> list[tuple[str, int, int]]:
    """
    Return region, NUMA node and number of huge pages of a size, for all regions of kind ``huge``.

    Raises
    ------
    FactError
        If the configuration is not valid.
    """
    try:
        return _native.hugepages_needed(config, size)
    except ValueError as error:
        raise FactError(f"the configuration is not valid: {error}") from None


def default_hugepages(meminfo: str, overcommitted: str) -> tuple[int, int, int]:
    """Return bytes of a huge page of the default size, their number, and how many are available.

    Parameters
    ----------
    meminfo, overcommitted : str
        Contents of ``/proc/meminfo`` and ``/proc/sys/vm/nr_overcommit_hugepages``.
    """
    return _native.hugepages_of(meminfo, overcommitted)


def available_cores() -> frozenset[int]:
    """Return the cores that threads of this process may be pinned to."""
    return frozenset(_native.available_cores())


def gpu_refusals() -> tuple[str, str]:
    """Return why this host has no memory for GPUs, and no kernels on them; empty: it has."""
    return _native.gpu_refusals()


def engine_traits(engine: str) -> EngineTraits:
    """Return what the engine with this name declares; nothing where there is none."""
    return EngineTraits(**_native.engine_traits(engine))
