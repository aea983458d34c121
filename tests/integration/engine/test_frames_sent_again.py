"""Frames as packets of their plan's format, which the engine assembles again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import wait_for

from daqiri_ophyd.engine import LINKTYPE_ETHERNET, Engine, load_config
from daqiri_ophyd.replay import Chunk, FrameReplay, ReplayError, schedule
from daqiri_ophyd.replay._frame_format import FrameFormat

from .frame_recording_process import config as camera

PACKETS, WORDS = 8, 50
PLAN = "port0/camera"


def field(at: int, width: int = 32, base: str = "udp_payload", order: str = "big") -> Any:
    return {"bit_offset": at, "bit_width": width, "base": base, "byte_order": order}


METHODS: dict[str, dict[str, Any]] = {
    "one sequence": {
        "method": {
            "seq_packets_per_batch": {"sequence_number": field(0), "packets_per_batch": PACKETS}
        },
    },
    "little-endian": {
        "method": {
            "batch_packet_number": {
                "batch_number": field(64, order="little"),
                "packet_number": field(16, 16, order="little"),
                "packets_per_batch": PACKETS,
                "first_packet": 1,
            }
        },
        "payload_byte_offset": 16,
    },
    "odd bits": {
        "method": {
            "batch_packet_number": {
                "batch_number": field(3, 29),
                "packet_number": field(37, 5),
                "packets_per_batch": PACKETS,
            }
        },
        "payload_byte_offset": 6,
    },
    "from the Ethernet header": {
        "method": {
            "seq_batch_number": {
                "sequence_number": field(8 * 42, 16, "packet"),
                "batch_number": field(8 * 42, 13, "packet"),
            }
        },
        "payload_base": "packet",
        "payload_byte_offset": 42 + 8,
    },
    "modules": {
        "method": {
            "batch_packet_number": {
                "batch_number": field(0),
                "packet_number": field(32, 8),
                "packets_per_batch": PACKETS,
            }
        },
        "flow_ids": [8, 7],
        "flow_stride": PACKETS // 2,
        "payload_byte_offset": 8,
    },
    "network order": {
        "method": {
            "seq_packets_per_batch": {"sequence_number": field(0), "packets_per_batch": PACKETS}
        },
        "data_types": {"input_type": "uint16", "output_type": "uint16", "endianness": "network"},
    },
}


def configuration(plan: dict[str, Any]) -> dict[str, Any]:
    config = camera(WORDS)
    rx = config["interfaces"][0]["rx"]
    action = {"type": "queue", "id": 0}
    rx["flows"] = [
        {"name": "a", "id": 7, "match": {"udp_dst": 5000}, "action": action},
        {"name": "b", "id": 8, "match": {"udp_dst": "5001-5003"}, "action": action},
    ]
    rx["reorder_configs"][0] |= plan
    return config


def frames(count: int) -> Any:
    return np.random.default_rng(3).integers(0, 1 << 16, (count, PACKETS, WORDS), np.uint16)


def send(engine: Engine, chunk: Chunk) -> None:
    sent = engine.ports[0].tx[0].send(chunk.data, offsets=chunk.offsets, lengths=chunk.lengths)
    assert sent == len(chunk)


@pytest.mark.parametrize("kind", METHODS)
def test_recorded_frames_are_sent_and_made_again(tmp_path: Path, kind: str) -> None:
    config = configuration(METHODS[kind])
    form = FrameFormat(load_config(config), PLAN, LINKTYPE_ETHERNET)
    data = frames(6)
    batches = np.array([5, 6, 7, 9, 10, 11])
    valid = np.ones((6, PACKETS), bool)
    valid[2, [1, 4]] = False  # two of an image are lost, as is image 8
    packets = form.packets_of(data, batches, valid)
    assert len(packets) == 6 * PACKETS - 2
    with Engine.open(config) as engine:
        port = engine.ports[0]
        plan = port.reorder["camera"]
        with plan.record(tmp_path, held=True) as recorder:
            recorder.acquire(7)
            assert port.tx[0].send(packets) == len(packets)
            wait_for(lambda: recorder.snapshot().acquired == 7)
            (path,) = [recorder.snapshot().path]
        counters = plan.counters()
        assert (counters.placed, counters.malformed) == (len(packets), 0)

        assert path is not None
        source = FrameReplay([path], config, link_type=LINKTYPE_ETHERNET)
        assert source.packets == len(packets)
        due = schedule(source)
        assert len(due) == len(packets)
        assert source.duration_ns == due[-1]
        assert (np.diff(due) >= 0).all()
        chunks = list(source.chunks())
        rows = np.concatenate([chunk.data.reshape(len(chunk), -1) for chunk in chunks])
        np.testing.assert_array_equal(rows[:, 42:], packets[:, 42:])
        with plan.record(tmp_path, "again", held=True) as recorder:
            recorder.acquire(7)
            for chunk in chunks:
                send(engine, chunk)
            wait_for(lambda: recorder.snapshot().acquired == 7)
            again = recorder.snapshot().path
        assert again is not None
        assert plan.counters().missing == 2 * counters.missing == 4
    import h5py

    with h5py.File(path) as first, h5py.File(again) as second:
        for name in ("data", "batch", "missing", "packets", "valid"):
            place = f"/entry/instrument/camera/{name}"
            np.testing.assert_array_equal(first[place][:], second[place][:])
        kept = [0, 1, 2, 4, 5, 6]
        wanted = np.where(valid[..., None], data, 0)
        np.testing.assert_array_equal(first["/entry/instrument/camera/data"][:][kept], wanted)

    twice = FrameReplay([path, path], config, link_type=LINKTYPE_ETHERNET, loops=2, speed=2.0)
    assert twice.packets == 4 * len(packets)
    assert sum(len(chunk) for chunk in twice.chunks()) == twice.packets
    assert schedule(twice)[-1] == twice.duration_ns


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (
            {"data_types": {"input_type": "uint8", "output_type": "uint16"}},
            "converts uint8 to uint16",
        ),
        (
            {
                "method": {
                    "batch_byte_offset": {
                        "batch_number": field(0),
                        "byte_offset": field(32),
                        "batch_bytes": 2 * PACKETS * WORDS,
                    }
                },
                "payload_byte_offset": 8,
            },
            "has packets of different lengths",
        ),
        (
            METHODS["one sequence"] | {"payload_base": "packet", "payload_byte_offset": 20},
            "before the UDP payload",
        ),
    ],
)
def test_plans_whose_packets_cannot_be_made_are_named(plan: dict[str, Any], text: str) -> None:
    config = load_config(configuration(plan))
    with pytest.raises(ReplayError, match=f"reorder plan 'port0/camera' .*{text}"):
        FrameFormat(config, PLAN, LINKTYPE_ETHERNET)
    with pytest.raises(ReplayError, match="has no reorder plan 'port0/none'"):
        FrameFormat(config, "port0/none", LINKTYPE_ETHERNET)
