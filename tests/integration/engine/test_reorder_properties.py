"""Reorder plans over random layouts and disturbed packets, against a slow reference.

Frames have to be equal to the last byte, and counters to the last packet.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from daqiri_ophyd.engine import Engine, ethernet

from .reorder_reference import Made, Reference, bits_of, converted, write

Config = dict[str, Any]
Build = Callable[..., Config]
Bytes = NDArray[np.uint8]

HEADERS = 42
PORT = 5000
ROOM = 20
"""Bytes of a packet for its fields."""

FLOATS = ["fp16", "bf16", "fp32", "fp64"]
SIGNED, UNSIGNED = ["int4", "int8", "int16", "int32"], ["uint8", "uint16", "uint32"]
WIDER = [(a, b) for a in SIGNED for b in SIGNED[1:] if bits_of(a) <= bits_of(b)]
WIDER += [(a, b) for a in UNSIGNED for b in UNSIGNED if bits_of(a) <= bits_of(b)]
WIDER += [(a, b) for a in UNSIGNED for b in SIGNED if bits_of(a) < bits_of(b)]
CONVERSIONS = WIDER + [(a, b) for a in SIGNED + UNSIGNED for b in FLOATS]

few = settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
fewer = settings(few, max_examples=60)
many = settings(few, max_examples=3000)

integers = st.integers


@st.composite
def fields(draw: st.DrawFn, *least: int) -> list[Config]:
    """Draw fields of at least so many bits each, anywhere in the given bits."""
    at, made = 0, []
    for i, bits in enumerate(least):
        # The bits that remain for this field and the following ones.
        room = ROOM * 8 * (i + 1) // len(least) - at
        width = draw(integers(bits, 32) | integers(bits, min(bits + 4, 32)))
        little = draw(st.booleans())
        if little:
            width = -(-width // 8) * 8
            at = -(-at // 8) * 8
        gap = draw(integers(0, (room - 8 - width) // 8)) * 8 if little else 0
        gap = gap if little else draw(integers(0, room - 8 - width))
        made.append(
            {
                "bit_offset": at + gap,
                "bit_width": width,
                "byte_order": "little" if little else "big",
                "base": draw(st.sampled_from(["packet", "udp_payload"])),
            }
        )
        at += gap + width
    return made


@st.composite
def methods(draw: st.DrawFn, flows: int, element: int, apart: bool) -> tuple[Config, int, int]:
    """Draw a method, the packets of a batch, and elements of a packet (0: they vary)."""
    name = draw(
        st.sampled_from(
            ["seq_batch_number", "seq_packets_per_batch", "batch_packet_number"]
            + ([] if apart else ["batch_byte_offset"])
        )
    )
    elements = draw(integers(1, 40))
    if name == "batch_byte_offset":
        size = draw(integers(2, 120)) * element
        batch, offset = draw(fields(1, size.bit_length()))
        keys = {"batch_number": batch, "byte_offset": offset, "batch_bytes": size}
        return {name: keys}, draw(integers(2, 6)), 0
    if name == "batch_packet_number":
        each, first = draw(integers(1, 9)), draw(st.sampled_from([0, 1, 5]))
        batch, packet = draw(fields(1, (each + first).bit_length()))
        packets = each * (flows if apart else 1)
        keys = {"batch_number": batch, "packet_number": packet, "packets_per_batch": packets}
        return {name: {**keys, "first_packet": first}}, packets, elements
    exponent = draw(integers(0, 4))
    if name == "seq_packets_per_batch":
        each = draw(st.just(1 << exponent) | integers(1, 16))
        (sequence,) = draw(fields(exponent + 1 if each == 1 << exponent else 32))
        packets = each * (flows if apart else 1)
        keys = {"sequence_number": sequence, "packets_per_batch": packets}
        return {name: keys}, packets, elements
    sequence, batch = draw(fields(exponent + 1, 1))
    width = sequence["bit_width"] - exponent
    if draw(st.booleans()):
        # The batch number is the upper part of the sequence number.
        sequence["byte_order"] = "big"
        batch = {**sequence, "bit_width": width}
    else:
        batch = {**batch, "bit_width": width, "byte_order": "big"}
        batch["bit_offset"] = min(batch["bit_offset"], ROOM * 8 - width)
    keys = {"sequence_number": sequence, "batch_number": batch}
    return {name: keys}, (1 << exponent), elements


@st.composite
def plans(draw: st.DrawFn, udp_at: int) -> tuple[Config, int, int, int]:
    """Draw a plan; packets of a batch, elements of a packet (0: they vary), flows."""
    flows = draw(integers(1, 2)) if udp_at else 1
    types = draw(st.none() | st.sampled_from(CONVERSIONS))
    element = max(bits_of(types[0]) // 8, 1) if types else 1
    method, packets, elements = draw(methods(flows, element, flows > 1))
    ((name, keys),) = method.items()
    for key in ("sequence_number", "batch_number", "packet_number", "byte_offset"):
        if key in keys and keys[key]["base"] == "packet":
            keys[key]["bit_offset"] += udp_at * 8
    base = draw(st.sampled_from(["packet", "udp_payload"]))
    plan: Config = {
        "name": "images",
        "reorder_type": "cpu",
        "memory_region": "frames",
        "flow_ids": [7 + i for i in range(flows)],
        "payload_base": base,
        "payload_byte_offset": ROOM + (udp_at if base == "packet" else 0),
        "timeout_us": 0,
        "method": method,
    }
    if flows > 1 and name != "seq_batch_number":
        plan["flow_stride"] = packets // flows
    if types:
        order = draw(st.sampled_from(["host", "network"]))
        plan["data_types"] = {"input_type": types[0], "output_type": types[1], "endianness": order}
    numbers = Reference(plan, udp_at).numbers
    if draw(st.booleans()):
        plan["window"] = draw(integers(1, max(1, min(5, numbers // 2))))
    output = types[1] if types else "same"
    least = 0 if output in UNSIGNED or output == "same" else -100
    plan["fill"] = draw(integers(least, 100))
    if output in FLOATS:
        plan["fill"] = draw(st.sampled_from([0, -1.5, 65504, 1e9, 2**-20]))
    if draw(st.booleans()):
        plan["cpu_core"] = ["any"]
    return plan, packets, elements, flows


disturbances = st.fixed_dictionaries(
    {
        "seed": integers(0, 2**32),
        "first": st.lists(st.sampled_from(["zero", "end", "random"]), min_size=3, max_size=3),
        "batches": integers(1, 7),
        "loss": st.sampled_from([0.0, 0.01, 0.3]),
        "twice": st.sampled_from([0.0, 0.01, 0.3]),
        "malformed": st.sampled_from([0.0, 0.1]),
        "shuffle": st.sampled_from([0.0, 1.0, 3.0]),
        "restarts": integers(0, 2),
    }
)


def payload(rng: np.random.Generator, size: int) -> bytes:
    """Return bytes: random ones, extremes of types, and small numbers."""
    random = rng.integers(0, 256, size, dtype=np.uint8)
    kind = rng.integers(0, 4)
    if kind == 1:
        random = rng.choice(np.array([0x00, 0x7F, 0x80, 0xFF, 0x08], np.uint8), size)
    elif kind == 2:
        random[rng.random(size) < 0.5] = 0
    elif kind == 3:
        random = np.resize(rng.choice(np.array([0x80, 0x7F, 0xFF, 0x88, 0x77], np.uint8), 1), size)
    return random.tobytes()


class Maker:
    """Makes the packets of a plan."""

    def __init__(self, drawn: tuple[Config, int, int, int], udp_at: int) -> None:
        self.plan, self.packets, self.elements, self.flows = drawn
        self.udp_at = udp_at
        self.reference = Reference(self.plan, udp_at)
        empty = ethernet.udp_frames(
            np.zeros((1, ROOM), np.uint8),
            src_mac="02:00:00:00:00:01",
            dst_mac="02:00:00:00:00:02",
            src_ip="192.0.2.1",
            dst_ip="192.0.2.2",
            src_port=4000,
            dst_port=PORT,
        )
        self.headers = empty[0, :HEADERS]

    def framed(self, data: Bytes, flow: int) -> Bytes:
        if not self.udp_at:
            return data
        packet = np.concatenate([self.headers, data])
        for at, value in ((16, len(data) + 28), (36, PORT + flow), (38, len(data) + 8)):
            packet[at : at + 2] = list(value.to_bytes(2, "big"))
        return packet

    def packet(self, rng: np.random.Generator, batch: int, slot: int) -> tuple[Bytes, int]:
        """Return packet `slot` of a batch, of those that there are, and its flow."""
        keys, element = self.reference.keys, self.reference.element
        stride = self.plan.get("flow_stride", 0)
        flow = slot // stride if stride else int(rng.integers(0, self.flows))
        numbers = {"batch_number": batch}
        if self.reference.method == "batch_byte_offset":
            # Parts of a batch, sometimes cut at another place.
            count = keys["batch_bytes"] // element
            cuts = [count * i // self.packets for i in range(self.packets + 1)]
            begin, end = cuts[slot], cuts[slot + 1]
            if rng.random() < 0.1:
                end = int(rng.integers(begin, count)) + 1
            end = max(end, begin + 1) if begin < count else count
            begin = min(begin, end - 1)
            numbers["byte_offset"] = begin * element
            size = (end - begin) * element
        else:
            at = slot % stride if stride else slot
            of_flow = self.reference.of_flow
            numbers["sequence_number"] = batch * of_flow + at
            numbers["packet_number"] = at + keys.get("first_packet", 0)
            size = self.elements * element
        header = rng.integers(0, 256, ROOM, dtype=np.uint8)
        data = np.concatenate([header, np.frombuffer(payload(rng, size), np.uint8)])
        packet = self.framed(data, flow)
        for key, number in numbers.items():
            if key in keys:
                at = self.udp_at if keys[key]["base"] == "udp_payload" else 0
                write(packet[at:], keys[key], number)
        return packet, flow

    def all(self, how: Config) -> list[list[tuple[Bytes, int]]]:
        """Return packets as they arrive; there are pauses between the lists."""
        rng = np.random.default_rng(how["seed"])
        runs = []
        # Where sequence numbers go on after the last one, that is in a batch.
        last = 2**32 // self.reference.of_flow if self.reference.goes_on else 0
        for begin in how["first"][: how["restarts"] + 1]:
            made: list[tuple[Bytes, int]] = []
            first = {"zero": 0, "end": last - 3, "random": int(rng.integers(0, 2**32))}[begin]
            batches = range(first, first + how["batches"])
            sent = [(batch, slot) for batch in batches for slot in range(self.packets)]
            sent = [each for each in sent if rng.random() >= how["loss"]]
            sent = [each for each in sent for _ in range(1 + (rng.random() < how["twice"]))]
            key = np.arange(len(sent)) + rng.random(len(sent)) * how["shuffle"] * self.packets
            for i in np.argsort(key):
                packet, flow = self.packet(rng, *sent[i])
                if rng.random() < how["malformed"]:
                    # Cut where there may be a field, or a payload of another length.
                    size = int(rng.integers(1, len(packet) - self.udp_at + 8))
                    data = np.resize(packet[self.udp_at :], size)
                    packet = self.framed(data, flow)
                made.append((packet, flow))
            runs.append(made)
        return runs


def configured(config: Config, plan: Config, udp_at: int) -> Config:
    """Return a configuration with only this plan."""
    flows = [
        {
            "name": f"flow{flow}",
            "id": flow,
            "match": {"udp_dst": PORT + i} if udp_at else {},
            "action": {"type": "queue", "id": 0},
        }
        for i, flow in enumerate(plan["flow_ids"])
    ]
    for region in config["memory_regions"]:
        region["buf_size"] = 512
    frame = {"name": "frames", "kind": "host", "num_bufs": 64, "buf_size": 32 * 512 * 16}
    config["memory_regions"].append(frame)
    config["interfaces"][0]["rx"] |= {"flows": flows, "reorder_configs": [plan]}
    return config


PAUSE = 0.25
"""Time after which batch numbers can begin anew, s."""


def made_by_engine(config: Config, runs: list[list[Bytes]]) -> tuple[list[Made], dict[str, int]]:
    """Return frames and counters; open batches are closed with the engine.

    Again, where this process may have made a pause of its own between two packets.
    """
    for _ in range(20):
        *found, longest = made_once(config, runs)
        if longest < PAUSE:
            return found[0], found[1]
    pytest.fail(f"a process that waits {longest:.2f} s for a processor cannot send without pauses")


def made_once(config: Config, runs: list[list[Bytes]]) -> tuple[list[Made], dict[str, int], float]:
    """Return frames, counters, and the longest time that may be between two packets of a run."""
    got: list[Made] = []
    sent = 0
    longest = begun = 0.0
    with Engine.open(config) as engine:
        port, sender = engine.ports[0], engine.ports[-1]
        plan = port.reorder["images"]
        with plan.frames(timeout=20.0) as taken:
            step = 50
            parts = [
                (run[at : at + step], at == 0 and run is not runs[0])
                for run in runs
                for at in range(0, len(run), step)
            ]
            for part, pauses in parts:
                if pauses:
                    time.sleep(PAUSE)
                before, begun = begun, time.monotonic()
                assert sender.tx[0].send(part, timeout=20.0) == len(part)
                sent += len(part)
                end = time.monotonic() + 20
                while plan.counters().packets < sent:
                    assert time.monotonic() < end, plan.counters()
                    time.sleep(0.0002)
                first = begun if pauses or before == 0 else before
                longest = max(longest, time.monotonic() - first)
                while len(got) < plan.counters().complete + plan.counters().incomplete:
                    got.append(made(next(taken)))
            engine.close()
            got += [made(frame) for frame in taken]
        return got, asdict(plan.counters()), longest


def made(frame: Any) -> Made:
    assert not frame.timed_out
    data = frame.data if isinstance(frame.data, np.ndarray) else frame.data.get()
    return Made(frame.batch, data.tobytes(), frame.valid.tolist(), frame.packets, frame.missing)


def example(drawn: tuple[Config, int, int, int], how: Config, build: Build, udp_at: int) -> None:
    maker = Maker(drawn, udp_at)
    sent = maker.all(how)
    reference = maker.reference
    for run in sent:
        reference.pause()
        for packet, flow in run:
            reference.take(packet, flow)
    reference.finish()
    config = configured(build(), maker.plan, udp_at)
    got, counts = made_by_engine(config, [[packet for packet, _ in run] for run in sent])
    assert counts == dict(reference.counts)
    assert got == reference.frames


@few
@given(drawn=plans(HEADERS), how=disturbances)
def test_any_layout_and_traffic_make_the_frames_of_the_reference(
    drawn: tuple[Config, int, int, int], how: Config, loopback: Build
) -> None:
    example(drawn, how, loopback, HEADERS)


@fewer
@given(drawn=plans(0), how=disturbances)
def test_any_layout_and_traffic_make_the_frames_of_the_reference_over_udp(
    drawn: tuple[Config, int, int, int], how: Config, udp: Build
) -> None:
    example(drawn, how, udp, 0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@many
@given(drawn=plans(HEADERS), how=disturbances)
def test_any_layout_and_traffic_make_the_frames_of_the_reference_at_length(
    drawn: tuple[Config, int, int, int], how: Config, loopback: Build
) -> None:
    example(drawn, how, loopback, HEADERS)


def test_the_reference_rounds_and_overflows_as_ieee_754_says() -> None:
    def words(values: list[int], kind: str, output: str) -> list[int]:
        data = np.array(values, kind).tobytes()
        return converted(data, {"input_type": kind, "output_type": output}).view("u2").tolist()

    # Halves are rounded to even; 65520 is the first infinite value.
    assert words([2049, 2051, 65519, 65520, -65520], "int32", "fp16") == [
        *(0x6800, 0x6802, 0x7BFF, 0x7C00, 0xFC00)
    ]
    # Rounded once: by way of a float, 2^24 + 2^16 + 1 would be a half, and go to even.
    assert words([257, 259, 2**24 + 2**16 + 1, 2**32 - 1], "uint32", "bf16") == [
        *(0x4380, 0x4382, 0x4B81, 0x4F80)
    ]


@pytest.mark.parametrize(
    ("kind", "output", "payload", "wanted"),
    [
        ("int4", "int8", b"\x78\x0f\x81", np.array([7, -8, 0, -1, -8, 1], "i1")),
        ("int4", "fp16", b"\x78\xf0", np.array([7, -8, -1, 0], "f2")),
        ("int8", "int16", b"\x7f\x80\xff\x00", np.array([127, -128, -1, 0], "i2")),
        ("int8", "fp32", b"\x7f\x80\xff\x00", np.array([127, -128, -1, 0], "f4")),
    ],
)
def test_extremes_of_small_integers(
    kind: str, output: str, payload: bytes, wanted: NDArray[Any], loopback: Build
) -> None:
    number = {"bit_offset": 0, "bit_width": 8, "byte_order": "big", "base": "udp_payload"}
    plan = {
        "name": "images",
        "reorder_type": "cpu",
        "memory_region": "frames",
        "flow_ids": [7],
        "payload_base": "udp_payload",
        "payload_byte_offset": ROOM,
        "data_types": {"input_type": kind, "output_type": output},
        "method": {"seq_packets_per_batch": {"sequence_number": number, "packets_per_batch": 1}},
    }
    packet = Maker((plan, 1, 0, 1), HEADERS).framed(
        np.frombuffer(bytes(ROOM) + payload, np.uint8), 0
    )
    with Engine.open(configured(loopback(), plan, HEADERS)) as engine:
        with engine.ports[0].reorder["images"].frames(timeout=20.0) as taken:
            engine.ports[0].tx[0].send([packet])
            frame = next(taken)
            assert frame.data.dtype == wanted.dtype
            assert frame.data.tolist() == wanted.tolist()
