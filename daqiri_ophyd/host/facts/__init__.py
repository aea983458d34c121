"""Facts about a host, each read once, at its first use."""

from __future__ import annotations

import os
from functools import cache, cached_property

from .._root import Root
from ._clock import SystemClock, read_system_clock
from ._cpu import (
    CommandLine,
    Cpu,
    IdleState,
    cpu_list,
    cpu_ranges,
    read_allowed_cpus,
    read_command_line,
    read_cpus,
    read_idle_states,
)
from ._ethtool import NicSettings, read_nic_settings
from ._firmware import read_firmware
from ._gpu import Gpu, GpuRefusals, read_gpu_refusals, read_gpus
from ._kernel import Process, kernel_version, read_modules, read_process, read_services
from ._memory import (
    DefaultPages,
    HugePages,
    Memory,
    read_default_pages,
    read_hugepages,
    read_memory,
    read_node_pages,
)
from ._network import (
    Ipv6,
    NetDevice,
    RdmaDevice,
    has_interface,
    read_addresses,
    read_interfaces,
    read_ipv6,
    read_leased,
    read_rdma,
)
from ._pci import Connection, PciDevice, bridges_between, connection, read_pci
from ._pci_names import read_pci_names
from ._storage import Drive, Volume, read_drives, read_volume

__all__ = [
    "CommandLine",
    "Connection",
    "Cpu",
    "DefaultPages",
    "Drive",
    "Facts",
    "Gpu",
    "GpuRefusals",
    "HugePages",
    "IdleState",
    "Ipv6",
    "Memory",
    "NetDevice",
    "NicSettings",
    "PciDevice",
    "Process",
    "RdmaDevice",
    "SystemClock",
    "Volume",
    "connection",
    "cpu_list",
    "cpu_ranges",
    "bridges_between",
]


class Facts:
    """A host.

    A property raises `FactError`, at every access, if its fact cannot be read.

    Parameters
    ----------
    root : path or Root
        Root of the host's file system.
    """

    def __init__(self, root: str | os.PathLike[str] | Root = "/") -> None:
        self.root = root if isinstance(root, Root) else Root(root)

    def identity(self) -> dict[str, str]:
        """Return the host's ``name``, ``kernel`` and ``product``; empty: not known."""
        return {
            "name": self.root.optional("/proc/sys/kernel/hostname"),
            "kernel": self.root.optional("/proc/sys/kernel/osrelease"),
            "product": self.product,
        }

    @cached_property
    def product(self) -> str:
        """Name of the product, from DMI or the device tree; empty: not known."""
        names = (
            self.root.optional("/sys/class/dmi/id/product_name"),
            self.root.optional("/proc/device-tree/model"),
        )
        return next(filter(None, names), "")

    @cached_property
    def kernel(self) -> tuple[int, int]:
        """Version of the kernel: major, minor."""
        return kernel_version(self.root.text("/proc/sys/kernel/osrelease"))

    @cached_property
    def command_line(self) -> CommandLine:
        """The kernel command line."""
        return read_command_line(self.root)

    @cached_property
    def modules(self) -> frozenset[str]:
        """Loaded and built-in modules."""
        return read_modules(self.root)

    @cached_property
    def process(self) -> Process:
        """Privileges and limits of this process."""
        return read_process(self.root)

    @cached_property
    def cpus(self) -> dict[int, Cpu]:
        """CPUs that are online."""
        return read_cpus(self.root)

    @cached_property
    def allowed_cpus(self) -> frozenset[int]:
        """CPUs that this process may use."""
        return read_allowed_cpus(self.root)

    @cached_property
    def services(self) -> frozenset[str]:
        """Services of interest that are running."""
        return read_services(self.root)

    @cached_property
    def anybody_loads_bpf(self) -> bool:
        """Whether programs of eBPF need no privilege."""
        return self.root.optional("/proc/sys/kernel/unprivileged_bpf_disabled") == "0"

    @cached_property
    def first_free_port(self) -> int:
        """First UDP or TCP port that needs no privilege."""
        path = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
        return self.root.integer(path) if self.root.exists(path) else 1024

    @cached_property
    def bind_any(self) -> frozenset[str]:
        """Of ``ipv4`` and ``ipv6``: whose sockets may have addresses that no interface has."""
        families = ("ipv4", "ipv6")
        path = "/proc/sys/net/{}/ip_nonlocal_bind"
        return frozenset(f for f in families if self.root.optional(path.format(f)) == "1")

    @cached_property
    def memory(self) -> Memory:
        """The main memory."""
        return read_memory(self.root)

    @cached_property
    def default_pages(self) -> DefaultPages:
        """Huge pages of the default size."""
        return read_default_pages(self.root)

    @cached_property
    def node_pages(self) -> dict[int, HugePages]:
        """Huge pages of the default size by NUMA node."""
        return read_node_pages(self.root, self.default_pages.size)

    @cached_property
    def hugepages(self) -> list[HugePages]:
        """Pools of huge pages."""
        return read_hugepages(self.root)

    @cached_property
    def pci(self) -> dict[str, PciDevice]:
        """Devices on the PCI buses, by address."""
        return read_pci(self.root)

    @cached_property
    def pci_names(self) -> dict[str, str]:
        """Names of vendors and devices on the PCI buses, by numbers such as ``15b3:1021``."""
        vendors = {f"{device.vendor:04x}" for device in self.pci.values()}
        ids = {f"{device.vendor:04x}:{device.device:04x}" for device in self.pci.values()}
        return read_pci_names(self.root, vendors | ids)

    @cached_property
    def drives(self) -> dict[str, Drive]:
        """NVMe drives, by PCI address."""
        return read_drives(self.root)

    @cached_property
    def interfaces(self) -> dict[str, NetDevice]:
        """Network interfaces by name."""
        return read_interfaces(self.root)

    def has_interface(self, name: str) -> bool:
        """Return whether there is an interface of any name; `interfaces` has plain words only."""
        return has_interface(self.root, name)

    @cached_property
    def rdma(self) -> list[RdmaDevice]:
        """NICs that the RDMA stack knows."""
        return read_rdma(self.root)

    @cached_property
    def addresses(self) -> dict[str, list[str]]:
        """IP addresses of the interfaces."""
        return read_addresses(self.root)

    @cached_property
    def ipv6(self) -> Ipv6:
        """Where IPv6 is on."""
        return read_ipv6(self.root)

    @cached_property
    def leased(self) -> frozenset[str]:
        """IP addresses with a limited lifetime, such as DHCP leases."""
        return read_leased(self.root)

    @cached_property
    def gpus(self) -> list[Gpu]:
        """NVIDIA GPUs."""
        return read_gpus(self.root)

    @cached_property
    def gpu_refusals(self) -> GpuRefusals:
        """Why the engine cannot use a GPU."""
        return read_gpu_refusals(self.root)

    @cached_property
    def clock(self) -> SystemClock:
        """The system clock."""
        return read_system_clock(self.root)

    @cache  # noqa: B019 - a host lives as long as its report
    def nic_settings(self, interface: str) -> NicSettings:
        """Return the settings of an interface's NIC."""
        return read_nic_settings(self.root, interface)

    @cache  # noqa: B019 - likewise
    def idle_states(self, cpu: int) -> list[IdleState]:
        """Return the idle states of a CPU."""
        return read_idle_states(self.root, cpu)

    @cache  # noqa: B019 - likewise
    def firmware(self, pci_address: str) -> dict[str, str]:
        """Return the firmware settings of a NIC."""
        return read_firmware(self.root, pci_address)

    def volume(self, folder: str) -> Volume:
        """Return the file system of a folder."""
        return read_volume(self.root, folder)
