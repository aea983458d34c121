"""RSS of a network card that engine ``dpdk`` drives: an emulated igb, which has several queues."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[2]
MODULES = CHECKOUT / "build" / "dpdk" / "native" / "daqiri-engines"
QEMU = CHECKOUT / "build" / "qemu" / "run"
pytestmark = [pytest.mark.vm, pytest.mark.timeout(700)]


def test_a_card_spreads_flows_over_the_queues_that_the_engine_predicts(
    in_guest: Callable[..., Any],
) -> None:
    if not (MODULES / "daqiri_engine_dpdk.so").exists():
        pytest.skip("needs engine dpdk in build/dpdk: run `make dpdk`")
    if not QEMU.exists():
        pytest.skip(
            "needs a QEMU that has the network card igb (8 or newer): run `make build/qemu/run`"
        )
    devices = ["-device", "intel-iommu,aw-bits=48"]
    for number in (1, 2):
        devices += ["-netdev", f"hubport,hubid=1,id=wire{number}"]
        devices += ["-device", f"pcie-root-port,id=root{number},chassis={number},slot={number}"]
        card = f"igb,bus=root{number},netdev=wire{number},mac=02:00:00:00:00:0{number},romfile="
        devices += ["-device", card]
    result = in_guest(
        Path(__file__).with_name("dpdk_rss_job.py"),
        *("vfio-pci", "vfio_iommu_type1"),
        command_line="intel_iommu=on iommu=pt",
        devices=devices,
        environment={"DAQIRI_ENGINE_PATH": str(MODULES)},
        qemu=QEMU,
    )
    assert "All tests passed" in result["suite"], result["suite"]
    assert "skipped" not in result["suite"], result["suite"]
