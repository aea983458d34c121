"""Packets in GPU memory: errors, numbers beyond one launch, and two GPUs."""

from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port

from daqiri_ophyd.engine import PcapFile

from .conftest import PAGE, Config, Run, loopback
from .test_device_packets import program, split
from .test_device_packets_by_calls import transmit
from .test_gpu_reorder import with_plan


def test_copies_have_what_kernels_have_written(with_driver: Run) -> None:
    said, _ = with_driver(
        program(
            """
first = burst[0]
first.get(), burst.gather().get()
print(asked("synchronize"))
burst[1].address
print(np.array_equal(first.get(), sent[0]), asked("synchronize"))
print(np.array_equal(burst.gather().get()[2], sent[2][:1500]), asked("synchronize"))
"""
        )
    )
    assert said.splitlines() == ["0", "True 1", "True 2"]


def test_addresses_keep_the_buffers_alone(with_driver: Run) -> None:
    said, _ = with_driver(
        program(
            """
addresses = burst.addresses()
again = burst.addresses()
del burst
gc.collect()
print(free(), asked("synchronize"), ctypes.string_at(int(addresses[1]), 999) == sent[1].tobytes())
engine.close()
del again
print(asked("synchronize"))
del addresses
gc.collect()
print(free(), asked("synchronize"))
"""
        )
    )
    assert said.splitlines() == ["184 0 True", "0", "192 1"]


@pytest.mark.parametrize("count", [1022, 1023, 1024, 1025, 2100])
def test_bursts_of_more_than_one_launch(with_driver: Run, tmp_path: Path, count: int) -> None:
    config = loopback("device", 4200)
    for direction in ("rx", "tx"):
        (queue,) = config["interfaces"][0][direction]["queues"]
        queue["batch_size"] = count
    config["interfaces"][0]["rx"]["queues"][0]["timeout_us"] = 0  # full bursts
    config["memory_regions"][0]["buf_size"] = config["memory_regions"][1]["buf_size"] = 128
    said, _ = with_driver(
        f"""
import numpy as np
from daqiri_ophyd.engine import Engine
rng = np.random.default_rng(1)
sent = [rng.integers(0, 256, 60 + i % 60, np.uint8) for i in range({count})]
with Engine.open({config!r}) as engine:
    port = engine.port("port")
    for _ in range(3):
        assert port.tx[0].send(sent, timeout=20) == {count}
        with port.rx[0].receive(timeout=20) as burst:
            assert len(burst) == {count}
            for row, packet in zip(burst.gather().get(), sent):
                assert np.array_equal(row[:len(packet)], packet) and not row[len(packet):].any()
            for index in (0, 1021, -1):
                assert np.array_equal(burst[index].get(), sent[index])
            burst.write_pcap({str(tmp_path)!r}, "x")
""",
        GUARD=1,
    )
    assert said == ""
    one = 24 - 24 + sum(16 + 60 + i % 60 for i in range(count))
    assert (tmp_path / "x.pcap").stat().st_size == 24 + 3 * one


def test_a_failing_gpu_leaves_files_and_bursts_as_they_are(
    with_driver: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    said, _ = with_driver(
        program(
            f"""
print(error_of(burst.write_pcap, {str(folder)!r}, "x"))
print(error_of(burst.write_raw, {str(folder)!r}, "x"))
print(error_of(burst.gather))
print(burst.lengths.sum(), os.listdir({str(folder)!r}))
burst.release()
print(free())
"""
        ),
        LAUNCH=719,
        GOOD_LAUNCHES=1,
    )
    error = (
        "GenericFailureError: memory region 'rx': packets cannot be copied on GPU 0 "
        "(CUDA_ERROR_NAME: what went wrong); start the program again"
    )
    assert said.splitlines() == [error, error, error, "4149 []", "192"]


@pytest.mark.parametrize(
    ("answer", "remedy"),
    [
        (2, "end other programs that use the GPU's memory"),
        (701, "see the kernel log for errors of the GPU (dmesg)"),
        (700, "start the program again"),
    ],
)
def test_an_error_says_what_to_do(with_driver: Run, answer: int, remedy: str) -> None:
    said, _ = with_driver(
        program("print(error_of(port.rx[0].receive, timeout=20))", receive=False), LAUNCH=answer
    )
    assert said.endswith(f"(CUDA_ERROR_NAME: what went wrong); {remedy}")


def test_what_a_failing_gpu_does_not_send_stays_the_callers(with_driver: Run) -> None:
    fill = """
assert daqiri.set_all_packet_lengths(out, [100]) == OK
print(daqiri.send_tx_burst(out), daqiri.last_error())
daqiri.free_tx_burst(out)
daqiri.shutdown()
raise SystemExit
"""
    said, _ = with_driver(transmit(loopback("device"), 1, fill, ""), LAUNCH=719)
    assert said == (
        "Status.GENERIC_FAILURE send_tx_burst: memory region 'tx': packets cannot be copied on "
        "GPU 0 (CUDA_ERROR_NAME: what went wrong); start the program again"
    )


def two_ports() -> Config:
    """Return two loopback ports, which receive into the memory of GPUs 0 and 1."""
    config = loopback()
    (port,) = config["interfaces"]
    config["memory_regions"], config["interfaces"] = [], []
    for number in range(2):
        region = {"num_bufs": 192, "buf_size": 2048}
        config["memory_regions"] += [
            {"name": f"rx{number}", "kind": "device", "affinity": number, **region},
            {"name": f"tx{number}", "kind": "host", **region},
        ]
        interface = {**port, "name": f"port{number}"}
        for name in ("rx", "tx"):
            own = {"name": f"{name}{number}", "memory_regions": [f"{name}{number}"]}
            interface[name] = {"queues": [{**port[name]["queues"][0], **own}]}
        config["interfaces"].append(interface)
    return config


def test_a_queue_of_a_failing_gpu_keeps_nobody_from_the_others(with_driver: Run) -> None:
    said, _ = with_driver(
        f"""
import json, os, time
import daqiri_ophyd.compat as daqiri
from daqiri_ophyd.engine import running_engines
OK = daqiri.Status.SUCCESS
CONFIG = {two_ports()!r}
assert daqiri.daqiri_init_from_yaml_string(json.dumps({{"daqiri": {{"cfg": CONFIG}}}})) == OK
for port in (0, 0, 0, 1):
    out = daqiri.create_tx_burst_params()
    daqiri.set_header(out, port, 0, 8, 1)
    assert daqiri.get_tx_packet_burst(out) == OK
    assert daqiri.set_all_packet_lengths(out, [100]) == OK
    assert daqiri.send_tx_burst(out) == OK
for _ in range(20_000):
    (engine,) = (e for e in running_engines() if e.pid == os.getpid())
    if [queue.levels.ring for queue in engine.rx] == [3, 1]:
        break
    time.sleep(0.001)
print(*(daqiri.get_rx_burst()[0].name for _ in range(4)))
daqiri.shutdown()
""",
        GPUS=2,
        LAUNCH=719,
        LAUNCH_GPU=0,
    )
    assert said == "GENERIC_FAILURE SUCCESS GENERIC_FAILURE GENERIC_FAILURE"


def test_segments_are_on_two_gpus(with_driver: Run) -> None:
    config = split()
    config["memory_regions"][-1] |= {"kind": "device", "affinity": 1}
    said, _ = with_driver(
        program(
            """
print(port.receive_path("rx"), burst.segment(0, 1).gpu, burst.segment(1, 1).gpu)
print([np.array_equal(burst.segment(0, i).get(), packet[:64]) for i, packet in enumerate(sent)])
rows = burst.gather(segment=1).get()
print(np.array_equal(rows[2, :1436], sent[2][64:]), burst.gather(segment=0).gpu)
print(error_of(burst.gather_flat))
""",
            config,
        ),
        GPUS=2,
        GUARD=1,
    )
    assert said.splitlines() == [
        "staged to GPU 1, staged to GPU 0 1 0",
        str([True] * 8),
        "True 1",
        "NotSupportedError: segment 0 of the packets is in 'headers' on a GPU, and gather_flat "
        "is for the CPU; use gather(segment=0).get() for its packets in rows",
    ]


def test_a_forked_child_is_told(with_driver: Run) -> None:
    said, asked = with_driver(
        program(
            """
packet = burst[0]
packet.address
child = os.fork()
if child == 0:
    print(error_of(packet.get))
    print(error_of(burst.gather))
    print(error_of(burst.addresses))
    sys.stdout.flush()
    burst.release()
    del packet
    os._exit(0)
print(os.waitpid(child, 0)[1], asked("synchronize"))
del packet
burst.release()
"""
        )
    )
    fork = (
        "needs CUDA, and it does not work in a child made by fork of a process that has used it "
        "(multiprocessing: start method 'spawn')"
    )
    first, gathered, *rest = said.splitlines()
    assert first.startswith("NotSupportedError: the array was received before a fork")
    assert gathered == f"NotSupportedError: an array of gathered packets {fork}"
    assert rest[-1] == "0 0"
    assert asked.count("synchronize") == 1


def test_a_region_is_exported_as_a_dma_buf(with_driver: Run) -> None:
    config = loopback("device")
    config["memory_regions"][1]["kind"] = "host"
    said, asked = with_driver(
        program(
            """
with engine.export_dma_buf("rx") as exported:
    print(os.readlink(f"/proc/self/fd/{exported.fd}"), exported.size == 192 * 2048)
    print(exported.stride, exported.headroom, exported.address % os.sysconf("SC_PAGESIZE"))
    # Buffers are where it says.
    print(not any((int(a) - exported.address) % exported.stride for a in burst.addresses()))
    number = exported.fd
exported.close()
print(exported.fd, os.path.exists(f"/proc/self/fd/{number}"))
print(error_of(engine.export_dma_buf, "tx"))
print(error_of(engine.export_dma_buf, "other"))
burst.release()
engine.close()
print(error_of(engine.export_dma_buf, "rx"))
""",
            config,
        )
    )
    assert said.splitlines() == [
        "/memfd:dma-buf (deleted) True",
        "2048 0 0",
        "True",
        "-1 False",
        "NotSupportedError: memory region 'tx' is of kind 'host', and dma-bufs are of kind "
        "'device'; name one of that kind",
        "InvalidParameterError: no memory region 'other'; there are 'rx', 'tx'",
        "NotReadyError: memory region 'rx': the engine is closed; open it again",
    ]
    assert asked.count("export") == 1


def test_a_driver_that_exports_no_dma_buf_is_named(with_driver: Run) -> None:
    said, _ = with_driver(program('print(error_of(engine.export_dma_buf, "rx"))'), DMA_BUF=0)
    assert said == (
        "NotSupportedError: memory region 'rx': GPU 0 exports no dma-buf (CUDA_ERROR_NAME: what "
        "went wrong); this requires NVIDIA's open kernel modules, CUDA 11.7 and Linux 5.12"
    )


# Frames arrive in the memory of a GPU, and while a recorder has the queue, which takes them from
# the host; what the kernel lends is copied.
RAW = """
import json, os, socket, sys, time
import numpy as np
from daqiri_ophyd.engine import Engine
config, folder = CONFIG, FOLDER
sent = [np.random.default_rng(i).integers(0, 256, 60 + 20 * i, np.uint8) for i in range(32)]
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(("near", 0))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
def put():
    for frame in sent:
        frame[12:14] = 0x88, 0xB5
        wire.send(frame)
def arrive(queue):
    put()
    found = []
    while len(found) < len(sent) and (burst := queue.receive(timeout=20)):
        with burst:
            found += [packet.get() for packet in burst]
    return [np.array_equal(a, b) for a, b in zip(found, sent)] == [True] * 32
def launches():
    with open(os.environ["DRIVER_LOG"]) as log:
        return log.read().split().count("launch")
with Engine.open(config) as engine:
    queue = engine.port("port").rx[0]
    print(arrive(queue))
    before = launches()
    with queue.record(folder) as recorder:
        put()
        while recorder.snapshot().packets < len(sent):
            time.sleep(0.001)
    print(launches() - before, recorder.snapshot().error == "")
    print(arrive(queue))
    print(engine.port("port").receive_path("rx"))
"""


@pytest.mark.root
@pytest.mark.parametrize("path", ["af_packet", "af_xdp"])
def test_raw_frames_come_to_the_gpu_and_to_recorders(
    request: pytest.FixtureRequest, cable: Any, with_driver: Run, tmp_path: Path, path: str
) -> None:
    if path == "af_xdp":
        request.getfixturevalue("has_af_xdp")
    config = loopback("device", 256)
    del config["loopback"]
    config["engine"] = "packet"
    (port,) = config["interfaces"]
    del port["tx"], config["memory_regions"][1]
    port["address"] = "far"
    port["rx"]["receive_path"] = path
    text = RAW.replace("CONFIG", repr(config)).replace("FOLDER", repr(f"{tmp_path}"))
    said, _ = cable.call(lambda: with_driver(text, GUARD=1, LAUNCHES=1))
    first, recorded, again, how = said.splitlines()
    assert (first, recorded, again) == ("True", "0 True", "True")
    assert how.endswith("staged to GPU 0")
    (file,) = tmp_path.glob("*.pcap")
    assert len(PcapFile(file)) == 32


def test_streams_of_two_peers_come_to_the_gpu(with_driver: Run) -> None:
    config = loopback("device")
    del config["loopback"]
    (interface,) = config["interfaces"]
    del interface["tx"], config["memory_regions"][1]
    port = free_port("tcp", "127.0.0.1")
    config["stream_type"] = "socket"
    interface |= {
        "address": "127.0.0.1",
        "socket_config": {"mode": "server", "local_addr": f"tcp://127.0.0.1:{port}"},
    }
    said, _ = with_driver(
        f"""
import socket, time
import numpy as np
from daqiri_ophyd.engine import Engine
sent = [np.random.default_rng(i).integers(0, 256, 9000, np.uint8) for i in range(2)]
with Engine.open({config!r}) as engine:
    port = engine.port("port")
    peers = [socket.create_connection(("127.0.0.1", {port})) for _ in sent]
    for peer, data in zip(peers, sent):
        peer.sendall(data.tobytes())
    places = {{"%s:%d" % peer.getsockname(): data for peer, data in zip(peers, sent)}}
    for attempt in range(2000):
        found = [c for c in port.connections() if c.peer in places]
        if len(found) == 2:
            break
        time.sleep(0.01)
    # The second first: bursts of the other wait aside.
    for connection in sorted(found, key=lambda c: -c.id):
        parts = []
        while sum(map(len, parts)) < 9000:
            with port.rx[0].receive_from(connection.id, timeout=20) as burst:
                parts += [packet.get() for packet in burst]
        print(np.array_equal(np.concatenate(parts), places[connection.peer]))
""",
        GUARD=1,
    )
    assert said.splitlines() == ["True", "True"]


def test_frames_of_any_size_are_exported_in_whole_pages(with_driver: Run) -> None:
    config = with_plan("device", "device")
    config["memory_regions"][-1] |= {"num_bufs": 5, "buf_size": 16 * 2048 + 100}
    said, asked = with_driver(
        f"""
from daqiri_ophyd.engine import Engine
with Engine.open({config!r}) as engine, engine.export_dma_buf("frames") as exported:
    print(exported.size % {PAGE}, exported.address % {PAGE}, exported.size >= 5 * exported.stride)
"""
    )
    assert said == "0 0 True"
    assert asked.count("export") == 1
