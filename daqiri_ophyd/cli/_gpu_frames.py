"""Frames of a loopback stream that a GPU assembles, compared with those of NumPy and the CPU."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..documents import sidecar_path
from ..engine import DeviceArray, Engine, NotSupportedError, ethernet

Bytes = NDArray[np.uint8]

PACKETS, FRAMES = 64, 4
# Numbers of the frame, of the packet in the frame, and of the packet overall: 4 bytes each.
HEADER = 12
# Longest wait for a frame, and longest transit of a packet, s.
TIMEOUT = 20.0
# The one of `FRAMES` whose packet 5 is lost. Others are out of order; one has a duplicate.
INCOMPLETE, LOST = 1, 5
_FILE = "frames"


def _field(offset: int) -> dict[str, Any]:
    return {"bit_offset": 8 * offset, "bit_width": 32, "base": "udp_payload"}


BY_NUMBERS = {
    "batch_packet_number": {
        "batch_number": _field(0),
        "packet_number": _field(4),
        "packets_per_batch": PACKETS,
    }
}
BY_SEQUENCE = {
    "seq_packets_per_batch": {"sequence_number": _field(8), "packets_per_batch": PACKETS}
}


def _int4(payloads: Bytes) -> NDArray[Any]:
    nibbles = np.stack([payloads >> 4, payloads & 15], axis=-1).astype(np.int8)
    return np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.float32)


def _uint12(payloads: Bytes) -> NDArray[Any]:
    first, middle, last = (payloads[..., i::3].astype(np.uint16) for i in range(3))
    pixels = np.stack([first | (middle & 15) << 8, middle >> 4 | last << 4], axis=-1)
    return pixels.reshape(*payloads.shape[:-1], -1)


@dataclass(frozen=True)
class Layout:
    """Layout of packets, and conversion of their payloads by NumPy."""

    name: str
    payload: int
    convert: Callable[[Bytes], NDArray[Any]]
    types: dict[str, str] | None = None
    method: dict[str, Any] | None = None
    # Bytes between header and payload.
    gap: int = 0

    def config(self, kind: str) -> dict[str, Any]:
        """Return a loopback port with frames in such memory; ``host``: assembled by the CPU."""
        on_gpu = kind != "host"
        sample = self.convert(np.zeros((PACKETS, self.payload), np.uint8))
        plan = {
            "name": "images",
            "reorder_type": "gpu" if on_gpu else "cpu",
            "memory_region": "frames",
            "flow_ids": [1],
            "payload_base": "udp_payload",
            "payload_byte_offset": HEADER + self.gap,
            "timeout_us": int(TIMEOUT * 1e6),
            "method": self.method or BY_NUMBERS,
            **({"data_types": self.types} if self.types else {}),
            "frame": {"shape": [sample.size], "dtype": f"{sample.dtype}"},
        }
        packets = {
            "kind": "host_pinned" if on_gpu else "host",
            "num_bufs": 4 * PACKETS,
            "buf_size": 64 + HEADER + self.gap + self.payload,
        }
        room = {"name": "frames", "kind": kind, "num_bufs": 2 * FRAMES, "buf_size": sample.nbytes}
        queue = {"id": 0, "cpu_core": "any", "batch_size": 32}
        rx = {"name": "rx", "memory_regions": ["rx"], "timeout_us": 1000, **queue}
        flow = {"name": "all", "id": 1, "match": {}, "action": {"type": "queue", "id": 0}}
        return {
            "version": 1,
            "master_core": 0,
            "stream_type": "raw",
            "loopback": "sw",
            "log_level": "error",
            "memory_regions": [{"name": "rx", **packets}, {"name": "tx", **packets}, room],
            "interfaces": [
                {
                    "name": "port",
                    "address": "loopback",
                    "rx": {"queues": [rx], "flows": [flow], "reorder_configs": [plan]},
                    "tx": {"queues": [{"name": "tx", "memory_regions": ["tx"], **queue}]},
                }
            ],
        }

    def payloads(self) -> Bytes:
        """Return the payloads of all frames."""
        shape = (FRAMES, PACKETS, self.payload)
        return np.random.default_rng(1).integers(0, 256, shape, np.uint8)

    def packets(self, payloads: Bytes, number: int, *, disturbed: bool) -> Bytes:
        """Return the Ethernet frames of one frame."""
        sent = np.zeros((PACKETS, HEADER + self.gap + self.payload), np.uint8)
        numbers = np.arange(PACKETS)
        for at, values in ((0, np.full(PACKETS, number)), (4, numbers)):
            sent[:, at : at + 4] = _big_endian(values)
        sent[:, 8:HEADER] = _big_endian(number * PACKETS + numbers)
        sent[:, HEADER + self.gap :] = payloads[number]
        if disturbed:
            sent = sent[np.random.default_rng(number).permutation(PACKETS)]
            if number == INCOMPLETE:
                sent = sent[sent[:, 7] != LOST]
            else:
                sent = np.concatenate([sent[:9], sent[8:]])
        return ethernet.udp_frames(
            sent,
            src_mac="02:00:00:00:00:01",
            dst_mac="02:00:00:00:00:02",
            src_ip="192.0.2.1",
            dst_ip="192.0.2.2",
            src_port=4000,
            dst_port=5000,
        )

    def expected(self, payloads: Bytes, number: int) -> Bytes:
        """Return the bytes of a frame, computed by NumPy."""
        made = self.convert(payloads[number]).reshape(PACKETS, -1)
        if number == INCOMPLETE:
            made[LOST] = 0
        return np.ascontiguousarray(made).view(np.uint8).ravel()


def _big_endian(values: NDArray[Any]) -> Bytes:
    return values.astype(">u4").view(np.uint8).reshape(-1, 4)


LAYOUTS = (
    Layout("as they are, 1024 B", 1024, np.copy),
    Layout("as they are, 1000 B, shifted", 1000, np.copy, gap=7),
    Layout("as they are, 6 B, by sequence", 6, np.copy, method=BY_SEQUENCE),
    Layout(
        "uint16, big-endian",
        8192,
        lambda payloads: payloads.view(">u2").astype(np.uint16),
        {"input_type": "uint16", "output_type": "uint16", "endianness": "network"},
    ),
    Layout(
        "int16, big-endian, to fp32",
        1024,
        lambda payloads: payloads.view(">i2").astype(np.float32),
        {"input_type": "int16", "output_type": "fp32", "endianness": "network"},
        BY_SEQUENCE,
        3,
    ),
    Layout(
        "int8 to fp16",
        1000,
        lambda payloads: payloads.view(np.int8).astype(np.float16),
        {"input_type": "int8", "output_type": "fp16"},
    ),
    Layout("int4 to fp32", 512, _int4, {"input_type": "int4", "output_type": "fp32"}),
    Layout(
        "uint12, packed, to uint16",
        1020,
        _uint12,
        {"input_type": "uint12", "output_type": "uint16", "packing": "lsb"},
    ),
)


def make_frames(layout: Layout, kind: str) -> dict[int, Bytes]:
    """Return the bytes of the frames of a plan, by number."""
    payloads, made = layout.payloads(), {}
    with Engine.open(layout.config(kind)) as engine:
        port = engine.port("port")
        with port.reorder["images"].frames(TIMEOUT) as taken:
            for number in range(FRAMES):
                packets = layout.packets(payloads, number, disturbed=True)
                port.tx[0].send(packets, timeout=TIMEOUT)
            for _, frame in zip(range(FRAMES), taken, strict=False):
                data = frame.data
                data = data.get() if isinstance(data, DeviceArray) else np.array(data)
                made[frame.batch] = data.view(np.uint8).ravel()
    return made


def differences(layout: Layout, kind: str, by_cpu: dict[int, Bytes]) -> str:
    """Return how frames of a GPU differ from those of NumPy and the CPU; empty if equal."""
    made, payloads = make_frames(layout, kind), layout.payloads()
    if missing := set(range(FRAMES)) - set(made):
        return f"no frame {min(missing)}"
    for number, found in made.items():
        wanted = layout.expected(payloads, number)
        for whose, other in (("numpy", wanted), ("the CPU", by_cpu[number])):
            if wrong := np.flatnonzero(found != other).tolist():
                return (
                    f"frame {number}: {len(wrong)} bytes are not those of {whose}, first {wrong[0]}"
                )
    return ""


def compared() -> Iterator[tuple[str, str, str]]:
    """Yield each layout, the memory of the frames, and their differences."""
    for layout in LAYOUTS:
        by_cpu = make_frames(layout, "host")
        for kind in ("host_pinned", "device"):
            yield layout.name, kind, differences(layout, kind, by_cpu)


def written_by_cufile(folder: Path) -> tuple[str, str]:
    """Return the mode of cuFile, empty if it cannot write, and the fault or the reason."""
    layout = Layout("", 4096, np.copy)
    payloads = layout.payloads()
    with Engine.open(layout.config("device")) as engine:
        port = engine.port("port")
        try:
            recorder = port.reorder["images"].record(
                folder, _FILE, writer="cufile", max_frames=FRAMES
            )
        except NotSupportedError as error:
            return "", str(error)
        with recorder:
            for number in range(FRAMES):
                packets = layout.packets(payloads, number, disturbed=False)
                port.tx[0].send(packets, timeout=TIMEOUT)
            while recorder.snapshot().running and recorder.wait(TIMEOUT):
                pass
        error = recorder.snapshot().error
        file = recorder.files()[0].path
    if error:
        return "cufile", error
    mode = json.loads(sidecar_path(file).read_bytes())["cufile"]
    # Each frame is a chunk, whose bytes are in the file as they are.
    stored = file.read_bytes()
    same = all(frame.tobytes() in stored for frame in payloads)
    return mode, "" if same else f"{file} has other frames"
