"""A closed engine keeps only the memory of frames and packets that are still in use."""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from ..free_ports import free_port
from .conftest import PAGE, Config, Run, loopback
from .test_device_memory import NUMBER, SEND, made, with_frames
from .test_gpu_reorder import SLOTS

FRAMES = NUMBER * SLOTS * 2048 + PAGE

HELD = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
driver.driver_bytes.restype = ctypes.c_size_t
def held():
    # Pinned, of GPUs.
    return [driver.driver_bytes(0), driver.driver_bytes(1)]
"""

TAKE = (
    HELD
    + SEND
    + """
engine = Engine.open(CONFIG)
port = engine.port("port")
plan = port.reorder["images"]
with plan.frames(timeout=20) as made:
    for batch in range(3):
        port.tx[0].send(packets(batch), timeout=20)
    taken = [next(made) for _ in range(2)]
    opened = held()
    engine.close()
    closed = held()
    last = next(made)
region = {r.name: (r.free, r.buffers) for r in engine.snapshot().regions}
same = all(np.array_equal(np.asarray(f.data.get()).ravel(), data[f.batch][:, 8:].ravel())
           for f in [*taken, last])
array = last.data
del taken, last
one = held()
del array
print(json.dumps([opened[0] > 0, opened[1], closed, region["frames"], same, one, held()]))
after = engine.snapshot()
print(json.dumps([{r.name: (r.free, r.buffers) for r in after.regions}, plan.counters().complete,
                  after.tx[0].counters.sent]))
"""
)


def run_with(run: Run, tmp_path: Path, program: str, config: Config, **answers: int) -> list[Any]:
    """Run a program that sends frames; return its output, line by line."""
    np.save(tmp_path / "data.npy", made())
    program = program.replace("CONFIG", repr(config))
    said, _ = run(program.replace("DATA", repr(f"{tmp_path / 'data.npy'}")), GUARD=1, **answers)
    return [json.loads(line) for line in said.splitlines()]


def test_a_region_is_given_back_with_the_last_frame(with_driver: Run, tmp_path: Path) -> None:
    memory, after = run_with(with_driver, tmp_path, TAKE, with_frames())
    assert memory == [True, FRAMES, [0, FRAMES], [NUMBER - 3, NUMBER], True, [0, FRAMES], [0, 0]]
    assert after == [
        {"rx": [1024, 1024], "tx": [1024, 1024], "frames": [NUMBER, NUMBER]},
        3,
        3 * SLOTS,
    ]


def test_nobody_gets_buffers_of_a_closed_engine(with_driver: Run, tmp_path: Path) -> None:
    program = """
from daqiri_ophyd.engine import NotReadyError
engine = Engine.open(CONFIG)
tx, rx = engine.port("port").tx[0], engine.port("port").rx[0]
tx.send([b"packet"] * 8)
burst = next(rx.bursts(timeout=20))
engine.close()
with_burst = held()
text = ""
try:
    tx.send([b"packet"])
except NotReadyError:
    text = "refused"
packet = burst[0]
burst = None
with_packet, same = held(), packet.tobytes() == b"packet"
del packet
print(json.dumps([with_burst == with_packet, with_packet[0] > 0, same, text, held()]))
"""
    (said,) = run_with(with_driver, tmp_path, HELD + SEND + program, loopback())
    assert said == [True, True, True, "refused", [0, 0]]


@pytest.mark.parametrize("writer", ["buffered", "cufile"])
def test_recorders_that_have_ended_hold_nothing(
    with_driver: Run, tmp_path: Path, writer: str
) -> None:
    program = f"""
engine = Engine.open(CONFIG)
port = engine.port("port")
recorder = port.reorder["images"].record({f"{tmp_path}"!r}, writer={writer!r}, max_frames=100)
for batch in range(3):
    port.tx[0].send(packets(batch), timeout=20)
engine.close()
recorder.wait(60)
print(json.dumps([recorder.snapshot().frames, recorder.snapshot().error, held()]))
"""
    answers = {"CUFILE_MAJOR": 2} if writer == "cufile" else {}
    config = with_frames(1024)
    np.save(tmp_path / "data.npy", made(1024))
    program = (HELD + SEND + program).replace("CONFIG", repr(config))
    said, _ = with_driver(
        program.replace("DATA", repr(f"{tmp_path / 'data.npy'}")), GUARD=1, **answers
    )
    assert json.loads(said) == [3, "", [0, 0]]


def sockets(protocol: Literal["tcp", "udp"]) -> Config:
    """Return a server and its client, whose packets are in pinned memory."""
    address = f"{protocol}://127.0.0.1:{free_port(protocol)}"
    config = loopback()
    (port,) = config["interfaces"]
    roles = {"server": "local_addr", "client": "remote_addr"}
    config["interfaces"] = [
        {
            **port,
            "name": mode,
            "address": "127.0.0.1",
            "socket_config": {"mode": mode, key: address},
        }
        for mode, key in roles.items()
    ]
    del config["loopback"]
    return config | {"stream_type": "socket"}


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_sockets_give_their_buffers_back(
    with_driver: Run, tmp_path: Path, protocol: Literal["tcp", "udp"]
) -> None:
    program = """
engine = Engine.open(CONFIG)
engine.port("client").tx[0].send([b"packet"] * 8, timeout=20)
burst = next(engine.port("server").rx[0].bursts(timeout=20))
burst.release()
for left in engine.port("server").rx[0].bursts(timeout=0.01):
    left.release()
opened = held()
engine.close()
for left in engine.port("server").rx[0].bursts(timeout=20):
    left.release()
print(json.dumps([opened[0] > 0, held()]))
"""
    (said,) = run_with(with_driver, tmp_path, HELD + SEND + program, sockets(protocol))
    assert said == [True, [0, 0]]
