"""Reorder plans over random layouts and disturbed packets, against a slow reference.

Frames have to be equal to the last byte, and counters to the last packet.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from networks import Network
from numpy.typing import NDArray

from daqiri_ophyd.engine import Engine, ethernet

from .reorder_reference import (
    Made,
    Reference,
    bits_of,
    converted,
    group_of,
    orders,
    write,
)

Config = dict[str, Any]
Build = Callable[..., Config]
Open = Callable[[Config], Engine]
Bytes = NDArray[np.uint8]

HEADERS = 42
PORT = 5000
ROOM = 20
"""Bytes of a packet for its fields."""
FRAME_BYTES = 512 * 1024
"""Size of the buffers for frames."""
KIND, UNITS = ROOM, ROOM + 1
"""Bytes with the kind of a packet, and the number of units before its payload."""

FLOATS = ["fp16", "bf16", "fp32", "fp64"]
SIGNED = [f"int{bits}" for bits in (4, 8, 10, 12, 14, 16, 24, 32, 64)]
UNSIGNED = [f"u{name}" for name in SIGNED]
WHOLE = (8, 16, 32, 64)
WIDER = [(a, b) for a in SIGNED for b in SIGNED if bits_of(a) <= bits_of(b) in WHOLE]
WIDER += [(a, b) for a in UNSIGNED for b in UNSIGNED if bits_of(a) <= bits_of(b) in WHOLE]
WIDER += [(a, b) for a in UNSIGNED for b in SIGNED if bits_of(a) < bits_of(b) in WHOLE]
CONVERSIONS = WIDER + [(a, b) for a in SIGNED + UNSIGNED for b in FLOATS]
CONVERSIONS += [(a, b) for a in FLOATS for b in FLOATS if a[0] == b[0] == "f" and a <= b]

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
        width = draw(integers(bits, 64) | integers(bits, min(bits + 4, 64)))
        little = draw(st.booleans())
        if little:
            width = -(-width // 8) * 8
            at = -(-at // 8) * 8
        gap = draw(integers(0, (room - 8 - width) // 8)) * 8 if little else 0
        gap = gap if little else draw(integers(0, room - 8 - width))
        # A field is within 8 bytes.
        width = min(width, 64 - (at + gap) % 8)
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
    exponent = draw(st.sampled_from([0, 0, 1, 3]))
    step = 1 << exponent
    first = draw(st.sampled_from([0, 1, 5]))
    more: Config = {"first_packet": first} if first else {}
    if apart and draw(st.booleans()):
        more["first_packet"] = [first, draw(integers(0, 7))]
    most = int(np.max(more.get("first_packet", 0)))
    if name == "batch_byte_offset":
        size = draw(integers(2, 120)) * element
        batch, offset = draw(fields(1, (size + most).bit_length()))
        offset["unit"] = draw(st.sampled_from([1, element]))
        keys = {"batch_number": batch, "byte_offset": offset, "batch_bytes": size}
        return {name: {**keys, **more}}, draw(integers(2, 6)), 0
    if name == "batch_packet_number":
        each = draw(integers(1, 9))
        batch, packet = draw(fields(1, (each * step + most).bit_length()))
        packet["step"] = step
        packets = each * (flows if apart else 1)
        keys = {"batch_number": batch, "packet_number": packet, "packets_per_batch": packets}
        if draw(st.booleans()) and (each & each - 1 == 0 or packet["bit_width"] >= 48):
            keys["running"] = True
        return {name: {**keys, **more}}, packets, elements
    power = draw(integers(0, 4))
    if name == "seq_packets_per_batch":
        each = draw(st.just(1 << power) | integers(1, 16))
        least = power + 1 if each == 1 << power else 32
        (sequence,) = draw(fields(max(least + exponent, most.bit_length())))
        sequence["step"] = step
        packets = each * (flows if apart else 1)
        keys = {"sequence_number": sequence, "packets_per_batch": packets}
        return {name: {**keys, **more}}, packets, elements
    sequence, batch = draw(fields(max(power + exponent + 1, most.bit_length()), 1))
    width = sequence["bit_width"] - power - exponent
    if draw(st.booleans()):
        # The batch number is the upper part of the sequence number.
        sequence["byte_order"] = "big"
        # And counts batches from 0.
        numbers = 1 << power + exponent
        firsts = np.atleast_1d(more.pop("first_packet", 0)) * numbers
        if firsts.max() >> sequence["bit_width"] == 0 and firsts.any():
            more["first_packet"] = firsts.tolist() if len(firsts) > 1 else int(firsts[0])
        batch = {**sequence, "bit_width": width}
    else:
        batch = {**batch, "bit_width": width, "byte_order": "big"}
        batch["bit_offset"] = min(batch["bit_offset"], ROOM * 8 - width)
        batch["bit_offset"] -= batch["bit_offset"] % 8 if width > 56 else 0
    sequence["step"] = step
    keys = {"sequence_number": sequence, "batch_number": batch}
    return {name: {**keys, **more}}, (1 << power), elements


@st.composite
def images(draw: st.DrawFn, pixels: int, group: int) -> Config:
    """Draw an image whose modules have so many pixels, in rows of whole groups."""

    def part(of: int, unit: int = 1) -> int:
        return draw(st.sampled_from([n for n in range(unit, of + 1, unit) if of % n == 0]))

    count = draw(st.sampled_from([n for n in range(1, 5) if pixels % (n * group) == 0]))
    columns = part(pixels // count, group)
    rows = pixels // count // columns
    modules: Config = {"shape": [rows, columns], "positions": []}
    if draw(st.booleans()):
        modules["tile"] = [part(rows), part(columns, group)]
    extent = [rows, columns]
    if draw(st.booleans()):
        modules["chip"] = chip = [part(rows), part(columns, group)]
        modules["chip_gap"] = gap = [draw(integers(0, 2)), draw(integers(0, 2))]
        extent = [n + (n // c - 1) * g for n, c, g in zip(extent, chip, gap, strict=True)]
    end = [0, 0]
    for _ in range(count):
        turn = draw(st.sampled_from([0, 90, 180, 270]))
        size = extent[::-1] if turn % 180 else extent
        # One below the other.
        origin = [end[0] + draw(integers(0, 2)), draw(integers(0, 3))]
        flip = draw(st.sampled_from(["none", "rows", "columns", "both"]))
        modules["positions"].append({"origin": origin, "flip": flip, "rotate": turn})
        end = [origin[0] + size[0], max(end[1], origin[1] + size[1])]
    modules["positions"] = draw(st.permutations(modules["positions"]))
    shape = [end[0] + draw(integers(0, 1)), end[1]]
    # Long rows, one of them turned.
    assume(shape[0] * shape[1] * 8 <= FRAME_BYTES)
    return {"shape": shape, "modules": modules}


@st.composite
def plans(draw: st.DrawFn, udp_at: int) -> tuple[Config, int, int, int]:
    """Draw a plan; packets of a batch, elements of a packet (0: they vary), flows."""
    flows = draw(integers(1, 2)) if udp_at else 1
    types = draw(st.none() | st.sampled_from(CONVERSIONS))
    element = group_of(types[0]) if types else 1
    method, packets, elements = draw(methods(flows, element, flows > 1))
    ((name, keys),) = method.items()
    batch = keys.get("batch_number", {})
    if name != "seq_batch_number" and batch.get("bit_width", 0) > 8:
        batch["step"] = draw(st.sampled_from([1, 1, 4, "any"]))
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
        "payload_byte_offset": ROOM + 2 + (udp_at if base == "packet" else 0),
        "timeout_us": 0,
        "method": method,
    }
    if flows > 1 and name != "seq_batch_number":
        plan["flow_stride"] = packets // flows
    if types:
        order = draw(st.sampled_from(orders(types[0])))
        plan["data_types"] = {"input_type": types[0], "output_type": types[1], **order}
    if draw(st.booleans()):
        kind = {"bit_offset": KIND * 8 + 1, "bit_width": 7, "base": "udp_payload", "mask": 0x7E}
        plan["conditions"] = [{**kind, **draw(st.sampled_from(CONDITIONS))}]
    if draw(st.booleans()):
        where = {"bit_offset": UNITS * 8, "bit_width": 8, "base": "udp_payload", "unit": 3}
        plan["payload_offset_field"] = where
    if draw(st.booleans()):
        sources = ["first", "sum"] + ([] if name == "batch_byte_offset" else ["packets"])
        plan["columns"] = {}
        drawn = [*draw(fields(1, 1)), *draw(fields(1))]
        for column, where in zip(draw(st.sampled_from(NAMES)), drawn, strict=False):
            # Some end behind the shortest packets, or are where the numbers are.
            where["bit_offset"] += draw(st.sampled_from([0, 0, 0, 32]))
            plan["columns"][column] = where | {"from": draw(st.sampled_from(sources))}
    if draw(st.booleans()):
        size = elements or -(-keys["batch_bytes"] // element // packets)
        plan["payload_bytes"] = size * element
        lacking = draw(integers(0, elements - 1)) if elements else 0
        split = draw(integers(0, element - 1)) if elements else 0
        if lacking or split:
            parts = packets // plan.get("flow_stride", packets)
            plan["payload_bytes"] += split
            of_part = packets // parts * plan["payload_bytes"] // element
            total = parts * (of_part - lacking) * element
            given, output = (bits_of(each) for each in types or ("same", "same"))
            plan["frame"] = {"shape": [total * 8 // given * output // max(output, 8)]}
    if (elements or "payload_bytes" in plan) and draw(st.booleans()):
        per_byte = 8 * element // bits_of(types[0]) if types else 1
        if elements:
            total = plan.get("frame", {"shape": [packets * elements * per_byte]})["shape"][0]
        else:
            total = keys["batch_bytes"] // element * per_byte
        plan["frame"] = draw(images(total, per_byte))
    step = 4 if batch.get("step") == 4 else 1
    numbers = Reference(plan, udp_at).numbers // step
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


CONDITIONS: list[Config] = [{"equal": 0x24}, {"at_least": 0x20}, {"at_least": 2, "at_most": 0x30}]

NAMES = [("pulse_id",), ("pulse_id", "Energy_2"), ("pulse_id", "Energy_2", "n")]

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
        "others": st.sampled_from([0.0, 0.2]),
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
            np.zeros((1, ROOM + 2), np.uint8),
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
        step = keys.get("batch_number", {}).get("step", 1)
        # Numbers that grow irregularly grow by 3 and 5 in turn.
        numbers = {"batch_number": batch * 4 + batch % 2 if step == "any" else batch * step}
        if self.reference.method == "batch_byte_offset":
            # Parts of a batch, sometimes cut at another place.
            count = keys["batch_bytes"] // element
            cuts = [count * i // self.packets for i in range(self.packets + 1)]
            begin, end = cuts[slot], cuts[slot + 1]
            if rng.random() < 0.1:
                end = int(rng.integers(begin, count)) + 1
            end = max(end, begin + 1) if begin < count else count
            begin = min(begin, end - 1)
            first = self.first_of(flow)
            numbers["byte_offset"] = first + begin * element // keys["byte_offset"].get("unit", 1)
            size = (end - begin) * element
        else:
            at = slot % stride if stride else slot
            of_flow = self.reference.of_flow
            step, first = self.reference.step, self.first_of(flow)
            numbers["sequence_number"] = (batch * of_flow + at) * step + first
            at += batch * of_flow if keys.get("running") else 0
            numbers["packet_number"] = at * step + first
            size = self.plan.get("payload_bytes", self.elements * element)
        if "payload_bytes" in self.plan:
            # What is behind is cut off; what lacks is not sent.
            last = self.elements and (slot + 1) % self.reference.of_flow == 0
            size -= self.reference.lack if last and rng.random() < 0.5 else 0
            size += int(rng.integers(0, 4))
        units = int(rng.integers(0, 4)) if "payload_offset_field" in self.plan else 0
        header = rng.integers(0, 256, ROOM + 2 + 3 * units, dtype=np.uint8)
        header[KIND] = 0x24 | rng.integers(0, 2) | rng.integers(0, 2) << 7
        header[UNITS] = units
        data = np.concatenate([header, np.frombuffer(payload(rng, size), np.uint8)])
        packet = self.framed(data, flow)
        for key, number in numbers.items():
            if key in keys:
                at = self.udp_at if keys[key]["base"] == "udp_payload" else 0
                write(packet[at:], keys[key], number)
        return packet, flow

    def first_of(self, flow: int) -> int:
        firsts = np.atleast_1d(self.reference.keys.get("first_packet", 0))
        return int(firsts[flow if len(firsts) > 1 else 0])

    def all(self, how: Config) -> list[list[tuple[Bytes, int]]]:
        """Return packets as they arrive; there are pauses between the lists."""
        rng = np.random.default_rng(how["seed"])
        runs = []
        # Where sequence numbers go on after the last one, that is in a batch.
        last = self.reference.lap // self.reference.of_flow if self.reference.goes_on else 0
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
                if rng.random() < how["others"]:
                    packet[min(self.udp_at + KIND, len(packet) - 1)] ^= 0x20
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
        region["buf_size"] = 1024
    frame = {"name": "frames", "kind": "host", "num_bufs": 64, "buf_size": FRAME_BYTES}
    config["memory_regions"].append(frame)
    config["interfaces"][0]["rx"] |= {"flows": flows, "reorder_configs": [plan]}
    return config


PAUSE = 0.25
"""Time after which batch numbers can begin anew, s."""


def made_by_engine(
    config: Config, runs: list[list[Bytes]], opened: Open = Engine.open
) -> tuple[list[Made], dict[str, int]]:
    """Return frames and counters; open batches are closed with the engine.

    Again, where this process may have made a pause of its own between two packets.
    """
    for _ in range(20):
        *found, longest = made_once(config, runs, opened)
        if longest < PAUSE:
            return found[0], found[1]
    pytest.fail(f"a process that waits {longest:.2f} s for a processor cannot send without pauses")


def made_once(
    config: Config, runs: list[list[Bytes]], opened: Open
) -> tuple[list[Made], dict[str, int], float]:
    """Return frames, counters, and the longest time that may be between two packets of a run."""
    got: list[Made] = []
    sent = 0
    longest = begun = 0.0
    with opened(config) as engine:
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
    valid = frame.valid.tolist()
    columns = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in frame.columns.items()
    }
    return Made(frame.batch, data.tobytes(), valid, frame.packets, frame.missing, columns)


def compare(
    drawn: tuple[Config, int, int, int],
    how: Config,
    build: Build,
    udp_at: int,
    opened: Open = Engine.open,
) -> None:
    maker = Maker(drawn, udp_at)
    sent = maker.all(how)
    reference = maker.reference
    for run in sent:
        reference.pause()
        for packet, flow in run:
            reference.take(packet, flow)
    reference.finish()
    config = configured(build(), maker.plan, udp_at)
    packets = [[packet for packet, _ in run] for run in sent]
    got, counts = made_by_engine(config, packets, opened)
    assert counts == dict(reference.counts)
    assert got == reference.frames


# A packet of another length after a pause from which on the numbers are not known.
WRONG_LENGTH_OF_UNKNOWN_NUMBER: dict[str, Any] = {
    "drawn": (
        {
            "name": "images",
            "reorder_type": "cpu",
            "memory_region": "frames",
            "flow_ids": [7, 8],
            "payload_base": "packet",
            "payload_byte_offset": 64,
            "timeout_us": 0,
            "method": {
                "seq_packets_per_batch": {
                    "sequence_number": {
                        "bit_offset": 336,
                        "bit_width": 32,
                        "byte_order": "big",
                        "base": "packet",
                        "step": 1,
                    },
                    "packets_per_batch": 10,
                }
            },
            "flow_stride": 5,
            "frame": {"shape": [10]},
            "fill": 0,
        },
        10,
        1,
        2,
    ),
    "how": {
        "seed": 0,
        "first": ["end", "zero", "zero"],
        "batches": 1,
        "loss": 0.0,
        "twice": 0.0,
        "malformed": 0.1,
        "shuffle": 0.0,
        "restarts": 1,
        "others": 0.0,
    },
}


@few
@example(**WRONG_LENGTH_OF_UNKNOWN_NUMBER)
@given(drawn=plans(HEADERS), how=disturbances)
def test_any_layout_and_traffic_make_the_frames_of_the_reference(
    drawn: tuple[Config, int, int, int], how: Config, loopback: Build
) -> None:
    compare(drawn, how, loopback, HEADERS)


@fewer
@given(drawn=plans(0), how=disturbances)
def test_any_layout_and_traffic_make_the_frames_of_the_reference_over_udp(
    drawn: tuple[Config, int, int, int], how: Config, udp: Build
) -> None:
    compare(drawn, how, udp, 0)


@pytest.fixture(params=["af_packet", "af_xdp"])
def path(request: pytest.FixtureRequest) -> str:
    """How engine ``packet`` receives."""
    if request.param == "af_xdp":
        request.getfixturevalue("has_af_xdp")
    return request.param


@pytest.mark.root
@settings(few, max_examples=30)
@given(drawn=plans(HEADERS), how=disturbances)
def test_any_layout_and_traffic_make_the_frames_of_the_reference_over_a_cable(
    drawn: tuple[Config, int, int, int], how: Config, path: str, packet: Build, cable: Network
) -> None:
    def build() -> Config:
        config = packet()
        config["interfaces"][0]["rx"] |= {"receive_path": path, "flow_isolation": True}
        return config

    compare(drawn, how, build, HEADERS, partial(cable.call, Engine.open))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@many
@given(drawn=plans(HEADERS), how=disturbances)
def test_any_layout_and_traffic_make_the_frames_of_the_reference_at_length(
    drawn: tuple[Config, int, int, int], how: Config, loopback: Build
) -> None:
    compare(drawn, how, loopback, HEADERS)


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
