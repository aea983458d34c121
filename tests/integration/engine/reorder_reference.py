"""The expected result of a reorder plan, computed in a simple way from its configuration."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

NAMES = {"fp16": "float16", "fp32": "float32", "fp64": "float64", "same": "uint8"}
# Keys of the field with the position of a packet.
POSITIONS = ("packet_number", "byte_offset", "sequence_number")
COUNTERS = (
    *("packets", "placed", "duplicate", "late", "early", "malformed", "left_out", "no_buffer"),
    *("complete", "incomplete", "missing", "lost", "skipped", "untaken", "restarts"),
)


def bits_of(name: str) -> int:
    """Bits of an element; of plans without conversion, a byte."""
    return 8 if name == "same" else int("".join(c for c in name if c.isdigit()))


def group_of(name: str) -> int:
    """Bytes of the fewest elements that fill whole bytes."""
    return math.lcm(bits_of(name), 8) // 8


def bf16(values: NDArray[np.longdouble]) -> NDArray[np.uint16]:
    """Return the bits of the nearest numbers with 8 significant bits, ties to even."""
    fraction, exponent = np.frexp(values)
    nearest = np.ldexp(np.rint(fraction * 256), exponent - 8)
    return (nearest.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def encoded(values: NDArray[Any], output: str) -> Bytes:
    """Return exact values as bytes of the output type."""
    if output == "bf16":
        return bf16(np.asarray(values, np.longdouble)).view(np.uint8)
    with np.errstate(over="ignore"):
        # From double: numpy would round integers to float, and then again.
        wide = np.asarray(values, np.float64) if output == "fp16" else np.asarray(values)
        return wide.astype(NAMES.get(output, output)).view(np.uint8)


def converted(payload: bytes, types: dict[str, str]) -> Bytes:
    """Return the bytes of the frame that a payload becomes."""
    kind, output = types["input_type"], types["output_type"]
    network, bits = types.get("endianness") == "network", bits_of(kind)
    data = np.frombuffer(payload, np.uint8)
    if bits not in (8, 16, 32, 64):
        high = types.get("packing", "msb") == "msb" if bits % 8 else network
        digits = np.unpackbits(data, bitorder="big" if high else "little").reshape(-1, bits)
        worth = 2 ** np.arange(bits, dtype=np.int64)
        values = digits @ (worth[::-1] if high else worth)
        if kind.startswith("int"):
            values = np.where(values >= 1 << (bits - 1), values - (1 << bits), values)
        return encoded(values, output)
    values = data.view(np.dtype(NAMES.get(kind, kind)).newbyteorder(">" if network else "<"))
    if kind == output or not kind.startswith("fp"):
        return encoded(values, output)
    # A signaling NaN becomes quiet.
    with np.errstate(invalid="ignore"):
        wide = values.astype(NAMES[output])
    words = wide.view(f"u{wide.itemsize}")
    words[np.isnan(values)] |= words.dtype.type(1) << (51 if output == "fp64" else 22)
    return wide.view(np.uint8)


def orders(kind: str) -> list[dict[str, str]]:
    """Keys of the orders of bits and bytes that this type can have."""
    bits = bits_of(kind)
    if bits % 8:
        return [{}, {"packing": "lsb"}]
    return [{}, {"endianness": "network"}] if bits > 8 else [{}]


def arranged(sent: bytes, frame: dict[str, Any], fill: bytes) -> bytes:
    """Return the image of modules that are sent one after the other."""
    modules = frame["modules"]
    (rows, columns), positions = modules["shape"], modules["positions"]
    tile, chip = (modules.get(key, modules["shape"]) for key in ("tile", "chip"))
    gap, size = modules.get("chip_gap", [0, 0]), len(fill)
    pixels = np.frombuffer(sent, f"S{size}").reshape(
        len(positions), rows // tile[0], columns // tile[1], *tile
    )
    image = np.full(frame["shape"], np.frombuffer(fill, f"S{size}"))
    for module, where in zip(pixels, positions, strict=True):
        own = module.transpose(0, 2, 1, 3).reshape(rows, columns)
        for axis in (0, 1):
            ends = range(chip[axis], own.shape[axis], chip[axis])
            inserted = np.repeat(list(ends), gap[axis]).astype(int)
            own = np.insert(own, inserted, np.frombuffer(fill, f"S{size}"), axis=axis)
        flip = where.get("flip", "none")
        own = own[::-1] if flip in ("rows", "both") else own
        own = own[:, ::-1] if flip in ("columns", "both") else own
        own = np.rot90(own, where.get("rotate", 0) // 90)
        row, column = where["origin"]
        image[row : row + own.shape[0], column : column + own.shape[1]] = own
    return image.tobytes()


def bits(packet: Bytes, where: dict[str, Any]) -> slice:
    return slice(where["bit_offset"], where["bit_offset"] + where["bit_width"])


def write(packet: Bytes, where: dict[str, Any], value: int) -> None:
    """Write a number to the bits of a packet that begins where the field counts from."""
    width = where["bit_width"]
    number = (value % (1 << width)).to_bytes(8, "big")
    digits = np.unpackbits(np.frombuffer(number, np.uint8))[-width:]
    if where.get("byte_order") == "little":
        digits = digits.reshape(-1, 8)[::-1].reshape(-1)
    all_bits = np.unpackbits(packet)
    all_bits[bits(packet, where)] = digits
    packet[:] = np.packbits(all_bits)


def read(packet: Bytes, where: dict[str, Any]) -> int | None:
    """Return the number, or None where the packet ends before."""
    digits = np.unpackbits(packet)[bits(packet, where)]
    if len(digits) < where["bit_width"]:
        return None
    if where.get("byte_order") == "little":
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
    columns: dict[str, int | list[int]] = field(default_factory=dict)


@dataclass
class Batch:
    """The received packets of a batch."""

    raw: int
    size: int
    packets: int = 0
    units: dict[int, bytes] = field(default_factory=dict)
    # Numbers of each packet for the columns, by its place.
    numbers: dict[int, list[int]] = field(default_factory=dict)
    closed: bool = False


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
        self.element = group_of(self.types["input_type"])
        self.stride = plan.get("flow_stride", 0)
        position = next(key for key in POSITIONS if key in self.keys)
        self.position = self.keys[position]
        self.step = self.position.get("step", 1)
        batch_step = self.keys.get("batch_number", {}).get("step", 1)
        self.batch_step = 0 if batch_step == "any" else batch_step
        if self.method == "seq_batch_number":
            sequences = self.position["bit_width"] - self.keys["batch_number"]["bit_width"]
            self.slots = (1 << sequences) // self.step
        elif self.method == "batch_byte_offset":
            self.slots = self.keys["batch_bytes"] // self.element
        else:
            self.slots = self.keys["packets_per_batch"]
        self.of_flow = self.stride or self.slots
        # Whether sequence numbers go on after the last one; how many there are.
        self.goes_on = self.method == "seq_packets_per_batch" and self.of_flow & self.of_flow - 1
        self.lap = (1 << self.position["bit_width"]) // self.step
        if self.goes_on:
            self.numbers = 1 << 64
        elif self.method == "seq_packets_per_batch":
            self.numbers = self.lap // self.of_flow
        else:
            self.numbers = 1 << self.keys["batch_number"]["bit_width"]
        self.window = plan.get("window", min(2, max(1, self.numbers // 2)))
        # Payload bytes that the last packet of a flow lacks.
        self.lack = 0
        # Payload bytes of all packets; 0: any.
        self.exact = 0
        if "frame" in plan and self.method != "batch_byte_offset":
            modules = plan["frame"].get("modules")
            elements = math.prod(modules["shape"] if modules else plan["frame"]["shape"])
            elements *= len(modules["positions"]) if modules else 1
            output, given = (bits_of(self.types[key]) for key in ("output_type", "input_type"))
            frame = elements * max(output, 8) // 8 * given // output
            self.exact = 0 if "payload_bytes" in plan else frame // self.slots
            full = plan.get("payload_bytes", self.exact)
            self.lack = self.of_flow * full - frame * self.of_flow // self.slots
        # Whether a group of pixels goes on in the next packet.
        self.splits = plan.get("payload_bytes", 0) % self.element != 0
        self.frames: list[Made] = []
        self.counts = Counter(dict.fromkeys(COUNTERS, 0))
        self.newest = self.last = 0
        self.begun = self.fresh = self.anchored = False
        # In the order of their numbers, until they are delivered.
        self.held: list[Batch] = []
        self.passed, self.paused = 0, False
        # Of the sequence numbers before they began anew; and whether they are not known any more.
        self.before: int | None = None
        self.unknown = False

    def number(self, packet: Bytes, where: dict[str, Any]) -> int | None:
        at = self.udp_at if where.get("base") == "udp_payload" else 0
        return read(packet[at:], where)

    def fulfils(self, packet: Bytes, condition: dict[str, Any]) -> bool:
        number = self.number(packet, condition)
        if number is None:
            return False
        number &= condition.get("mask", 2**64 - 1)
        if "equal" in condition:
            return number == condition["equal"]
        return condition.get("at_least", 0) <= number <= condition.get("at_most", 2**64 - 1)

    def place(self, packet: Bytes, flow: int) -> tuple[int, int, bytes, list[int]] | str:
        """Return batch, slot (or byte), payload and columns; or the counter of another packet."""
        if not all(self.fulfils(packet, each) for each in self.plan.get("conditions", [])):
            return "left_out"
        begin = self.plan["payload_byte_offset"]
        begin += self.udp_at if self.plan["payload_base"] == "udp_payload" else 0
        if where := self.plan.get("payload_offset_field"):
            moved = self.number(packet, where)
            if moved is None:
                return "malformed"
            begin += moved * where.get("unit", 1)
        payload = packet[begin:].tobytes()
        full = self.plan.get("payload_bytes", 0)
        if not payload or (not full and len(payload) % self.element):
            return "malformed"
        if self.exact and len(payload) != self.exact:
            return "malformed"
        number = self.number(packet, self.position)
        batch = 0
        if "batch_number" in self.keys:
            found = self.number(packet, self.keys["batch_number"])
            if found is None:
                return "malformed"
            batch = found
        columns = [self.number(packet, each) for each in self.plan.get("columns", {}).values()]
        numbers = [each for each in columns if each is not None]
        if number is None or len(numbers) < len(columns):
            return "malformed"
        firsts = self.keys.get("first_packet", 0)
        first = firsts[flow if len(firsts) > 1 else 0] if isinstance(firsts, list) else firsts
        at, rest = divmod((number - first) % (1 << self.position["bit_width"]), self.step)
        if rest:
            return "malformed"
        if self.method == "seq_packets_per_batch":
            sequence = self.continued(at)
            if sequence is None:
                return "late"
            batch, at = divmod(sequence, self.of_flow)
        elif self.method == "seq_batch_number":
            at %= self.slots
        elif self.keys.get("running"):
            at %= self.of_flow
        if self.method == "batch_byte_offset":
            at *= self.position.get("unit", 1)
            size = min(full or len(payload), self.keys["batch_bytes"] - at)
            if at % self.element or size < (0 if full else len(payload)):
                return "malformed"
        else:
            size = (full or len(payload)) - (self.lack if at == self.of_flow - 1 else 0)
            if at >= self.of_flow:
                return "malformed"
        if not 0 < size <= len(payload):
            return "malformed"
        return batch, at + flow * self.stride, payload[:size], numbers

    def continued(self, sequence: int) -> int | None:
        """Return the number as if numbers did not wrap; None: it is not known."""
        if not self.goes_on or self.position["bit_width"] == 64:
            return sequence
        lap = self.lap
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

    def put(self, raw: int, slot: int, payload: bytes, numbers: list[int]) -> str:
        """Return the counter of a well-formed packet."""
        by_bytes = self.method == "batch_byte_offset"
        units = len(payload) // self.element if by_bytes else 1
        if not self.begun:
            self.begin(raw)
        batch = self.batch_of(raw, len(payload))
        if batch is None:
            return "late"
        if not by_bytes and "payload_bytes" not in self.plan and len(payload) != batch.size:
            return "malformed"
        first = slot // self.element if by_bytes else slot
        wanted = range(first, first + units)
        there = sum(unit in batch.units for unit in wanted)
        if there:
            return "duplicate" if there == units else "malformed"
        size = len(payload) // units
        for i, unit in enumerate(wanted):
            part = payload[i * size : (i + 1) * size]
            batch.units[unit] = part if self.splits else converted(part, self.types).tobytes()
        batch.numbers[slot] = numbers
        batch.packets += 1
        self.paused = False
        if len(batch.units) == self.slots:
            batch.closed = True
            self.deliver()
        return "placed"

    def ahead(self, raw: int, of: int) -> int:
        return (raw - of) % self.numbers

    def is_after(self, raw: int, other: int) -> bool:
        return 0 < self.ahead(raw, other) <= self.numbers // 2

    def is_far_back(self, raw: int) -> bool:
        back = self.ahead(self.newest, raw) // self.batch_step if self.batch_step else 0
        return not self.is_after(raw, self.newest) and back >= self.window

    @property
    def full(self) -> bool:
        return len(self.held) == self.window

    def batch_of(self, raw: int, size: int) -> Batch | None:
        """Return the open batch of a packet; None: it is late."""
        for batch in self.held:
            if batch.raw == raw:
                return None if batch.closed else batch
        if (self.held or self.anchored) and not self.is_after(raw, self.newest):
            before_all = bool(self.held) and not self.is_after(raw, self.held[0].raw)
            if self.fresh and self.is_far_back(raw) and (before_all or not self.held):
                early = sum(each.packets for each in self.held)
                self.counts["placed"] -= early
                self.counts["early"] += early
                self.held.clear()
                self.begin(raw)
            elif (self.anchored and not self.is_after(raw, self.last)) or (
                before_all and self.full
            ):
                return None
        while self.full:
            self.end_first()
        ahead = self.is_after(raw, self.newest)
        while self.held and ahead and not self.is_after(raw, self.held[0].raw):
            self.end_first()
        at = len(self.held)
        while at and self.is_after(self.held[at - 1].raw, raw):
            at -= 1
        if at == len(self.held):
            self.newest = raw
        batch = Batch(raw, size)
        self.held.insert(at, batch)
        self.paused = False
        self.deliver()
        return batch

    def begin(self, raw: int) -> None:
        self.begun = self.fresh = True
        self.anchored = False
        self.newest = raw
        self.passed = 0

    def absent(self) -> int:
        """Numbers before the first one that is held of which no packet came."""
        if not self.anchored or not self.batch_step:
            return 0
        return max(self.ahead(self.held[0].raw, self.last) // self.batch_step - 1, 0)

    def deliver(self) -> None:
        while self.held and self.held[0].closed and (self.full or not self.absent()):
            self.end_first()

    def end_first(self) -> None:
        self.passed += self.absent()
        batch = self.held.pop(0)
        self.last, self.anchored, self.fresh = batch.raw, True, False
        fill = encoded(np.array([self.plan.get("fill", 0)]), self.types["output_type"]).tobytes()

        def filled(unit: int) -> bytes:
            given = batch.size
            if full := self.plan.get("payload_bytes", 0):
                last = unit % self.of_flow == self.of_flow - 1
                given = full - (self.lack if last else 0)
            if self.method == "batch_byte_offset":
                given = self.element
            return fill * (len(converted(bytes(given), self.types)) // len(fill))

        if self.splits:
            data = self.joined(batch, fill)
        else:
            data = b"".join(batch.units.get(unit) or filled(unit) for unit in range(self.slots))
        if "modules" in self.plan.get("frame", {}):
            data = arranged(data, self.plan["frame"], fill)
        missing = self.slots - len(batch.units)
        valid = [unit in batch.units for unit in range(self.slots)]
        columns: dict[str, int | list[int]] = {}
        for i, (name, keys) in enumerate(self.plan.get("columns", {}).items()):
            came = {slot: numbers[i] for slot, numbers in batch.numbers.items()}
            columns[name] = {
                "first": came[min(came)],
                "sum": sum(came.values()) % (1 << 64),
                "packets": [came.get(slot, 0) for slot in range(self.slots)],
            }[keys.get("from", "first")]
        self.frames.append(Made(batch.raw, data, valid, batch.packets, missing, columns))
        self.counts["incomplete" if missing else "complete"] += 1
        self.counts["missing"] += missing
        self.counts["skipped"] += self.passed
        self.passed = 0

    def joined(self, batch: Batch, fill: bytes) -> bytes:
        """The frame of packets that split groups; of which a part is missing are filled."""
        raw, there = b"", b""
        for unit in range(self.slots):
            last = unit % self.of_flow == self.of_flow - 1
            size = self.plan["payload_bytes"] - (self.lack if last else 0)
            raw += batch.units.get(unit, bytes(size))
            there += bytes([unit in batch.units]) * size
        groups = len(raw) // self.element
        data = np.frombuffer(converted(raw, self.types).tobytes(), np.uint8).reshape(groups, -1)
        whole = np.frombuffer(there, np.uint8).reshape(groups, -1).all(axis=1)
        filled = np.frombuffer(fill * (data.shape[1] // len(fill)), np.uint8)
        return np.where(whole[:, None], data, filled).tobytes()

    def finish(self) -> None:
        """Close what is open."""
        while self.held:
            self.end_first()
