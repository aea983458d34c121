"""Packets that a network card writes to GPU memory: to the engine, a device of DPDK is a card."""

import json
import subprocess
from pathlib import Path

import pytest

from .conftest import Config, Run
from .test_device_packets import split

CARD = Path(__file__).parents[3] / "native/tests/engines/packet_memory/packet_memory.cpp"

PLUGGED_IN = """
import ctypes, json, logging, os, time
from pathlib import Path
import numpy as np
from daqiri_ophyd.engine import DeviceArray, Engine, PcapFile, load_config
from daqiri_ophyd.field_test import FieldTest

driver = ctypes.CDLL("libcuda.so.1")
card = ctypes.CDLL(CARD, ctypes.RTLD_GLOBAL)
card.offer(2, True, True, 0)
card.be_card(driver.cuMemcpyHtoDAsync_v2, 0)
"""
OPENED = """
def asked(word):
    with open(os.environ["DRIVER_LOG"]) as log:
        return log.read().split().count(word)

def udp(size):
    frame = rng.integers(0, 256, size, np.uint8)
    frame[12:24] = 8, 0, 0x45, 0, (size - 14) >> 8, (size - 14) & 255, 0, 0, 0, 0, 64, 17
    return frame

lines = []
logging.basicConfig(level=logging.INFO, handlers=[logging.NullHandler()])
logging.getLogger("daqiri_ophyd.engine").addFilter(lambda record: lines.append(record.getMessage()))
rng = np.random.default_rng(1)
sent = [udp(size) for size in (60, 64, 65, 999, 1500, 128, 77, 1024)]
engine = Engine.open(CONFIG)
port = engine.port("port")
queue = port.rx[0]
"""
RECEIVE = """
port.tx[0].send(sent, timeout=20)
burst = queue.receive(timeout=20)
assert len(burst) == len(sent)
"""


@pytest.fixture(scope="session")
def card(compiled: Path, has_dpdk: None) -> Path:
    """The library that is called instead of DPDK."""
    built = compiled / "packet_memory.so"
    if not built.exists():
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "libdpdk"], capture_output=True, text=True
        )
        if flags.returncode != 0:
            pytest.skip("needs DPDK's headers (libdpdk-dev), as this build's engine dpdk")
        part = compiled / "packet_memory.part"
        command = ["g++", "-w", "-shared", "-fPIC", "-std=c++20", "-O1", "-DALLOW_EXPERIMENTAL_API"]
        command += [str(CARD), "-o", str(part), *flags.stdout.split()]
        subprocess.run(command, check=True)
        part.rename(built)
    return built


def program(card: Path, text: str, config: Config | None = None, *, is_open: bool = True) -> str:
    """Return a program with that card, and an engine that has it."""
    if config is None:
        config = split()
    config["engine"] = "dpdk"
    del config["loopback"]
    config["interfaces"][0]["address"] = "net_ring0"
    for queue in config["interfaces"][0]["rx"]["queues"]:
        queue["split_boundary"] = 64
    for region in config["memory_regions"]:
        region["num_bufs"] = 4096
    text = PLUGGED_IN + (OPENED if is_open else "") + text
    return text.replace("CONFIG", repr(config)).replace("CARD", repr(str(card)))


@pytest.mark.parametrize(("ordering", "flushes"), [(0, 1), (100, 0)])
def test_packets_are_arrays_where_the_card_has_written_them(
    with_driver: Run, card: Path, ordering: int, flushes: int
) -> None:
    said, asked = with_driver(
        program(
            card,
            RECEIVE
            + """
print(asked("flush"))
print(port.receive_path(queue.name))
print(type(burst.segment(1, 3)) is DeviceArray, burst.segment(1, 3))
whole = [np.concatenate([burst.segment(0, i), burst.segment(1, i).get()]) for i in range(8)]
print([np.array_equal(a, b) for a, b in zip(whole, sent)] == [True] * 8)
rows = burst.gather(segment=1)
print(rows.get().shape, np.array_equal(rows.get()[4], sent[4][64:]))
burst.release()
engine.close()
""",
        ),
        GUARD=1,
        CARDS=1,
        ORDERING=ordering,
    )
    # A GPU that sees writes in the order of the bus needs none.
    assert said.splitlines() == [
        str(flushes),
        "split by the device, into GPU 0",
        "True <DeviceArray: uint8 (935,), GPU 0>",
        "True",
        "(8, 1436) True",
    ]
    assert asked.count("copies-at-once") == 1


def test_a_field_test_tells_that_the_card_writes(with_driver: Run, card: Path) -> None:
    said, _ = with_driver(
        program(
            card,
            """
config = load_config(CONFIG)
with FieldTest(config, Path("found"), name="gpu", only=["flow", "split", "gpu"]) as test:
    report = test.run(lambda _: None)
print(json.dumps({step["name"]: [step["status"], step["text"]] for step in report["steps"]}))
""",
            is_open=False,
        ),
        CARDS=1,
    )
    found = json.loads(said.splitlines()[-1])
    compared = "each byte compared: port/any packet in headers and rx"
    path = "port/rx split by the device, into GPU 0"
    assert found["split"] == ["passed", f"{compared}; {path}"], found["split"]
    assert found["gpu"] == ["passed", compared], found["gpu"]


@pytest.mark.parametrize("ordering", [0, 100])
def test_files_have_packets_that_the_card_has_written(
    with_driver: Run, card: Path, tmp_path: Path, ordering: int
) -> None:
    said, _ = with_driver(
        program(
            card,
            RECEIVE
            + """
before = asked("flush")
burst.write_pcap(".", "burst")
burst.release()
print(asked("flush") > before)
with queue.record(".", "run", max_packets=8) as recorder:
    port.tx[0].send(sent, timeout=20)
    assert recorder.wait(60)
(file,) = recorder.files()
for path in ("burst.pcap", file.path):
    with PcapFile(path) as pcap:
        print([np.array_equal(a.data, b) for a, b in zip(pcap, sent, strict=True)] == [True] * 8)
engine.close()
""",
        ),
        GUARD=1,
        CARDS=1,
        ORDERING=ordering,
    )
    assert said.splitlines() == [str(ordering == 0), "True", "True"]


def test_what_a_card_writes_late_is_waited_for(with_driver: Run, card: Path) -> None:
    config = split()
    port = config["interfaces"][0]
    (first,) = port["rx"]["queues"]
    port["rx"]["queues"].append({**first, "name": "other", "id": 1})
    action = {"type": "queue", "id": 1}
    flow = {"name": "other", "id": 7, "match": {"udp_dst": 5001}, "action": action}
    port["rx"]["flows"] = [flow]
    said, _ = with_driver(
        program(
            card,
            """
card.be_card(driver.driver_write_late, 0)

def arrived(queue, sent):
    burst = queue.receive(timeout=20)
    pieces = [(burst.segment(0, i), burst.segment(1, i).get()) for i in range(len(burst))]
    whole = map(np.concatenate, pieces)
    return [np.array_equal(a, b) for a, b in zip(whole, sent, strict=True)] == [True] * len(sent)

port.tx[0].send(sent, timeout=20)
print(arrived(queue, sent))
# Options of IPv6 before UDP, which end on the GPU.
long = rng.integers(0, 256, 300, np.uint8)
long[12:21] = 0x86, 0xDD, 0x60, 0, 0, 0, 0, 300 - 54, 60
long[54:56] = 17, 1
long[70:74] = 0, 9, 5001 >> 8, 5001 & 255
for _ in range(3):
    port.tx[0].send([long], timeout=20)
    print(arrived(port.rx[1], [long]))
with queue.record(".", "run", max_packets=8) as recorder:
    port.tx[0].send(sent, timeout=20)
    assert recorder.wait(60)
(file,) = recorder.files()
with PcapFile(file.path) as pcap:
    print([np.array_equal(a.data, b) for a, b in zip(pcap, sent, strict=True)] == [True] * 8)
engine.close()
""",
            config,
        ),
        CARDS=1,
        ORDERING=0,
    )
    assert said.split() == ["True"] * 5


def test_a_gpu_that_fails_loses_packets_not_the_recorder(with_driver: Run, card: Path) -> None:
    said, _ = with_driver(
        program(
            card,
            """
def snapshot(done):
    end = time.monotonic() + 60
    while not done(state := recorder.snapshot()) and time.monotonic() < end:
        time.sleep(0.01)
    return state

with queue.record(".", "run") as recorder:
    port.tx[0].send(sent, timeout=20)
    snapshot(lambda state: state.packets == 8)
    port.tx[0].send(sent, timeout=20)
    state = snapshot(lambda state: state.dropped == 8)
    print(state.dropped, state.packets, state.running, state.error)
(file,) = recorder.files()
with PcapFile(file.path) as pcap:
    print([np.array_equal(a.data, b) for a, b in zip(pcap, sent, strict=True)] == [True] * 8)
engine.close()
""",
        ),
        CARDS=1,
        LAUNCH=719,
        GOOD_LAUNCHES=1,
    )
    first, second = said.splitlines()
    assert first.startswith("8 8 True cannot write ")
    assert first.endswith(
        "memory region 'rx': packets cannot be copied on GPU 0 (CUDA_ERROR_NAME: what went wrong); "
        "start the program again"
    )
    assert second == "True"


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"CARDS": 0}, "it has no GPUDirect RDMA"),
        (
            {"CARDS": 1, "ORDERING": 0, "FLUSHES": 2},
            "the driver cannot wait for what cards have written to it",
        ),
        ({"CARDS": 1, "SYNC_MEMOPS": 1}, "CUDA_ERROR_NAME: what went wrong"),
    ],
)
def test_packets_are_copied_to_a_gpu_that_no_card_writes_to(
    with_driver: Run, card: Path, answers: dict[str, int], why: str
) -> None:
    config = split()
    config["log_level"] = "info"
    said, _ = with_driver(
        program(
            card,
            RECEIVE
            + """
print(port.receive_path(queue.name))
print(np.array_equal(burst.segment(1, 3).get(), sent[3][64:]))
burst.release()
engine.close()
print([line for line in lines if "by way of" in line])
""",
            config,
        ),
        GUARD=1,
        **answers,
    )
    assert said.splitlines() == [
        "split by the device, staged to GPU 0",
        "True",
        f"[\"memory region 'rx': packets reach GPU 0 by way of host memory: {why}\"]",
    ]
