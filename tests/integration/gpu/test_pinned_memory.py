"""Packets in pinned host memory, which a GPU reads and writes in place."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daqiri_ophyd.engine import Engine, NotSupportedError

Config = dict[str, Any]

# What the engine needs of NVIDIA's driver. It notes what it is asked, and INIT and PIN are answers.
DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
static int note(const char* what, int result) {
  FILE* log = fopen(getenv("DRIVER_LOG"), "a");
  fprintf(log, "%s\n", what);
  fclose(log);
  return result;
}
int cuInit(unsigned flags) { (void)flags; return note("init", INIT); }
int cuGetErrorName(int e, const char** t) { *t = "CUDA_ERROR_NAME"; return e == 0; }
int cuGetErrorString(int e, const char** t) { *t = "what went wrong"; return e == 0; }
int cuDeviceGetCount(int* n) { *n = GPUS; return 0; }
int cuDevicePrimaryCtxRetain(void** c, int d) { *c = &*c; (void)d; return note("retain", 0); }
int cuCtxPushCurrent_v2(void* c) { return c == 0; }
int cuCtxPopCurrent_v2(void** c) { *c = 0; return 0; }
int cuMemHostRegister_v2(void* p, unsigned long n, unsigned f) {
  return note(p && n && f == 3 ? "pin" : "wrong", PIN);
}
int cuMemHostUnregister(void* p) { return note(p ? "unpin" : "wrong", 0); }
"""


def configuration(kind: str = "host_pinned", num_bufs: int = 64) -> Config:
    """Return a loopback port whose packets are in such memory."""

    def queue(name: str) -> Config:
        keys = {"name": name, "id": 0, "cpu_core": "any", "batch_size": 8}
        return {**keys, "memory_regions": [name]}

    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "memory_regions": [
            {"name": name, "kind": kind, "num_bufs": num_bufs, "buf_size": 2048}
            for name in ("rx", "tx")
        ],
        "interfaces": [
            {
                "name": "port",
                "address": "loopback",
                "rx": {"queues": [{**queue("rx"), "timeout_us": 1000}]},
                "tx": {"queues": [queue("tx")]},
            }
        ],
    }


def open_with_driver(folder: Path, **answers: int) -> tuple[str, list[str]]:
    """Open and close an engine in a process with such a driver: what it said, what was asked."""
    source, log = folder / "driver.c", folder / "log"
    source.write_text(DRIVER)
    log.touch()
    given = {"INIT": 0, "GPUS": 1, "PIN": 0, **answers}
    defines = [f"-D{name}={value}" for name, value in given.items()]
    library = folder / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", *defines, source, "-o", library], check=True)
    program = f"""
from daqiri_ophyd.engine import DaqiriError, Engine
try:
    with Engine.open({configuration()!r}) as engine:
        engine.port("port").tx[0].send([b"packet"] * 8)
        print(next(engine.port("port").rx[0].bursts(timeout=20))[0].tobytes())
except DaqiriError as error:
    print(error)
"""
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{folder}", "DRIVER_LOG": f"{log}"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip(), log.read_text().split()


def test_regions_are_pinned_and_unpinned(tmp_path: Path) -> None:
    said, asked = open_with_driver(tmp_path)
    assert said == "b'packet'"
    assert asked == ["init", "retain", "pin", "pin", "unpin", "unpin"]


def test_memory_that_cannot_be_pinned_is_refused_by_name(tmp_path: Path) -> None:
    said, asked = open_with_driver(tmp_path, PIN=2)
    # As large as the engine makes it.
    assert re.fullmatch(
        r"memory region 'rx': \d+ bytes cannot be pinned for the GPU \(CUDA_ERROR_NAME: what went "
        r"wrong\); lower num_bufs or buf_size",
        said,
    )
    assert asked == ["init", "retain", "pin"]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"INIT": 100}, "the NVIDIA driver does not start: CUDA_ERROR_NAME: what went wrong"),
        ({"GPUS": 0}, "the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES may hide it)"),
    ],
)
def test_a_host_without_a_gpu_says_why(
    tmp_path: Path, answers: dict[str, int], reason: str
) -> None:
    said, asked = open_with_driver(tmp_path, **answers)
    assert said == (
        f"memory regions 'rx', 'tx': kind 'host_pinned' needs CUDA, and {reason}; use kind 'host' "
        "or 'huge'"
    )
    assert asked == ["init"]


def test_an_old_driver_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.c").touch()
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", tmp_path / "empty.c", "-o", library], check=True)
    program = f"from daqiri_ophyd.engine import Engine; Engine.open({configuration()!r})"
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
        f"Engine.open({configuration('host')!r}).close(); "
        "print('libcuda' in open('/proc/self/maps').read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"


def test_device_memory_is_refused_by_name() -> None:
    with pytest.raises(NotSupportedError, match="kind 'device' needs CUDA, and this build has no"):
        Engine.open(configuration("device"))


@pytest.mark.gpu
def test_the_gpu_reads_and_writes_packets_in_place() -> None:
    import cupy

    packets = np.random.default_rng(1).integers(0, 256, (8, 1024), np.uint8)
    with Engine.open(configuration()) as engine:
        port = engine.port("port")
        port.tx[0].send(packets)
        for burst in port.rx[0].bursts(timeout=20):
            with burst:
                for packet, sent in zip(burst, packets, strict=True):
                    where = packet.ctypes.data
                    memory = cupy.cuda.UnownedMemory(where, packet.nbytes, burst, 0)
                    seen = cupy.ndarray(
                        packet.shape, cupy.uint8, cupy.cuda.MemoryPointer(memory, 0)
                    )
                    assert cupy.array_equal(seen, cupy.asarray(sent))
                    seen ^= 255
                    cupy.cuda.get_current_stream().synchronize()
                    np.testing.assert_array_equal(packet, sent ^ 255)
            break


@pytest.mark.gpu
def test_what_was_pinned_is_given_back() -> None:
    for _ in range(100):
        Engine.open(configuration(num_bufs=4096)).close()


@pytest.mark.gpu
def test_a_hidden_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    program = f"from daqiri_ophyd.engine import Engine; Engine.open({configuration()!r})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert "needs CUDA, and the NVIDIA driver does not start: CUDA_ERROR_NO_DEVICE" in done.stderr
