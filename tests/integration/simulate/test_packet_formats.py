"""What is sent of a packet format arrives as frames of its configuration, for any format."""

import itertools
from typing import Any

import numpy as np
import pytest
import yaml
from free_ports import free_port
from hypothesis import HealthCheck, given, settings
from packet_formats import accepted

from daqiri_ophyd.cli._format_config import configuration_text
from daqiri_ophyd.cli._simulate_senders import Destination, SocketSender
from daqiri_ophyd.engine import Engine, check_config, ethernet
from daqiri_ophyd.simulate import DescribedDetector, PacketFormat, Traffic

Document = dict[str, Any]
EVERY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)


def configuration_of(form: PacketFormat) -> Document:
    """The configuration as it is written; only later packets close a frame."""
    text = configuration_text(form, "any-packets.yaml")
    report = check_config(text)
    assert not report.problems, f"{report.text()}\n{text}"
    config = yaml.safe_load(text)["daqiri"]["cfg"]
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    del plan["timeout_us"]
    for region in config["memory_regions"]:
        region["num_bufs"] = min(region["num_bufs"], 1024)
    return config


def in_memory(config: Document) -> Document:
    """Flows and plan of a configuration of a network interface, in memory."""
    del config["engine"]
    (interface,) = config["interfaces"]
    queue = {"name": "tx", "id": 0, "cpu_core": "any", "batch_size": 128, "memory_regions": ["tx"]}
    interface |= {"address": "loopback", "tx": {"queues": [queue]}}
    config["memory_regions"].append({**config["memory_regions"][0], "name": "tx"})
    return config | {"loopback": "sw"}


@EVERY
@given(document=accepted("packet"))
def test_frames_of_any_format_are_those_that_were_sent(document: Document) -> None:
    form = PacketFormat.from_document(document)
    detector = DescribedDetector(form)
    ports = np.array(form.ports * (form.modules // len(form.ports)))
    with Engine.open(in_memory(configuration_of(form))) as engine:
        (port,) = engine.ports
        plan = port.reorder["images"]
        assert (plan.shape, plan.dtype) == (detector.shape, detector.dtype)
        with plan.frames(timeout=60.0) as frames:
            for chunk in Traffic(detector, 3):
                made = ethernet.udp_frames(
                    chunk.packets,
                    src_mac="02:00:00:00:00:01",
                    dst_mac="02:00:00:00:00:02",
                    src_ip="192.0.2.1",
                    dst_ip="192.0.2.2",
                    src_port=detector.source_port + chunk.streams,
                    dst_port=ports[chunk.streams],
                )
                assert port.tx[0].send(made, timeout=60.0) == len(made)
                for sent, frame in zip(chunk.frames, frames, strict=False):
                    assert frame.missing == 0
                    np.testing.assert_array_equal(frame.data, sent)
                    del frame
        assert plan.counters().complete == 3


@pytest.fixture(scope="module")
def port() -> int:
    return free_port("udp")


@EVERY
@given(document=accepted("socket"))
def test_frames_of_any_format_arrive_on_a_socket(port: int, document: Document) -> None:
    form = PacketFormat.from_document(document | {"port": port})
    detector = DescribedDetector(form)
    with Engine.open(configuration_of(form)) as engine:
        plan = engine.ports[0].reorder["images"]
        sender = SocketSender(Destination(f"127.0.0.1:{port}", detector), detector, rate=0)
        try:
            with plan.frames(timeout=60.0) as frames:
                for number in range(3):
                    (chunk,) = Traffic(detector, 1, first=number)
                    # One after the other: the kernel's buffer holds one.
                    sender.send(chunk)
                    (frame,) = itertools.islice(frames, 1)
                    assert frame.missing == 0
                    np.testing.assert_array_equal(frame.data, chunk.frames[0])
                    del frame
        finally:
            sender.close()
        assert plan.counters().complete == 3
