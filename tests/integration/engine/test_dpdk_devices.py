"""The tests of packets that a port receives from itself pass on devices of several drivers."""

import contextlib
import os
import signal
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
# Packets wait in these devices, and are not lost, while the engine has no buffer.
WAIT = ["held_views_exhaust"]
# Packets may come so slowly that bursts are delivered before they are full.
SLOW = ["held_bursts_exhaust"]
# They may still be in the kernel when the engine is closed.
ON_THEIR_WAY = ["closing_the_engine_completes"]
# The longest of these frames have 8,000 bytes.
LONG = ["come_out_of_their_tunnel"]
# It does not open with buffers shorter than its frames.
SHORT_BUFFERS = ["a_consumer_that_keeps_up", "frames_longer_than_the_buffers"]
# The driver does not tell of which type the outer tag was.
TAGS = ["the_number_of_tags"]
# The kernel keeps fragments for the group of sockets, until all of a packet are there.
FRAGMENTS = ["stay_in_their_tunnel", "cannot_be_taken_out"]
LEFT_OUT = {
    "net_memif": WAIT + SLOW,
    "net_tap": WAIT + SLOW + ON_THEIR_WAY + LONG,
    "net_af_packet": WAIT + SLOW + ON_THEIR_WAY + LONG + SHORT_BUFFERS + TAGS + FRAGMENTS,
}
PROGRAM = ROOT / "build" / "native" / "native" / "test_engines"
pytestmark = pytest.mark.root


def run_in(network: Network, command: list[str], timeout: float, **variables: str) -> str:
    started = network.call(
        partial(
            subprocess.Popen,
            command,
            cwd=ROOT,
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    )
    said = None
    with started as running:
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                said = running.communicate(timeout=timeout)[0]
        finally:
            # With those that it has started, which keep the pipe open.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
        if said is None:
            said = running.communicate(timeout=10)[0]
            pytest.fail(f"not done within {timeout:g} s; it said:\n{said}")
    assert running.returncode == 0, said
    return said


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["net_tap", "net_af_packet"])
def test_the_suite_of_all_engines_passes(
    kind: str, card: Callable[..., Network], has_dpdk: None
) -> None:
    if not PROGRAM.exists():
        pytest.skip("needs the C++ tests of this checkout: run `make test`")
    network = card(mtu=1500)
    devices = "net_af_packet0,iface=near net_af_packet1,iface=far"
    if kind == "net_tap":
        devices = reflected_tap(network)
    said = run_in(
        network, [str(PROGRAM), "-#", "[#test_engine_suite]"], 280, DAQIRI_TEST_DPDK=devices
    )
    assert "All tests passed" in said


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", LEFT_OUT)
def test_the_suites_pass(
    kind: str,
    card: Callable[..., Network],
    has_dpdk: None,
    tmp_path: Path,
) -> None:
    network = card(mtu=1500)
    match kind:
        case "net_tap":
            address = reflected_tap(network)
        case "net_af_packet":
            address = reflected_cable(network)
        case _:
            address = "net_memif0"
    selected = f"dpdk and not ({' or '.join(LEFT_OUT[kind])})"
    command = [sys.executable, "-m", "pytest", "-q", "-k", selected, "--timeout=120"]
    command += ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'suites'}"]
    command += [f"--dpdk-device={address}", *(str(HERE / suite) for suite in SUITES)]
    assert " passed" in run_in(network, command, 1700)
