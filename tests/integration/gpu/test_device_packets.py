"""Packets in GPU memory: copied there on delivery, and back when they are sent."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from free_ports import free_port

from daqiri_ophyd.engine import ConfigError, Engine

from . import test_gpu_reorder as reorder
from .conftest import PAGE, Config, Run, loopback

# The start of programs: packets of different lengths, and an engine that has received them.
PRELUDE = """
import ctypes, gc, os, sys, time
import numpy as np
from daqiri_ophyd.engine import DaqiriError, DeviceArray, Engine, ethernet

def asked(word):
    with open(os.environ["DRIVER_LOG"]) as log:
        return log.read().split().count(word)

def error_of(call, *arguments, **options):
    try:
        return call(*arguments, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def free(name="rx"):
    (region,) = (r for r in engine.snapshot().regions if r.name == name)
    return region.free

rng = np.random.default_rng(1)
sent = [rng.integers(0, 256, size, np.uint8) for size in (60, 999, 1500, 61, 300, 128, 77, 1024)]
engine = Engine.open(CONFIG)
port = engine.port("port")
port.tx[0].send(sent, timeout=20)
"""
RECEIVE = """
burst = port.rx[0].receive(timeout=20)
assert len(burst) == len(sent)
"""


def program(text: str, config: Config | None = None, receive: bool = True) -> str:
    """Return a program that has an engine, and a burst of it."""
    prelude = PRELUDE + RECEIVE if receive else PRELUDE
    return prelude.replace("CONFIG", repr(config or loopback("device"))) + text


def split(rx: str = "device") -> Config:
    """Return a loopback port whose packets' first 64 bytes are in host memory."""
    config = loopback("host")
    config["memory_regions"][0]["kind"] = rx
    config["memory_regions"].append(
        {"name": "headers", "kind": "host", "num_bufs": 64, "buf_size": 64}
    )
    (queue,) = config["interfaces"][0]["rx"]["queues"]
    queue["memory_regions"] = ["headers", "rx"]
    return config


def test_packets_are_arrays_on_the_gpu(with_driver: Run) -> None:
    said, asked = with_driver(
        program(
            """
print(type(burst[0]) is DeviceArray, burst[0], burst[-1].shape, burst[0].gpu)
print([np.array_equal(a.get(), b) for a, b in zip(burst, sent)] == [True] * 8)
print([np.array_equal(a.get(), b) for a, b in zip(burst[2:4], sent[2:4])])
print(np.array_equal(burst.segment(0, 3).get(), sent[3]))
print([*burst.addresses()] == [packet.address for packet in burst])
print([*burst.lengths] == [len(packet) for packet in sent])
print(asked("launch"))
kept, whole = burst[1], free()
burst.release()
del burst
print(free() - whole, np.array_equal(kept.get(), sent[1]))
kept.address
before = asked("synchronize")
del kept
gc.collect()
print(asked("synchronize") - before, free() - whole)
engine.close()
"""
        ),
        GUARD=1,
        LAUNCHES=1,
    )
    assert said.splitlines() == [
        "True <DeviceArray: uint8 (60,), GPU 0> (1024,) 0",
        "True",
        "[True, True]",
        "True",
        "True",
        "True",
        "1",
        "0 True",
        "1 8",
    ]
    # Two regions.
    assert asked.count("allocate") == asked.count("free") == 2
    assert asked.count("pin") == asked.count("unpin") == 2


def test_packets_are_gathered_on_the_gpu(with_driver: Run) -> None:
    said, asked = with_driver(
        program(
            """
rows = np.zeros((8, 1500), np.uint8)
for row, packet in zip(rows, sent):
    row[:len(packet)] = packet
gathered = burst.gather()
print(gathered, np.array_equal(gathered.get(), rows))

class OnTheGpu:
    def __init__(self, array, **more):
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "version": 3, "strides": None,
            "data": (array.ctypes.data, False), **more,
        }

out = np.full((8, 1600), 255, np.uint8)
given = OnTheGpu(out)
print(burst.gather(given) is given, np.array_equal(out[:, :1500], rows), not out[:, 1500:].any())
print(error_of(burst.gather, np.empty((8, 1500), np.uint8)))
print(error_of(burst.gather, OnTheGpu(out[:, :1499])))
print(error_of(burst.gather, OnTheGpu(out, strides=(1600, 1))))
print(error_of(burst.gather, OnTheGpu(out, data=(out.ctypes.data, True))))
print(error_of(burst.gather, OnTheGpu(out.astype(np.int8))))
print(error_of(burst.gather, OnTheGpu(out, data=(0, False))))
print(error_of(burst.gather, OnTheGpu(out, shape=(8, -1))))
print(error_of(burst.gather, OnTheGpu(out, data=None)))
print(error_of(burst.gather, None, 1))
print(error_of(burst.gather_flat))
burst.release()
engine.close()
print(np.array_equal(gathered.get(), rows), asked("free"))
del gathered, burst
gc.collect()
print(asked("free"))
"""
        ),
    )
    wanted = (
        "; gather needs C-contiguous, writable uint8 of shape (8, 1500), or a longer last axis, "
        "on GPU 0, which has the packets"
    )
    error = "InvalidParameterError: out is "
    assert said.splitlines() == [
        "<DeviceArray: uint8 (8, 1500), GPU 0> True",
        "True True True",
        f"{error}<class 'numpy.ndarray'>{wanted}",
        f"{error}|u1 of shape (8, 1499){wanted}",
        f"{error}|u1 of shape (8, 1600), with strides{wanted}",
        f"{error}read-only |u1 of shape (8, 1600){wanted}",
        f"{error}|i1 of shape (8, 1600){wanted}",
        f"{error}not in GPU memory{wanted}",
        f"{error}<class '__main__.OnTheGpu'> with an invalid __cuda_array_interface__{wanted}",
        f"{error}<class '__main__.OnTheGpu'> with an invalid __cuda_array_interface__{wanted}",
        "InvalidParameterError: no segment 1; packets of this burst have segment 0 only",
        "NotSupportedError: segment 0 of the packets is in 'rx' on a GPU, and gather_flat is for "
        "the CPU; use gather(segment=0).get() for its packets in rows",
        "True 2",
        "3",
    ]
    assert asked.count("free") == 3


def test_an_array_of_another_gpu_takes_no_packets(with_driver: Run) -> None:
    config = loopback("device")
    config["memory_regions"][0]["affinity"] = 1
    said, _ = with_driver(
        program(
            f"""
other = Engine.open({loopback("device")!r})
other.port("port").tx[0].send(sent, timeout=20)
out = other.port("port").rx[0].receive(timeout=20).gather()
print(out.gpu, burst[0].gpu, error_of(burst.gather, out))
""",
            config,
        ),
        GPUS=2,
    )
    assert said == (
        "0 1 InvalidParameterError: out is on GPU 0; gather needs C-contiguous, writable uint8 of "
        "shape (8, 1500), or a longer last axis, on GPU 1, which has the packets"
    )


def test_kernels_are_waited_for(with_driver: Run, tmp_path: Path) -> None:
    said, _ = with_driver(
        program(
            f"""
addresses = burst.addresses()
burst.write_pcap({str(tmp_path)!r}, "x")
print(asked("synchronize"))
burst.release()
print(free() == 184, asked("synchronize"))
del addresses
gc.collect()
print(free() == 192, asked("synchronize"))
"""
        )
    )
    assert said.splitlines() == ["1", "True 1", "True 2"]


def test_receivers_do_not_wait_for_kernels_of_others(with_driver: Run, tmp_path: Path) -> None:
    said, _ = with_driver(
        program(
            f"""
import threading
os.environ["DRIVER_GATE"] = gate = {str(tmp_path / "gate")!r}
write = threading.Thread(target=burst.write_pcap, args=({str(tmp_path)!r}, "x"))
write.start()
while asked("synchronize") == 0:
    time.sleep(0.001)
port.tx[0].send(sent, timeout=20)
other = port.rx[0].receive(timeout=20)
print(len(other), np.array_equal(other.gather().get()[0, :60], sent[0]), write.is_alive())
open(gate, "w").close()
write.join()
print(os.path.getsize({str(tmp_path / "x.pcap")!r}))
"""
        )
    )
    assert said.splitlines() == ["8 True True", f"{24 + 8 * 16 + 4149}"]


def test_threads_take_packets_of_one_region(with_driver: Run) -> None:
    said, _ = with_driver(
        f"""
import threading
import numpy as np
from daqiri_ophyd.engine import Engine
sent = np.random.default_rng(1).integers(0, 256, (100, 100), np.uint8)
rows = {{row.tobytes() for row in sent}}
with Engine.open({loopback("device", 1024)!r}) as engine:
    port, done, good = engine.port("port"), threading.Event(), []
    def take():
        while burst := port.rx[0].receive(timeout=0.05) or not done.is_set():
            if burst is not True:
                with burst:
                    good.extend(row.tobytes() in rows for row in burst.gather().get())
    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        port.tx[0].send(sent, timeout=20)
    done.set()
    for thread in threads:
        thread.join()
    print(len(good), all(good))
""",
        GUARD=1,
    )
    assert said == "5000 True"


def test_payloads_are_split_from_headers(with_driver: Run, tmp_path: Path) -> None:
    said, _ = with_driver(
        program(
            f"""
print([np.array_equal(burst.segment(0, i), packet[:64]) for i, packet in enumerate(sent)])
parts = [burst.segment(1, i) for i in range(8)]
print([np.array_equal(part.get(), packet[64:]) for part, packet in zip(parts, sent)])
print(error_of(burst.gather))
print(burst.gather(segment=0).shape, burst.gather(segment=1))
folder = {str(tmp_path)!r}
burst.write_pcap(folder, "split")
""",
            split(),
        ),
        GUARD=1,
    )
    assert said.splitlines() == [
        str([True] * 8),
        str([True] * 8),
        "NotSupportedError: segment 1 of the packets is in 'rx' on a GPU, and other segments may "
        "not be; gather one at a time (segment)",
        "(8, 64) <DeviceArray: uint8 (8, 1436), GPU 0>",
    ]
    assert (tmp_path / "split.pcap").stat().st_size == 24 + 8 * 16 + sum(
        (60, 999, 1500, 61, 300, 128, 77, 1024)
    )


def test_files_have_what_the_gpu_has(with_driver: Run, tmp_path: Path) -> None:
    said, _ = with_driver(
        program(
            f"""
# As a kernel would.
ctypes.memset(burst[1].address, 7, 100)
sent[1][:100] = 7
folder = {str(tmp_path)!r}
burst.write_pcap(folder, "changed")
burst.write_raw(folder, "packet", 10)
data = open(folder + "/changed.pcap", "rb").read()
at = 24
for packet in sent:
    assert data[at + 16 : at + 16 + len(packet)] == packet.tobytes()
    at += 16 + len(packet)
print(at == len(data))
for i, packet in enumerate(sent):
    assert open(f"{{folder}}/packet_{{i}}", "rb").read() == packet[10:].tobytes()
print(type(burst[1]) is DeviceArray, np.array_equal(burst[1].get(), sent[1]))
"""
        )
    )
    assert said.splitlines() == ["True", "True True"]


def test_recorders_take_packets_before_they_are_copied(with_driver: Run, tmp_path: Path) -> None:
    said, _ = with_driver(
        program(
            f"""
port.rx[0].receive(timeout=20).release()
print(asked("launch"))
with port.rx[0].record({str(tmp_path)!r}) as recorder:
    for _ in range(8):
        port.tx[0].send(sent, timeout=20)
    while recorder.snapshot().packets < 64:
        time.sleep(0.001)
print(asked("launch"))
assert recorder.snapshot().error == ""
""",
            receive=False,
        ),
        LAUNCHES=1,
        GUARD=1,
    )
    assert said.splitlines() == ["1", "1"]
    (file,) = tmp_path.glob("*.pcap")
    assert file.stat().st_size == 24 + 8 * (8 * 16 + 4149)


def test_a_gpu_that_fails_loses_packets_by_name(with_driver: Run) -> None:
    said, _ = with_driver(
        program(
            """
print(error_of(port.rx[0].receive, timeout=20))
print(free())
port.tx[0].send(sent, timeout=20)
print(error_of(port.rx[0].receive, timeout=20))
engine.close()
""",
            receive=False,
        ),
        LAUNCH=719,
    )
    error = (
        "GenericFailureError: receive queue 'rx': 8 packets are lost: memory region 'rx': packets "
        "cannot be copied on GPU 0 (CUDA_ERROR_NAME: what went wrong); start the program again"
    )
    assert said.splitlines() == [error, "192", error]


@pytest.mark.parametrize("kind", ["host_pinned", "device"])
def test_frames_are_made_of_packets_for_a_gpu(with_driver: Run, kind: str) -> None:
    text = reorder.MAKE.replace(repr(reorder.with_plan()), repr(reorder.with_plan("device", kind)))
    text = text.replace("LOSES", "0")
    if kind == "device":
        text = text.replace("frame.data.reshape", "frame.data.get().reshape")
    said, asked = with_driver(text, GUARD=1)
    placed = int(np.count_nonzero(np.arange(reorder.FRAMES * reorder.SLOTS) % 7 != 3))
    assert said == f"{reorder.FRAMES - 2} {placed} {reorder.FRAMES} 0"
    assert asked.count("pin") == asked.count("unpin")


def test_packets_and_frames_have_regions_of_their_own() -> None:
    config = reorder.with_plan("device", "device")
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    plan["memory_region"] = "rx"
    config["memory_regions"].pop()
    config["memory_regions"][0]["buf_size"] = 65536
    with pytest.raises(ConfigError) as refused:
        Engine.open(config)
    assert (
        "interfaces[0].rx.reorder_configs[0].memory_region: found 'rx' of kind 'device', which "
        "also holds packets of a queue; accepts a separate region"
    ) in str(refused.value)


def test_queues_say_how_packets_reach_the_gpu(with_driver: Run) -> None:
    config = loopback("device")
    for region in config["memory_regions"]:
        region["affinity"] = 1
    said, asked = with_driver(
        program(
            """
print(engine.snapshot().rx[0].receive_path, port.receive_path("rx"), burst[0].gpu)
burst.release()
engine.close()
""",
            config,
        ),
        GPUS=2,
    )
    assert said == "staged to GPU 1 staged to GPU 1 1"
    # The other one is not used.
    assert asked.count("pin-for-another") == asked.count("unpin-for-another") == 2
    assert {"pin", "unpin"}.isdisjoint(asked)


def test_datagrams_are_copied_to_a_gpu(with_driver: Run) -> None:
    config = loopback()
    config["memory_regions"] = [
        {"name": "rx", "kind": "device", "num_bufs": 1024, "buf_size": 2048},
        {"name": "tx", "kind": "host", "num_bufs": 1024, "buf_size": 2048},
    ]
    del config["loopback"]
    (port,) = config.pop("interfaces")
    address = f"udp://127.0.0.1:{free_port('udp', '127.0.0.1')}"
    config |= {
        "stream_type": "socket",
        "interfaces": [
            {
                "name": "receiver",
                "address": "127.0.0.1",
                "socket_config": {"mode": "server", "local_addr": address},
                "rx": port["rx"],
            },
            {
                "name": "sender",
                "address": "127.0.0.1",
                "socket_config": {"mode": "client", "remote_addr": address},
                "tx": port["tx"],
            },
        ],
    }
    said, _ = with_driver(
        f"""
import numpy as np
from daqiri_ophyd.engine import Engine
with Engine.open({config!r}) as engine:
    sent = np.random.default_rng(1).integers(0, 256, (4, 900), np.uint8)
    receiver = engine.port("receiver")
    found = 0
    for attempt in range(100):
        assert engine.port("sender").tx[0].send(sent, timeout=20) == 4
        while burst := receiver.rx[0].receive(timeout=0.1):
            with burst:
                found += sum(any(np.array_equal(p.get(), s) for s in sent) for p in burst)
        if found >= 4:
            break
    counted = receiver.rx[0].counters()
    print(found == counted.delivered, receiver.receive_path(0))
""",
        GUARD=1,
    )
    assert said == "True staged to GPU 0"


@pytest.mark.parametrize("what", ["ALLOCATE", "PIN"])
def test_a_gpu_without_room_is_told(with_driver: Run, what: str) -> None:
    said, asked = with_driver(reorder.OPEN.format(config=loopback("device")), **{what: 2})
    size = 192 * 2048
    problem = {
        "ALLOCATE": f"GPU 0 cannot allocate {size + PAGE} bytes (CUDA_ERROR_NAME: what went "
        "wrong); 1000 of its 4000 bytes are free; lower num_bufs or buf_size, or end other "
        "programs that use it",
        "PIN": f"{size} bytes cannot be pinned for the GPU (CUDA_ERROR_NAME: what went wrong); "
        "lower num_bufs or buf_size",
    }[what]
    assert said == f"memory region 'rx': {problem}"
    assert asked.count("pin") - asked.count("unpin") == (1 if what == "PIN" else 0)


@pytest.mark.gpu
def test_a_real_gpu_has_the_packets() -> None:
    import cupy
    import torch

    rng = np.random.default_rng(1)
    sent: Any = rng.integers(0, 256, (8, 1400), np.uint8)
    with Engine.open(loopback("device")) as engine:
        port = engine.port("port")
        for _ in range(100):
            port.tx[0].send(sent, timeout=20)
            with port.rx[0].receive(timeout=20) as burst:
                assert len(burst) == 8
                for packet, wanted in zip(burst, sent, strict=True):
                    np.testing.assert_array_equal(cupy.asarray(packet).get(), wanted)
                    np.testing.assert_array_equal(torch.from_dlpack(packet).cpu(), wanted)
                # In the default stream, which gather waits for.
                out = cupy.full((8, 1500), 255, cupy.uint8)
                assert burst.gather(out) is out
                np.testing.assert_array_equal(out[:, :1400].get(), sent)
                assert not out[:, 1400:].any()
                np.testing.assert_array_equal(cupy.asarray(burst.gather()).get(), sent)
