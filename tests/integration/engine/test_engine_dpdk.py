"""Virtual devices of DPDK: a ring that receives what it sends, and both ends of a cable."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from daqiri_ophyd.engine import (
    Burst,
    Engine,
    InvalidParameterError,
    NotSupportedError,
    PcapFile,
    RxQueue,
    check_config,
    engine_problems,
    load_config,
)

Config = dict[str, Any]
Build = Callable[..., Config]
Frames = Callable[..., NDArray[np.uint8]]
Receive = Callable[[RxQueue, int], list[Burst]]
Watch = Callable[[Engine], AbstractContextManager[None]]


@pytest.fixture
def cable_ends(packet: Build, has_dpdk: None) -> Build:
    """The configuration ``packet``, with both ends of the cable driven by DPDK."""

    def build(**keys: Any) -> Config:
        config = packet(engine="dpdk", **keys)
        for number, interface in enumerate(config["interfaces"]):
            interface["address"] = (
                f"net_af_packet{number},iface={interface['address']},"
                "framesz=9216,blocksz=36864,framecnt=4096"
            )
        return config

    return build


def test_packets_arrive_as_they_were_sent(
    dpdk: Build, made_frames: Frames, receive_all: Receive, watch: Watch
) -> None:
    sent = made_frames(20_000)
    with Engine.open(dpdk()) as engine, watch(engine):
        assert engine.name == "dpdk"
        (port,) = engine.ports
        before = port.now()
        for part in np.split(sent, 200):
            assert port.tx[0].send(part) == 100
            bursts = receive_all(port.rx[0], 100)
            assert np.array_equal(np.concatenate([burst.gather() for burst in bursts]), part)
            for burst in bursts:
                assert (burst.flow_ids == 7).all()
                assert before <= burst.timestamps[0] <= burst.timestamps[-1] <= port.now()
        assert port.tx[0].wait_sent(20)
        counters = port.rx[0].counters()
        assert (counters.received, counters.dropped_total) == (20_000, 0)
        assert port.tx[0].counters().sent_bytes == counters.received_bytes == sent.nbytes


def test_engines_come_and_go_and_their_packets_stay(
    dpdk: Build, made_frames: Frames, receive_all: Receive
) -> None:
    kept: list[tuple[NDArray[np.uint8], NDArray[np.uint8]]] = []
    for count in range(1, 20):
        sent = made_frames(count)
        with Engine.open(dpdk()) as engine:
            engine.ports[0].tx[0].send(sent)
            bursts = receive_all(engine.ports[0].rx[0], count)
            kept.append((sent[0], bursts[0][0]))
    for sent, received in kept:
        assert np.array_equal(sent, received)


def test_a_recording_has_every_packet(dpdk: Build, made_frames: Frames, tmp_path: Path) -> None:
    sent = made_frames(5000)
    with Engine.open(dpdk()) as engine:
        (port,) = engine.ports
        with port.rx[0].record(tmp_path, "run", max_packets=5000) as recorder:
            for part in np.split(sent, 50):
                port.tx[0].send(part)
            assert recorder.wait(60)
        (file,) = recorder.files()
    with PcapFile(file.path) as capture:
        assert np.array_equal(capture.gather(), sent)


@pytest.mark.root
@pytest.mark.parametrize("size", [60, 142, 1500, 9014])
def test_frames_cross_a_cable(
    cable: Any, cable_ends: Build, made_frames: Frames, receive_all: Receive, size: int
) -> None:
    sent = made_frames(1000, size - 42)
    with cable.call(Engine.open, cable_ends()) as engine:
        receiver, sender = engine.ports
        for part in np.split(sent, 20):
            assert sender.tx[0].send(part) == 50
            bursts = receive_all(receiver.rx[0], 50)
            assert np.array_equal(np.concatenate([burst.gather() for burst in bursts]), part)
        counters = receiver.rx[0].counters()
        assert (counters.received, counters.dropped_total) == (1000, 0)


def test_what_cannot_be_opened_is_named(dpdk: Build) -> None:
    config = dpdk()
    config["interfaces"][0]["address"] = "net_nothing0"
    assert check_config(config).ok
    with pytest.raises(InvalidParameterError, match="device 'net_nothing0' cannot be opened"):
        Engine.open(config)
    config["interfaces"][0]["address"] = "eth0"
    assert "or a virtual device such as net_tap0" in str(check_config(config).errors[0])


def test_times_that_a_device_does_not_have_are_refused(dpdk: Build) -> None:
    config = dpdk()
    (port,) = config["interfaces"]
    port["address"] = "net_ring0"
    for side, key, what in (
        ("rx", "hardware_timestamps", "does not stamp received packets"),
        ("tx", "accurate_send", "does not keep launch times"),
    ):
        port[side][key] = True
        # What a card has is known when it is open.
        assert check_config(config).ok
        with pytest.raises(NotSupportedError, match=f"device 'net_ring0' {what}"):
            Engine.open(config)
        del port[side][key]
    with Engine.open(config) as engine:
        assert engine.snapshot().tx[0].launch_times == "worker"


def test_a_check_finds_devices_that_the_engine_never_opens(dpdk: Build) -> None:
    def found(*addresses: str) -> list[str]:
        config = dpdk()
        (port,) = config["interfaces"]
        del port["rx"]["flows"]
        config["interfaces"] = [
            {**port, "name": f"port{i}", "address": each} for i, each in enumerate(addresses)
        ]
        return [problem.message for problem in engine_problems(load_config(config))]

    for one, other in (("net_ring0", "net_ring0"), ("01:00.0", "0000:01:00.0")):
        (text,) = found(one, other)
        assert text.startswith(
            f"interface 'port1': device '{other}' is that of interface 'port0' ('{one}')"
        )
    assert found("net_ring0", "net_ring1", "net_tap0", "net_memif0") == []
    assert "write 'net_af_packet0,iface=eth0'" in found("net_af_packet0")[0]
    assert "(role=client)" in found("net_memif0,role=server")[0]
    assert "use engine 'packet'" in found("net_af_xdp0,iface=lo")[0]
