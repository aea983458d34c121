"""The tests of packets that a port receives from itself pass on devices of several drivers."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from dpdk_devices import reflected_cable, reflected_tap
from networks import Network

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SUITES = [
    "test_engine_accounting.py",
    "test_engine_bursts.py",
    "test_engine_flows.py",
    "test_engine_recorder.py",
    "test_engine_reorder.py",
    "test_engine_send.py",
    "test_engine_transforms.py",
    "test_frame_recorder.py",
]
pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("kind", ["net_memif", "net_tap", "net_af_packet"])
def test_the_suites_pass(
    kind: str,
    networks: Callable[[], Network],
    card: Callable[..., Network],
    has_dpdk: None,
    tmp_path: Path,
) -> None:
    if kind == "net_af_packet":
        network = card()
        address = reflected_cable(network)
    else:
        network = networks()
        address = "net_memif0" if kind == "net_memif" else reflected_tap(network)
    command = [sys.executable, "-m", "pytest", "-q", "-k", "dpdk", "--timeout=120"]
    command += ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'suites'}"]
    command += [f"--dpdk-device={address}", *(str(HERE / suite) for suite in SUITES)]
    started = network.call(
        partial(
            subprocess.Popen, command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    )
    with started as suites:
        said = suites.communicate(timeout=1700)[0].decode()
    assert suites.returncode == 0, said
