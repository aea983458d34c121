"""Reorder plans on a GPU."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given

from ..engine import test_reorder_properties as on_the_cpu
from .conftest import Config, Run, loopback
from .sent_frames import PAYLOAD, SLOTS

FRAMES = 200


def with_plan(kind: str = "host_pinned", frames: str = "host_pinned") -> Config:
    """Return a loopback port with a plan on the GPU: packets have numbers of frame and slot.

    Its packets and frames are in memory of these kinds.
    """
    config = loopback(kind, num_bufs=1024)
    config["memory_regions"].append(
        {"name": "frames", "kind": frames, "num_bufs": 8, "buf_size": SLOTS * 2048}
    )
    rx = config["interfaces"][0]["rx"]
    rx["flows"] = [
        {"name": "all", "id": 1, "match": {"udp_dst": 5000}, "action": {"type": "queue", "id": 0}}
    ]

    def field(at: int) -> Config:
        return {"bit_offset": 8 * at, "bit_width": 32, "base": "udp_payload"}

    rx["reorder_configs"] = [
        {
            "name": "images",
            "reorder_type": "gpu",
            "memory_region": "frames",
            "flow_ids": [1],
            "timeout_us": 0,
            "payload_base": "udp_payload",
            "payload_byte_offset": 8,
            "method": {
                "batch_packet_number": {
                    "batch_number": field(0),
                    "packet_number": field(4),
                    "packets_per_batch": SLOTS,
                }
            },
        }
    ]
    return config


# Every seventh packet is lost; frames are compared in the order of arrival.
MAKE = f"""
import numpy as np
from daqiri_ophyd.engine import DaqiriError, Engine, ethernet
rng = np.random.default_rng(1)
data = rng.integers(0, 256, ({FRAMES}, {SLOTS}, {PAYLOAD + 8}), np.uint8)
for at in range(8):
    number = np.arange({FRAMES})[:, None] if at < 4 else np.arange({SLOTS})
    data[:, :, at] = number >> 8 * (3 - at % 4)
there = np.arange({FRAMES * SLOTS}).reshape({FRAMES}, {SLOTS}) % 7 != 3
try:
    with Engine.open({with_plan()!r}) as engine:
        port = engine.port("port")
        plan, same, taken = port.reorder["images"], 0, 0
        with plan.frames(timeout=20) as made:
            for batch in range({FRAMES}):
                sent = rng.permutation(data[batch][there[batch]])
                packets = ethernet.udp_frames(
                    sent, src_mac="02:00:00:00:00:01", dst_mac="02:00:00:00:00:02",
                    src_ip="192.0.2.1", dst_ip="192.0.2.2", src_port=4000, dst_port=5000,
                )
                assert port.tx[0].send(packets, timeout=20) == len(packets)
                while taken < batch - 1 and LOSES == 0:
                    frame = next(made)
                    wanted = np.where(there[frame.batch][:, None], data[frame.batch][:, 8:], 0)
                    same += np.array_equal(frame.data.reshape(wanted.shape), wanted)
                    taken += 1
            engine.close()
        found = plan.counters()
        print(same, found.placed, found.complete + found.incomplete, found.lost)
except DaqiriError as error:
    print(error)
"""


OPEN = """
from daqiri_ophyd.engine import DaqiriError, Engine
try:
    Engine.open({config!r}).close()
except DaqiriError as error:
    print(error)
"""

LARGE = """
import numpy as np
from daqiri_ophyd.engine import Engine, ethernet
payload = np.random.default_rng(1).integers(0, 256, {payload}, np.uint8)
(header,) = ethernet.udp_frames(
    np.zeros((1, 8), np.uint8), src_mac="02:00:00:00:00:01", dst_mac="02:00:00:00:00:02",
    src_ip="192.0.2.1", dst_ip="192.0.2.2", src_port=4000, dst_port=5000,
)
with Engine.open({config!r}) as engine:
    port = engine.port("port")
    plan = port.reorder["images"]
    with port.rx[0].record({folder!r}, max_packets=1) as recorder:
        with plan.frames(timeout=20) as made:
            port.tx[0].send([bytes(header) + payload.tobytes()])
            frame = next(made)
            same = np.array_equal(frame.data.ravel(), payload)
        recorder.wait(60)
        print(same, plan.counters().lost, recorder.snapshot().packets)
"""


MODES = """
import numpy as np
from daqiri_ophyd.engine import Engine
import sys
sys.path.insert(0, FOLDER)
from sent_frames import send
with Engine.open({config!r}) as engine:
    plan = engine.port("port").reorder["images"]
    for number, mode in enumerate(["", "wide", "", "wide", "wide", ""]):
        plan.set_mode(mode)
        with plan.frames(timeout=20) as taken:
            sent = send(engine, number).view(np.uint8)
            frame = next(taken)
            same = np.array_equal(frame.data.ravel(), sent.ravel())
            print(same, frame.batch, frame.data.dtype, end=" ")
            del frame
    counters = plan.counters()
    print(counters.complete, counters.lost)
"""


def test_modes_of_a_plan_take_turns(with_driver: Run) -> None:
    config = with_plan()
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    plan["modes"] = {"wide": {"data_types": {"input_type": "uint8", "output_type": "uint16"}}}
    config["memory_regions"][-1]["buf_size"] = SLOTS * 4096
    program = MODES.format(config=config).replace("FOLDER", repr(f"{Path(__file__).parent}"))
    said, asked = with_driver(program, ON_HOST=1)
    modes = ["uint8", "uint16", "uint8", "uint16", "uint16", "uint8"]
    assert said == " ".join(f"True {i} {kind}" for i, kind in enumerate(modes)) + " 6 0"
    assert asked.count("load") == asked.count("unload") == 2


def test_frames_are_made_by_kernels(with_driver: Run) -> None:
    said, asked = with_driver(MAKE.replace("LOSES", "0"))
    placed = int(np.count_nonzero(np.arange(FRAMES * SLOTS) % 7 != 3))
    assert said == f"{FRAMES - 2} {placed} {FRAMES} 0"
    assert asked.count("load") == asked.count("unload") == 1
    assert asked.count("pin") == asked.count("unpin") == 3


@pytest.mark.parametrize("answers", [{"LAUNCH": 719}, {"EVENT": 719}])
def test_a_gpu_that_fails_costs_counted_frames(with_driver: Run, answers: dict[str, int]) -> None:
    said, _ = with_driver(MAKE.replace("LOSES", "1"), **answers)
    same, _, _, lost = map(int, said.split())
    assert (same, lost) == (0, FRAMES)


def test_a_kernel_that_does_not_compile_is_told(with_driver: Run) -> None:
    said, asked = with_driver(MAKE.replace("LOSES", "0"), COMPILE=6)
    assert said == (
        "NVRTC 13.1 cannot compile a kernel for --gpu-architecture=sm_90 (error 6): not a program"
    )
    assert asked.count("pin") == asked.count("unpin")


def test_a_compiler_that_is_newer_than_the_driver_is_told(with_driver: Run) -> None:
    said, _ = with_driver(MAKE.replace("LOSES", "0"), DRIVER=12)
    assert (
        "NVRTC of CUDA 11.2 to 12, which the driver supports, and libnvrtc is not of that" in said
    )
    assert "libnvrtc.so.13 is from CUDA 13.1" in said
    assert said.endswith("name the folder of a pip package's libnvrtc in LD_LIBRARY_PATH")


def test_a_host_without_a_gpu_is_told(with_driver: Run) -> None:
    said, _ = with_driver(OPEN.format(config=with_plan()), GPUS=0)
    assert (
        "interface 'port': reorder config 'images' on a GPU needs CUDA, and the NVIDIA driver "
        "finds no GPU (CUDA_VISIBLE_DEVICES may hide it); set reorder_type: cpu"
    ) in said


def test_long_payloads_that_are_recorded_too(with_driver: Run, tmp_path: Path) -> None:
    payload = (5 << 20) + 16  # copied in pieces of 4 MiB
    config = with_plan()
    for region in config["memory_regions"]:
        region |= {"num_bufs": 8, "buf_size": payload + 64}
    rx, tx = (config["interfaces"][0][side] for side in ("rx", "tx"))
    for side in (rx, tx):
        side["queues"][0]["batch_size"] = 1
    # From the packet, which is longer than the UDP length field allows.
    (plan,) = rx["reorder_configs"]
    plan |= {"payload_base": "packet", "payload_byte_offset": 42 + 8}
    method = plan["method"]["batch_packet_number"]
    method["packets_per_batch"] = 1
    for field in (method["batch_number"], method["packet_number"]):
        field |= {"base": "packet", "bit_offset": 8 * 42 + field["bit_offset"]}
    said, _ = with_driver(LARGE.format(config=config, payload=payload, folder=f"{tmp_path}"))
    assert said == "True 0 1"


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["host_pinned", "device"])
@on_the_cpu.few
@given(drawn=on_the_cpu.plans(on_the_cpu.HEADERS), how=on_the_cpu.disturbances)
def test_any_layout_and_traffic_make_the_frames_of_the_reference(
    kind: str, drawn: Any, how: Config
) -> None:
    drawn[0].pop("cpu_core", None)
    maker = on_the_cpu.Maker(drawn, on_the_cpu.HEADERS)
    # On a GPU, packets have whole groups of pixels.
    assume(not maker.reference.splits)
    sent = maker.all(how)
    for run in sent:
        maker.reference.pause()
        for packet, flow in run:
            maker.reference.take(packet, flow)
    maker.reference.finish()
    config = on_the_cpu.configured(loopback(num_bufs=4096), maker.plan, on_the_cpu.HEADERS)
    maker.plan["reorder_type"] = "gpu"
    for region in config["memory_regions"]:
        of_frames = region["name"] == maker.plan["memory_region"]
        region["kind"] = kind if of_frames else "host_pinned"
    got, counts = on_the_cpu.made_by_engine(config, [[packet for packet, _ in run] for run in sent])
    assert counts == dict(maker.reference.counts)
    assert got == maker.reference.frames
