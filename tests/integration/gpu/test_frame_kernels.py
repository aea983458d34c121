"""Kernels of applications that process frames on a GPU."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from daqiri_ophyd.engine import Engine

from .conftest import Config, Run, loopback
from .sent_frames import SLOTS, send
from .test_gpu_reorder import with_plan

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "process-frames-on-the-gpu.md"
NUMBER = 6


def jungfrau_kernel() -> str:
    """Return the kernel of the guide."""
    (block,) = re.findall(r"```cuda\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return block


def jungfrau(kind: str) -> Config:
    """Return a loopback port with the plan of the guide, whose frames are in such memory."""
    config = loopback(num_bufs=1024)
    for region in config["memory_regions"]:
        region["buf_size"] = 8320
    config["memory_regions"].append(
        {"name": "frames", "kind": kind, "num_bufs": 8, "buf_size": 512 * 1024 * 4}
    )
    rx = config["interfaces"][0]["rx"]
    rx["flows"] = [
        {
            "name": "module",
            "id": 1,
            "match": {"udp_dst": 5000},
            "action": {"type": "queue", "id": 0},
        }
    ]

    def field(bit: int) -> Config:
        return {"bit_offset": bit, "bit_width": 32, "byte_order": "little", "base": "udp_payload"}

    rx["reorder_configs"] = [
        {
            "name": "images",
            "reorder_type": "gpu",
            "memory_region": "frames",
            "flow_ids": [1],
            "payload_base": "udp_payload",
            "timeout_us": 0,
            "payload_byte_offset": 48,
            "data_types": {"input_type": "uint16", "output_type": "fp32"},
            "frame": {"shape": [512, 1024], "dtype": "float32"},
            "method": {
                "batch_packet_number": {
                    "batch_number": field(0),
                    "packet_number": field(96),
                    "packets_per_batch": 128,
                }
            },
        }
    ]
    return config


# All gains, and pixels without one.
JUNGFRAU = """
import json
import time
import numpy as np
from daqiri_ophyd.engine import Engine, ethernet
from daqiri_ophyd.simulate import Jungfrau
detector = Jungfrau(modules=1)
rng = np.random.default_rng(1)
images = detector.frames(0, NUMBER, rng)
images |= rng.integers(0, 4, images.shape).astype(np.uint16) << 14
pedestal = rng.normal(1000, 20, (3, 512 * 1024)).astype(np.float32)
gain = rng.normal([[40], [-1.4], [-0.1]], 0.01, pedestal.shape).astype(np.float32)
bits = (images >> 14).reshape(NUMBER, -1)
stage = np.array([0, 1, 0, 2])[bits]
pixels = np.arange(512 * 1024)
wanted = (images.reshape(NUMBER, -1) & 0x3FFF).astype(np.float32) - pedestal[stage, pixels]
wanted /= gain[stage, pixels]
wanted[bits == 2] = np.nan
wanted = wanted.reshape(images.shape)
def packets(number):
    return ethernet.udp_frames(
        detector.packets(images[number : number + 1], number),
        src_mac="02:00:00:00:00:01", dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1", dst_ip="192.0.2.2", src_port=4000, dst_port=5000,
    )
def same(frame, number):
    # Of numbers that are not, the bits are the kernel's.
    known = ~np.isnan(wanted[number])
    return bool(
        np.array_equal(np.isnan(frame), ~known)
        and np.array_equal(frame[known].view(np.uint32), wanted[number][known].view(np.uint32))
    )
""".replace("NUMBER", str(NUMBER))

TAKE = (
    JUNGFRAU
    + """
with Engine.open(CONFIG) as engine:
    port = engine.port("port")
    plan = port.reorder["images"]
    plan.set_kernel(SOURCE, [pedestal, gain])
    with plan.frames(timeout=60) as taken:
        for number in range(len(images)):
            assert port.tx[0].send(packets(number), timeout=20) == 128
            frame = next(taken)
            assert frame.batch == number + 1 and frame.missing == 0
            assert same(frame.data, number), number
            del frame
print("bit for bit")
"""
)

RECORD = (
    JUNGFRAU
    + """
np.save(WANTED, wanted)
with Engine.open(CONFIG) as engine:
    port = engine.port("port")
    plan = port.reorder["images"]
    plan.set_kernel(SOURCE, [pedestal, gain])
    plan.preview()
    with plan.record(FOLDER) as recorder:
        for number in range(len(images)):
            assert port.tx[0].send(packets(number), timeout=20) == 128
            while recorder.snapshot().frames < number:
                time.sleep(0.001)
        engine.close()
        recorder.wait(60)
    preview = plan.preview()
    found = recorder.snapshot()
    print(json.dumps([found.frames, found.error, same(preview.data, preview.batch - 1)]))
"""
)


def filled(program: str, **values: Any) -> str:
    """Return the program with values for its names in capitals."""
    for name, value in values.items():
        program = program.replace(name, repr(value))
    return program


def test_the_kernel_of_the_guide_makes_the_bits_of_numpy(with_driver: Run) -> None:
    program = filled(TAKE, CONFIG=jungfrau("host_pinned"), SOURCE=jungfrau_kernel())
    said, asked = with_driver(program, ON_HOST=1)
    assert said == "bit for bit"
    assert asked.count("upload") == asked.count("allocate") == asked.count("free") == 2
    assert asked.count("load") == asked.count("unload") == 2
    assert "wrong" not in asked


def test_files_and_displays_have_processed_frames(with_driver: Run, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    program = filled(
        RECORD,
        CONFIG=jungfrau("device"),
        SOURCE=jungfrau_kernel(),
        FOLDER=f"{tmp_path / 'files'}",
        WANTED=f"{tmp_path / 'wanted.npy'}",
    )
    said, asked = with_driver(program, ON_HOST=1, GUARD=1)
    assert json.loads(said) == [NUMBER, "", True]
    (file,) = (tmp_path / "files").glob("*.h5")
    with h5py.File(file) as opened:
        np.testing.assert_array_equal(
            opened["entry/data/data"][:], np.load(tmp_path / "wanted.npy")
        )
    assert asked.count("allocate") == asked.count("free") == 3


@pytest.mark.gpu
def test_a_real_gpu_makes_the_bits_of_numpy() -> None:
    program = filled(TAKE, CONFIG=jungfrau("host_pinned"), SOURCE=jungfrau_kernel())
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=250
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "bit for bit\n", "")


@pytest.mark.gpu
def test_a_kernel_of_cupy_processes_frames() -> None:
    import cupy

    config = with_plan(frames="device")
    with Engine.open(config) as engine:
        plan = engine.port("port").reorder["images"]
        kernel = cupy.RawKernel(ADD.replace(" frame(", " add("), "add")
        plan.set_kernel(kernel, [cupy.full(7, 3, cupy.uint8)])
        with plan.frames(timeout=20) as taken:
            sent = send(engine, 0)
            np.testing.assert_array_equal(
                next(taken).data.get().ravel(), sent.view(np.uint8).ravel() + np.uint8(3)
            )


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["host_pinned", "device"])
def test_each_mode_has_frames_and_a_kernel_of_its_own(kind: str) -> None:
    import cupy

    config = with_plan(frames=kind)
    (written,) = config["interfaces"][0]["rx"]["reorder_configs"]
    written["modes"] = {"wide": {"data_types": {"input_type": "uint8", "output_type": "uint16"}}}
    config["memory_regions"][-1]["buf_size"] = SLOTS * 4096
    with Engine.open(config) as engine:
        plan = engine.port("port").reorder["images"]
        stream = cupy.cuda.Stream(non_blocking=True)
        plan.set_stream(stream)
        for number, mode in enumerate(["", "wide", "", "wide", "wide", ""]):
            plan.set_mode(mode)
            if number == 1:
                wide = ADD.replace("unsigned char* data", "unsigned short* data")
                plan.set_kernel(wide, [cupy.full(7, 5, cupy.uint8)])
            elif number == 2:
                plan.set_kernel(ADD, [cupy.full(7, 3, cupy.uint8)])
            with plan.frames(timeout=20) as taken:
                sent = send(engine, number).view(np.uint8).ravel()
                data = next(taken).data
                got = data.ravel() if isinstance(data, np.ndarray) else data.get().ravel()
            kernel = 5 if mode else 3 if number > 1 else 0
            wanted = sent.astype(np.uint16 if mode else np.uint8) + got.dtype.type(kernel)
            assert got.dtype == wanted.dtype
            np.testing.assert_array_equal(got, wanted)
        counters = plan.counters()
    assert (counters.complete, counters.incomplete, counters.lost) == (6, 0, 0)


ADD = """
extern "C" __global__ void frame(unsigned char* data, unsigned long long elements,
                                 const unsigned char* what) {
  const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < elements) data[i] += what[i % 7];
}
"""

SMALL = """
import threading
import time
import numpy as np
from daqiri_ophyd.engine import DaqiriError, Engine, ethernet
def packets(batch, there=16):
    data = np.zeros((16, 1008), np.uint8)
    for at in range(8):
        data[:, at] = (np.full(16, batch) if at < 4 else np.arange(16)) >> 8 * (3 - at % 4) & 255
    data[:, 8:] = batch % 100
    return ethernet.udp_frames(
        data[:there], src_mac="02:00:00:00:00:01", dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1", dst_ip="192.0.2.2", src_port=4000, dst_port=5000,
    )
"""

# A frame uses a kernel that was set before it was sent, or a later one, until none is set.
CHANGE = (
    SMALL
    + """
now, added, removing, ended = [0], {}, [], threading.Event()
def send():
    batch = 0
    while not ended.is_set():
        added[batch] = now[0]
        assert port.tx[0].send(packets(batch), timeout=20) == 16
        batch += 1
        room.acquire()
room = threading.Semaphore(4)
def take():
    latest = 0
    for frame in taken:
        room.release()
        value = np.unique(frame.data - np.uint8(frame.batch % 100))
        assert len(value) == 1, value
        seen, least = int(value[0]), added[frame.batch]
        if least == "none" or removing and seen == 0:
            assert seen == 0, seen
        else:
            assert max(least, latest) <= seen, (least, latest, seen)
            latest = seen
        have.append(seen)
have, problems = [], []
def run(function):
    try:
        function()
    except BaseException as error:
        problems.append(repr(error))
with Engine.open(CONFIG) as engine:
    port = engine.port("port")
    plan = port.reorder["images"]
    with plan.frames(timeout=5) as taken:
        threads = [threading.Thread(target=run, args=(each,)) for each in (send, take)]
        for each in threads:
            each.start()
        for number in range(1, 41):
            plan.set_kernel(SOURCE, [np.full((7,), number, np.uint8)])
            now[0] = number
            # Frames that the one before has processed may still wait.
            while number not in have and threads[1].is_alive():
                time.sleep(0.001)
        removing.append(True)
        plan.remove_kernel()
        plan.remove_kernel()
        now[0] = "none"
        before = len(have)
        while len(have) < before + 10 and not problems:
            time.sleep(0.001)
        ended.set()
        room.release()
        threads[0].join()
        engine.close()
        threads[1].join()
    plan.remove_kernel()
    try:
        plan.set_kernel(SOURCE, [np.zeros(7, np.uint8)])
    except DaqiriError as error:
        problems.append(f"{type(error).__name__}: {error}")
print(problems, set(range(41)) - set(have), have[-3:], plan.counters().lost)
"""
)


def test_kernels_are_changed_and_removed_while_frames_flow(with_driver: Run) -> None:
    program = filled(CHANGE, CONFIG=with_plan(frames="host_pinned"), SOURCE=ADD)
    said, asked = with_driver(program.replace("frame.data", "frame.data.ravel()"), ON_HOST=1)
    closed = (
        "NotReadyError: reorder plan 'images': kernel 'frame' cannot be set: the engine is closed; "
        "open it again"
    )
    assert said == f"{[closed]} set() [0, 0, 0] 0"
    assert asked.count("allocate") == asked.count("upload") == asked.count("free") == 40
    assert asked.count("load") == asked.count("unload") == 41
    # Never more than the old and the new one.
    held = np.cumsum([{"allocate": 1, "free": -1}.get(each, 0) for each in asked])
    assert held.max() == 2


LOSE = (
    SMALL
    + """
with Engine.open(CONFIG) as engine:
    port = engine.port("port")
    plan = port.reorder["images"]
    plan.set_kernel(SOURCE, [np.zeros(7, np.uint8)])
    for batch in range(5):
        assert port.tx[0].send(packets(batch, 15 if batch == 2 else 16), timeout=20)
    while plan.counters().lost < LOST:
        time.sleep(0.001)
    try:
        plan.set_kernel(SOURCE, [np.zeros(7, np.uint8)])
    except DaqiriError as error:
        print(error)
    engine.close()
    found = plan.counters()
    print(found.complete, found.incomplete, found.lost)
"""
)


def test_a_kernel_that_fails_costs_counted_frames(with_driver: Run) -> None:
    program = filled(LOSE, CONFIG=with_plan(), SOURCE=ADD)
    said, asked = with_driver(program.replace("LOST", "3"), ON_HOST=1, FRAME=719)
    assert said.splitlines() == [
        "reorder config 'images': the GPU has failed; start the program again",
        "4 1 5",
    ]
    assert asked.count("allocate") == asked.count("free") == 1
    assert with_driver(program.replace("LOST", "0"), ON_HOST=1)[0] == "4 1 0"
