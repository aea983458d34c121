"""The checks, one module per part of a host."""

from .._check import Check
from ._cpu import cpu_governor, cpu_idle, cpu_isolation, queue_cores
from ._gpu import (
    bar1,
    gdrcopy,
    gpu_clocks,
    gpu_driver,
    gpu_persistence,
    gpu_without_root,
    gpudirect,
)
from ._memory import hugepages, memory, numa
from ._network import carrier, ip_address, mtu, physical_port
from ._nic import connectx, link_layer, nic_driver, nic_firmware, nic_settings
from ._pcie import acs, iommu, pcie_link, pcie_payload, pcie_read_request, pcie_topology
from ._storage import storage
from ._system import capabilities, engine, secure_boot, socket_buffers
from ._time import clocks

__all__ = ["CHECKS"]

CHECKS: dict[str, Check] = {
    each.name: each
    for each in (
        engine,
        nic_driver,
        connectx,
        link_layer,
        carrier,
        physical_port,
        ip_address,
        mtu,
        nic_settings,
        nic_firmware,
        pcie_payload,
        pcie_link,
        pcie_read_request,
        memory,
        hugepages,
        numa,
        cpu_isolation,
        queue_cores,
        cpu_governor,
        cpu_idle,
        gpu_driver,
        gpu_persistence,
        gpu_clocks,
        gpudirect,
        pcie_topology,
        bar1,
        acs,
        iommu,
        gdrcopy,
        gpu_without_root,
        secure_boot,
        capabilities,
        socket_buffers,
        clocks,
        storage,
    )
}
"""All checks by name, in the order of a report."""
