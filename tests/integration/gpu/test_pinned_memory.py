"""Packets in pinned host memory, which a GPU reads and writes in place."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from daqiri_ophyd.engine import Engine

from .conftest import Run, loopback

SEND = f"""
from daqiri_ophyd.engine import DaqiriError, Engine
try:
    with Engine.open({loopback()!r}) as engine:
        engine.port("port").tx[0].send([b"packet"] * 8)
        print(next(engine.port("port").rx[0].bursts(timeout=20))[0].tobytes())
except DaqiriError as error:
    print(error)
"""


def test_regions_are_pinned_and_unpinned(with_driver: Run) -> None:
    said, asked = with_driver(SEND)
    assert said == "b'packet'"
    assert asked == ["init", "retain", "pin", "pin", "unpin", "unpin"]


def test_memory_that_cannot_be_pinned_is_refused_by_name(with_driver: Run) -> None:
    said, asked = with_driver(SEND, PIN=2)
    # As large as the engine makes it.
    assert re.fullmatch(
        r"memory region 'rx': \d+ bytes cannot be pinned for the GPU \(CUDA_ERROR_NAME: what went "
        r"wrong\); lower num_bufs or buf_size",
        said,
    )
    assert asked == ["init", "retain", "pin"]


def test_a_gpu_that_has_other_addresses_is_refused(with_driver: Run) -> None:
    said, asked = with_driver(SEND, HOST_POINTER=0)
    assert said == (
        "memory region 'rx': GPU 0 cannot use pinned memory at the CPU's addresses "
        "(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM); use kind 'host' or 'huge'"
    )
    assert asked == ["init", "retain"]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (
            {"INIT": 100},
            "the NVIDIA driver cannot be initialized: CUDA_ERROR_NAME: what went wrong",
        ),
        ({"GPUS": 0}, "the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES may hide it)"),
    ],
)
def test_a_host_without_a_gpu_says_why(
    with_driver: Run, answers: dict[str, int], reason: str
) -> None:
    said, asked = with_driver(SEND, **answers)
    assert said == (
        f"memory regions 'rx', 'tx': kind 'host_pinned' needs CUDA, and {reason}; use kind 'host' "
        "or 'huge'"
    )
    assert asked == ["init"]


def test_an_old_driver_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.c").touch()
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", tmp_path / "empty.c", "-o", library], check=True)
    program = f"from daqiri_ophyd.engine import Engine; Engine.open({loopback()!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "LD_LIBRARY_PATH": f"{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "needs CUDA, and libcuda.so.1 is older than CUDA 11" in done.stderr


def test_nothing_loads_the_driver_unasked() -> None:
    program = (
        "from daqiri_ophyd.engine import Engine; import daqiri_ophyd.devices; "
        f"Engine.open({loopback('host')!r}).close(); "
        f"daqiri_ophyd.devices.make_daq({loopback('host')!r}).read(); "
        "import sys; print('libcuda' in open('/proc/self/maps').read(), 'pynvml' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False False\n"


@pytest.mark.gpu
def test_the_gpu_reads_and_writes_packets_in_place() -> None:
    import cupy

    packets = np.random.default_rng(1).integers(0, 256, (8, 1024), np.uint8)
    with Engine.open(loopback()) as engine:
        port = engine.port("port")
        port.tx[0].send(packets)
        burst = next(port.rx[0].bursts(timeout=20))
        for packet, sent in zip(burst, packets, strict=True):
            memory = cupy.cuda.UnownedMemory(packet.ctypes.data, packet.nbytes, burst, 0)
            seen = cupy.ndarray(packet.shape, cupy.uint8, cupy.cuda.MemoryPointer(memory, 0))
            assert cupy.array_equal(seen, cupy.asarray(sent))
            seen ^= 255
            cupy.cuda.get_current_stream().synchronize()
            np.testing.assert_array_equal(packet, sent ^ 255)


@pytest.mark.gpu
def test_what_was_pinned_is_given_back() -> None:
    for _ in range(100):
        Engine.open(loopback(num_bufs=4096)).close()


@pytest.mark.gpu
def test_a_hidden_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    program = f"from daqiri_ophyd.engine import Engine; Engine.open({loopback()!r})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (
        "needs CUDA, and the NVIDIA driver cannot be initialized: CUDA_ERROR_NO_DEVICE"
        in done.stderr
    )
