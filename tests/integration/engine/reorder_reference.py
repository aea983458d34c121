"""The expected result of a reorder plan, computed in a simple way from its configuration."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

COUNTERS = (
    *("packets", "placed", "duplicate", "late", "early", "malformed", "no_buffer"),
    *("complete", "incomplete", "missing", "lost", "skipped", "untaken", "restarts"),
)


def bits_of(name: str) -> int:
    """Bits of an element; of plans without conversion, a byte."""
    return 8 if name == "same" else int("".join(c for c in name if c.isdigit()))


def bf16(values: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Return the bits of the nearest numbers with 8 significant bits, ties to even."""
    fraction, exponent = np.frexp(values)
    nearest = np.ldexp(np.rint(fraction * 256), exponent - 8)
    return (nearest.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def encoded(values: NDArray[Any], output: str) -> Bytes:
    """Return exact values as bytes of the output type."""
    if output == "bf16":
        return bf16(np.asarray(values, np.float64)).view(np.uint8)
    names = {"fp16": "float16", "fp32": "float32", "fp64": "float64", "same": "uint8"}
    with np.errstate(over="ignore"):
        # From double: numpy would round integers to float, and then again.
        wide = np.asarray(values, np.float64) if output == "fp16" else np.asarray(values)
        return wide.astype(names.get(output, output)).view(np.uint8)


def converted(payload: bytes, types: dict[str, str]) -> Bytes:
    """Return the bytes of the frame that a payload becomes."""
    kind = types["input_type"]
    if kind == "int4":
        nibbles = [n for byte in payload for n in (byte >> 4, byte & 15)]
        values = np.array([n - 16 if n > 7 else n for n in nibbles])
    else:
        order = ">" if types.get("endianness") == "network" else "<"
        name = "uint8" if kind == "same" else kind
        values = np.frombuffer(payload, np.dtype(name).newbyteorder(order)).astype(np.int64)
    return encoded(values, types["output_type"])


def bits(packet: Bytes, where: dict[str, Any]) -> slice:
    return slice(where["bit_offset"], where["bit_offset"] + where["bit_width"])


def write(packet: Bytes, where: dict[str, Any], value: int) -> None:
    """Write a number to the bits of a packet that begins where the field counts from."""
    width = where["bit_width"]
    number = (value % (1 << width)).to_bytes(5, "big")
    digits = np.unpackbits(np.frombuffer(number, np.uint8))[-width:]
    if where["byte_order"] == "little":
        digits = digits.reshape(-1, 8)[::-1].reshape(-1)
    all_bits = np.unpackbits(packet)
    all_bits[bits(packet, where)] = digits
    packet[:] = np.packbits(all_bits)


def read(packet: Bytes, where: dict[str, Any]) -> int | None:
    """Return the number, or None where the packet ends before."""
    digits = np.unpackbits(packet)[bits(packet, where)]
    if len(digits) < where["bit_width"]:
        return None
    if where["byte_order"] == "little":
        digits = digits.reshape(-1, 8)[::-1].reshape(-1)
    return int("".join(map(str, digits)), 2)


@dataclass
class Made:
    """A frame."""

    batch: int
    data: bytes
    valid: list[bool]
    packets: int
    missing: int


@dataclass
class Batch:
    """The received packets of a batch."""

    raw: int
    size: int
    packets: int = 0
    units: dict[int, bytes] = field(default_factory=dict)


class Reference:
    """Takes packets one by one; `frames` and `counts` are what the plan is to make of them.

    There are no acquisitions and no lack of buffers.

    Parameters
    ----------
    plan : dict
        The plan's configuration, without a timeout.
    udp_at : int
        Where the UDP payload begins in a packet: 42, or 0 on a socket.
    """

    def __init__(self, plan: dict[str, Any], udp_at: int) -> None:
        self.plan, self.udp_at = plan, udp_at
        ((self.method, self.keys),) = plan["method"].items()
        self.types = plan.get("data_types", {"input_type": "same", "output_type": "same"})
        self.element = max(bits_of(self.types["input_type"]) // 8, 1)
        self.stride = plan.get("flow_stride", 0)
        if self.method == "seq_batch_number":
            sequences = self.keys["sequence_number"]["bit_width"]
            self.slots = 1 << (sequences - self.keys["batch_number"]["bit_width"])
        elif self.method == "batch_byte_offset":
            self.slots = self.keys["batch_bytes"] // self.element
        else:
            self.slots = self.keys["packets_per_batch"]
        self.of_flow = self.stride or self.slots
        # Whether sequence numbers go on after the last one.
        self.goes_on = self.method == "seq_packets_per_batch" and self.of_flow & self.of_flow - 1
        if self.method == "seq_packets_per_batch":
            self.numbers = 1 << self.keys["sequence_number"]["bit_width"]
            self.numbers //= 1 if self.goes_on else self.of_flow
        else:
            self.numbers = 1 << self.keys["batch_number"]["bit_width"]
        self.window = plan.get("window", min(2, max(1, self.numbers // 2)))
        self.frames: list[Made] = []
        self.counts = Counter(dict.fromkeys(COUNTERS, 0))
        self.newest = self.next = 0
        self.begun = self.fresh = False
        self.open: dict[int, Batch] = {}
        self.waiting: dict[int, Made] = {}
        self.passed, self.paused = 0, False
        # Of the sequence numbers before they began anew; and whether they are not known any more.
        self.before: int | None = None
        self.unknown = False

    def number(self, packet: Bytes, key: str) -> int | None:
        where = self.keys[key]
        at = self.udp_at if where["base"] == "udp_payload" else 0
        return read(packet[at:], where)

    def place(self, packet: Bytes, flow: int) -> tuple[int, int, bytes] | str:
        """Return batch, slot (or byte) and payload; or the counter of a packet without these."""
        begin = self.plan["payload_byte_offset"]
        begin += self.udp_at if self.plan["payload_base"] == "udp_payload" else 0
        payload = packet[begin:].tobytes()
        if not payload or len(payload) % self.element:
            return "malformed"
        if self.method == "seq_packets_per_batch":
            sequence = self.number(packet, "sequence_number")
            if sequence is None:
                return "malformed"
            number = self.continued(sequence)
            if number is None:
                return "late"
            batch, slot = divmod(number, self.of_flow)
        else:
            second = {
                "seq_batch_number": "sequence_number",
                "batch_packet_number": "packet_number",
                "batch_byte_offset": "byte_offset",
            }[self.method]
            number, at = self.number(packet, "batch_number"), self.number(packet, second)
            if number is None or at is None:
                return "malformed"
            batch = number
            slot = at - self.keys.get("first_packet", 0)
            if self.method == "seq_batch_number":
                slot %= self.slots
            elif self.method == "batch_byte_offset":
                if slot % self.element or slot + len(payload) > self.keys["batch_bytes"]:
                    return "malformed"
            elif not 0 <= slot < self.of_flow:
                return "malformed"
        return batch, slot + flow * self.stride, payload

    def continued(self, sequence: int) -> int | None:
        """Return the number as if there were more than 32 bits; None: it is not known."""
        if not self.goes_on:
            return sequence
        lap = 1 << 32
        newest, some = self.newest * self.of_flow, 2 * self.window * self.of_flow

        def near(before: int) -> tuple[int, int]:
            same = before - before % lap + sequence
            numbers = [n for n in (same, same + lap, same - lap) if n >= 0]
            return min((abs(n - before), n) for n in numbers)

        if self.begun and not self.paused:
            size, number = near(newest)
            if size < (1 << 16) + some:
                return number
            if not self.fresh:
                return newest - newest % lap + sequence
        before = newest if self.begun and (self.paused or self.before is None) else self.before
        if self.unknown or before is None:
            return None if self.unknown else sequence
        size, number = near(before)
        if number == sequence:
            return sequence
        few, many = 64, 1 << 24
        if sequence >= few and size < (self.window + 2) * self.of_flow + few:
            return number
        if size < many <= sequence:
            return number
        if sequence < many <= size:
            return sequence
        self.unknown = True
        return None

    def take(self, packet: Bytes, flow: int = 0) -> None:
        """Process the next packet."""
        self.counts["packets"] += 1
        place = self.place(packet, flow)
        fate = place if isinstance(place, str) else self.put(*place)
        if not isinstance(place, str) and self.paused and fate in ("late", "duplicate"):
            self.finish()
            self.before, self.begun = self.newest * self.of_flow, False
            self.counts["restarts"] += 1
            fate = self.put(*place)
        self.counts[fate] += 1

    def pause(self) -> None:
        """Let no packet come for a while."""
        self.paused = True

    def put(self, raw: int, slot: int, payload: bytes) -> str:
        """Return the counter of a well-formed packet."""
        by_bytes = self.method == "batch_byte_offset"
        units = len(payload) // self.element if by_bytes else 1
        if not self.begun:
            self.begin(raw)
        number = self.newest + (raw - self.newest) % self.numbers
        if number - self.newest > self.numbers // 2:
            number -= self.numbers
        if number < self.next and not self.fresh:
            return "late"
        if number < self.next and number <= self.newest - self.window:
            early = sum(each.packets for each in (*self.open.values(), *self.waiting.values()))
            self.counts["placed"] -= early
            self.counts["early"] += early
            self.open.clear()
            self.waiting.clear()
            self.begin(raw)
            number = raw
        self.next, self.newest = min(self.next, number), max(self.newest, number)
        self.deliver()
        if number in self.waiting:
            return "late"
        self.paused = self.paused and number in self.open
        batch = self.open.setdefault(number, Batch(raw, len(payload)))
        if not by_bytes and len(payload) != batch.size:
            return "malformed"
        first = slot // self.element if by_bytes else slot
        wanted = range(first, first + units)
        there = sum(unit in batch.units for unit in wanted)
        if there:
            return "duplicate" if there == units else "malformed"
        size = len(payload) // units
        for i, unit in enumerate(wanted):
            part = payload[i * size : (i + 1) * size]
            batch.units[unit] = converted(part, self.types).tobytes()
        batch.packets += 1
        self.paused = False
        if len(batch.units) == self.slots:
            self.close(number)
            self.deliver()
        return "placed"

    def begin(self, raw: int) -> None:
        self.begun = self.fresh = True
        self.newest = self.next = raw

    def deliver(self) -> None:
        """Deliver frames in order; pass over numbers that have left the window."""
        while self.next <= self.newest - self.window or self.next in self.waiting:
            if self.open or self.waiting:
                self.end_next()
                continue
            # A number may be far ahead of the latest one.
            passed = self.newest - self.window + 1 - self.next
            self.passed += 0 if self.fresh else passed
            self.next += passed

    def end_next(self) -> None:
        if self.next in self.open:
            self.close(self.next)
        if self.next in self.waiting:
            made = self.waiting.pop(self.next)
            self.frames.append(made)
            self.counts["incomplete" if made.missing else "complete"] += 1
            self.counts["missing"] += made.missing
            self.counts["skipped"] += self.passed
            self.passed, self.fresh = 0, False
        else:
            self.passed += not self.fresh
        self.next += 1

    def close(self, number: int) -> None:
        batch = self.open.pop(number)
        size = len(next(iter(batch.units.values())))
        fill = encoded(np.array([self.plan.get("fill", 0)]), self.types["output_type"]).tobytes()
        filled = fill * (size // len(fill))
        data = b"".join(batch.units.get(unit, filled) for unit in range(self.slots))
        missing = self.slots - len(batch.units)
        valid = [unit in batch.units for unit in range(self.slots)]
        self.waiting[number] = Made(batch.raw, data, valid, batch.packets, missing)

    def finish(self) -> None:
        """Close what is open."""
        while self.begun and self.next <= self.newest:
            self.end_next()
