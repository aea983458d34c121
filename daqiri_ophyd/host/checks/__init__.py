"""The checks, a module per part of a host."""

from .._check import Check
from ._cpu import cpu_governor, cpu_isolation, queue_cores
from ._gpu import (
    bar1,
    gdrcopy,
    gpu_clocks,
    gpu_persistence,
    gpu_without_root,
    gpudirect,
    nvidia_peermem,
)
from ._memory import hugepages
from ._network import carrier, connectx, ip_address, link_layer, mtu, nic_driver
from ._pcie import acs, iommu, pcie_link, pcie_payload, pcie_read_request, pcie_topology
from ._system import capabilities, secure_boot, socket_buffers

__all__ = ["CHECKS"]

CHECKS: dict[str, Check] = {
    each.name: each
    for each in (
        nic_driver,
        connectx,
        link_layer,
        carrier,
        ip_address,
        gpudirect,
        nvidia_peermem,
        pcie_topology,
        pcie_payload,
        pcie_link,
        pcie_read_request,
        hugepages,
        cpu_isolation,
        queue_cores,
        cpu_governor,
        gpu_persistence,
        gpu_clocks,
        bar1,
        mtu,
        secure_boot,
        acs,
        iommu,
        gdrcopy,
        gpu_without_root,
        capabilities,
        socket_buffers,
    )
}
"""All checks by name, in the order of a report."""
