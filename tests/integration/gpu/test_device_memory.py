"""Frames in GPU memory: made there, recorded from there, and never accessed by the CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401  # its filters
import numpy as np
import pytest

from daqiri_ophyd.engine import Engine

from .conftest import PAGE, Config, Run
from .test_gpu_reorder import OPEN, PAYLOAD, SLOTS, with_plan

NUMBER = 40
SHAPE = (SLOTS, PAYLOAD)


def with_frames(payload: int = PAYLOAD, **region: Any) -> Config:
    """Return a loopback port whose frames are in a GPU's memory."""
    config = with_plan(frames="device")
    # A buffer for each frame: none is lost, however slow the disk is.
    config["memory_regions"][-1] |= {"num_bufs": NUMBER, **region}
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    plan["frame"] = {"shape": [SLOTS, payload]}
    return config


def made(payload: int = PAYLOAD) -> np.ndarray:
    """Return the sent data: frames of packets that begin with their numbers."""
    data = np.random.default_rng(1).integers(0, 256, (NUMBER, SLOTS, payload + 8), np.uint8)
    for at in range(8):
        number = np.arange(NUMBER)[:, None] if at < 4 else np.arange(SLOTS)
        data[:, :, at] = number >> 8 * (3 - at % 4)
    return data


SEND = """
import json
import time
import numpy as np
from daqiri_ophyd.engine import DaqiriError, Engine, ethernet
data = np.load(DATA)
def packets(batch):
    return ethernet.udp_frames(
        data[batch], src_mac="02:00:00:00:00:01", dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1", dst_ip="192.0.2.2", src_port=4000, dst_port=5000,
    )
"""

RECORD = (
    SEND
    + """
with Engine.open(CONFIG) as engine:
    port = engine.port("port")
    plan = port.reorder["images"]
    plan.preview()
    try:
        recorder = plan.record(FOLDER, **OPTIONS)
    except DaqiriError as error:
        print(error)
        raise SystemExit
    with recorder:
        for batch in range(len(data)):
            # Never more than the buffers that there are, and what the recorder keeps up with.
            for _ in range(20_000):
                now = recorder.snapshot()
                (region,) = (r for r in engine.snapshot().regions if r.name == "frames")
                if now.frames + now.dropped >= batch - 3 and 2 * region.free > region.buffers:
                    break
                time.sleep(0.001)
            port.tx[0].send(packets(batch), timeout=20)
        engine.close()
        recorder.wait(60)
    preview = plan.preview()
    same = preview is not None and np.array_equal(preview.data, data[preview.batch][:, 8:])
    found = recorder.snapshot()
    print(json.dumps([found.frames, found.error, found.dropped, plan.counters().lost, same]))
"""
)


def record(run: Run, tmp_path: Path, config: Config, data: Any, **options: Any) -> Any:
    """Record frames in a process with a driver; return its output and the files."""
    np.save(tmp_path / "data.npy", data)
    (tmp_path / "files").mkdir()
    answers = {name: options.pop(name) for name in [*options] if name.isupper()}
    program = RECORD.replace("CONFIG", repr(config)).replace("OPTIONS", repr(options))
    program = program.replace("DATA", repr(f"{tmp_path / 'data.npy'}"))
    said, asked = run(program.replace("FOLDER", repr(f"{tmp_path / 'files'}")), GUARD=1, **answers)
    return said, asked, sorted((tmp_path / "files").glob("*.h5"))


@pytest.mark.parametrize(
    "options",
    [
        {"writer": "buffered"},
        {"writer": "direct"},
        {"compression": "bitshuffle-lz4", "compression_threads": 2},
        {"writer": "direct", "max_frames": NUMBER, "roll_frames": 15},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
@pytest.mark.parametrize("payload", [PAYLOAD, 1024])  # frames of whole pages, too
def test_frames_in_a_gpus_memory_are_recorded(
    with_driver: Run, tmp_path: Path, options: dict[str, Any], payload: int
) -> None:
    data = made(payload)
    said, asked, files = record(with_driver, tmp_path, with_frames(payload), data, **options)
    assert json.loads(said) == [NUMBER, "", 0, 0, True]
    read = []
    for file in files:
        with h5py.File(file) as opened:
            read.append(opened["entry/data/data"][:])
    np.testing.assert_array_equal(np.concatenate(read), data[:, :, 8:])
    assert asked.count("allocate") == asked.count("free") == 1


def test_a_gpu_that_fails_ends_the_file_behind_whole_frames(
    with_driver: Run, tmp_path: Path
) -> None:
    data = made()
    said, _, files = record(with_driver, tmp_path, with_frames(), data, COPIES=9)
    whole, error, dropped, lost, _ = json.loads(said)
    assert (whole, dropped, lost) == (9, NUMBER - 9, 0)
    assert error.startswith("memory region 'frames': frames cannot be copied from GPU 0 (CUDA_")
    with h5py.File(files[0]) as opened:
        np.testing.assert_array_equal(opened["entry/data/data"][:], data[:whole, :, 8:])


def test_a_gpu_without_room_says_how_much_is_free(with_driver: Run) -> None:
    said, _ = with_driver(OPEN.format(config=with_frames()), ALLOCATE=2)
    size = NUMBER * SLOTS * 2048 + PAGE
    assert said == (
        f"memory region 'frames': GPU 0 cannot allocate {size} bytes (CUDA_ERROR_NAME: what went "
        "wrong); 1000 of its 4000 bytes are free; lower num_bufs or buf_size, or end other "
        "programs that use it"
    )


def test_a_gpu_that_is_not_there_is_named(with_driver: Run) -> None:
    said, _ = with_driver(OPEN.format(config=with_frames(affinity=2)), GPUS=2)
    assert said == (
        "memory region 'frames': affinity is 2, and the NVIDIA driver finds 2 GPUs; accepts 0 to 1"
    )


def test_another_gpu_is_used_where_the_region_names_it(with_driver: Run, tmp_path: Path) -> None:
    said, _, files = record(with_driver, tmp_path, with_frames(affinity=1), made(), GPUS=2)
    assert json.loads(said) == [NUMBER, "", 0, 0, True]
    assert len(files) == 1


def test_a_host_without_a_driver_is_told(tmp_path: Path) -> None:
    # The loader finds this first, also on a host that has one.
    (tmp_path / "libcuda.so.1").touch()
    program = f"from daqiri_ophyd.engine import Engine; Engine.open({with_frames()!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "LD_LIBRARY_PATH": f"{tmp_path}"},
        capture_output=True,
        text=True,
    )
    assert (
        "memory region 'frames': kind 'device' needs CUDA, and this host has no NVIDIA driver "
        f"({tmp_path}/libcuda.so.1: "
    ) in done.stderr


@pytest.mark.gpu
def test_a_gpus_memory_is_given_back() -> None:
    import cupy

    config = with_frames(num_bufs=4096)
    Engine.open(config).close()
    before = cupy.cuda.runtime.memGetInfo()
    for _ in range(100):
        Engine.open(config).close()
    assert cupy.cuda.runtime.memGetInfo() == before
