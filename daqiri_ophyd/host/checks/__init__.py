"""The checks, one module per part of a host."""

from .._check import Check
from ._cpu import cpu_governor, cpu_isolation, queue_cores
from ._gpu import (
    bar1,
    dma_buf,
    gdrcopy,
    gpu_clocks,
    gpu_persistence,
    gpu_without_root,
    gpudirect,
    nvidia_peermem,
)
from ._memory import hugepages, numa
from ._network import (
    carrier,
    connectx,
    ip_address,
    link_layer,
    mtu,
    nic_driver,
    nic_firmware,
    nic_settings,
)
from ._pcie import acs, iommu, pcie_link, pcie_payload, pcie_read_request, pcie_topology
from ._storage import storage
from ._system import capabilities, secure_boot, socket_buffers
from ._time import clocks

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
        dma_buf,
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
        numa,
        secure_boot,
        acs,
        iommu,
        nic_firmware,
        gdrcopy,
        gpu_without_root,
        capabilities,
        socket_buffers,
        nic_settings,
        clocks,
        storage,
    )
}
"""All checks by name, in the order of a report."""
