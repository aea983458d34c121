"""What is sent of a packet format arrives as frames of its configuration, for any format."""

import itertools
from typing import Any

import numpy as np
import pytest
import yaml
from free_ports import free_ports
from hypothesis import HealthCheck, example, given, settings
from instrument_profiles import framed, plan_in, plan_of
from packet_formats import accepted
from waiting import wait_for

from daqiri_ophyd.cli._simulate_senders import Destination, SocketSender
from daqiri_ophyd.engine import Engine, Frame, check_config
from daqiri_ophyd.simulate import (
    INSTRUMENTS,
    DescribedDetector,
    PacketFormat,
    Traffic,
    configuration_text,
)

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
    del plan_in(config)["timeout_us"]
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


def columns_of(form: PacketFormat) -> dict[str, int | list[int]]:
    """Columns of each frame: all packets have the same values."""
    packets = form.modules * form.packets

    def of_frame(value: int, column: str) -> int | list[int]:
        if column == "packets":
            return [value] * packets
        return value * packets if column == "sum" else value

    return {
        field.name: of_frame(field.value, field.column) for field in form.header if field.column
    }


def told(frame: Frame) -> dict[str, int | list[int]]:
    """Return the columns of a frame in the form of `columns_of`."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in frame.columns.items()
    }


def wait_until_counted(engine: Engine, form: PacketFormat) -> None:
    """Three frames and their leaders and trailers: they can be received before they are counted."""
    others = 3 * form.modules * (form.leaders + form.trailers)
    module = form.field("module") if form.modules_by == "field" else None
    # A header alone can end within the 32-bit word by which flows match.
    matched = module is None or (module.offset // 32 + 1) * 4 <= form.header_bytes
    expected = {"complete": 3, "left_out": others if matched else 0}
    expected["filtered"] = others - expected["left_out"]

    def counted() -> dict[str, int]:
        frames = plan_of(engine).counters()
        queues = [queue.counters() for port in engine.ports for queue in port.rx]
        filtered = sum(queue.dropped["filtered"] for queue in queues)
        return {"complete": frames.complete, "left_out": frames.left_out, "filtered": filtered}

    wait_for(lambda: counted() == expected)


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
                made = framed(chunk, detector.source_port, ports)
                assert port.tx[0].send(made, timeout=60.0) == len(made)
                for sent, frame in zip(chunk.frames, frames, strict=False):
                    assert frame.missing == 0
                    np.testing.assert_array_equal(frame.data, sent)
                    assert told(frame) == columns_of(form)
                    del frame
        wait_until_counted(engine, form)


def test_packets_without_a_required_value_are_in_no_frame() -> None:
    # A GigE Vision camera.
    header = [
        {"name": "status", "bytes": 2},
        {"name": "block", "bytes": 2, "role": "frame_number", "first": 1},
        {"name": "flags", "bits": 4},
        {"name": "format", "bits": 4, "value": 3, "required": True},
        {"name": "packet", "bytes": 3, "role": "packet_number", "first": 1},
    ]
    document = {"name": "camera", "engine": "packet", "port": 50030, "header": header}
    document |= {"frame": [480, 640], "pixels": "uint8", "payload_bytes": 1464}
    camera = INSTRUMENTS["gige-vision"]
    (chunk,) = Traffic(camera, 2)
    form = PacketFormat.from_document(document)
    with Engine.open(in_memory(configuration_of(form))) as engine:
        (port,) = engine.ports
        plan = port.reorder["images"]
        with plan.frames(timeout=60.0) as frames:
            sent = framed(chunk, 1, np.array(form.ports))
            assert port.tx[0].send(sent, timeout=60.0) == 424
            for image in chunk.frames:
                np.testing.assert_array_equal(next(frames).data, image)
        assert plan.counters().malformed == 0


def test_numbers_of_64_bits_are_whole() -> None:
    header = [
        {"name": "part", "bits": 3},
        {"name": "frame", "bytes": 8, "role": "frame_number", "first": 1},
        {"name": "packet", "bits": 13, "role": "packet_number"},
    ]
    form = PacketFormat.from_document(
        {
            **{"name": "any", "engine": "packet", "port": 5005, "header": header},
            **{"frame": [8, 8], "pixels": "uint8", "payload_bytes": 16},
        }
    )
    # Of a number that begins and ends within a byte, a plan reads what is in eight bytes.
    field, end = form.field("frame_number"), 2**59
    assert field is not None and field.most_bits == 59
    detector = DescribedDetector(form)
    (chunk,) = Traffic(detector, 2, first=end - 3)
    with Engine.open(in_memory(configuration_of(form))) as engine:
        (port,) = engine.ports
        with port.reorder["images"].frames(timeout=60.0) as frames:
            assert port.tx[0].send(framed(chunk, 1, np.array(form.ports)), timeout=60.0) == 8
            assert [next(frames).batch for _ in range(2)] == [end - 2, end - 1]


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports("udp", 4)


# Two modules, told apart by the last byte of a header: the 32-bit word with it ends after a leader.
SHORT_LEADERS = {
    **{"name": "any", "engine": "socket", "modules": 2, "port": 5005, "payload_bytes": 192},
    **{"pixels": "uint8", "frame": [384], "leaders": 2, "trailers": 1},
    "header": [
        {"name": "kind", "bytes": 1, "value": 227, "required": True},
        {"name": "packet", "bytes": 4, "role": "sequence_number"},
        {"name": "module", "bytes": 1, "role": "module"},
    ],
}


@EVERY
@given(document=accepted("socket"))
@example(document=SHORT_LEADERS)
def test_frames_of_any_format_arrive_on_a_socket(port: int, document: Document) -> None:
    count = len(PacketFormat.from_document(document).ports)
    ports = f"{port}-{port + count - 1}" if count > 1 else str(port)
    form = PacketFormat.from_document(document | {"port": ports})
    detector = DescribedDetector(form)
    with Engine.open(configuration_of(form)) as engine:
        plan = plan_of(engine)
        sender = SocketSender(Destination(f"127.0.0.1:{ports}", detector), detector, rate=0)
        try:
            with plan.frames(timeout=60.0) as frames:
                for number in range(3):
                    (chunk,) = Traffic(detector, 1, first=number)
                    # One after the other: the kernel's buffer holds one.
                    sender.send(chunk)
                    (frame,) = itertools.islice(frames, 1)
                    assert frame.missing == 0
                    np.testing.assert_array_equal(frame.data, chunk.frames[0])
                    assert told(frame) == columns_of(form)
                    del frame
        finally:
            sender.close()
        wait_until_counted(engine, form)
