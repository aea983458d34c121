"""Frames as packets of their plan's format, which the engine assembles again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import wait_for

from daqiri_ophyd.engine import LINKTYPE_ETHERNET, Engine, load_config, module_pixels
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
    "packed": {
        "method": {
            "seq_packets_per_batch": {"sequence_number": field(0), "packets_per_batch": PACKETS}
        },
        "data_types": {"input_type": "uint12", "output_type": "uint16", "packing": "lsb"},
    },
    "wider": {
        "method": {
            "seq_packets_per_batch": {"sequence_number": field(0), "packets_per_batch": PACKETS}
        },
        "data_types": {"input_type": "int24", "output_type": "int32", "endianness": "network"},
        "frame": {"shape": [PACKETS, WORDS], "dtype": "int32"},
    },
    "floats": {
        "method": {
            "seq_packets_per_batch": {"sequence_number": field(0), "packets_per_batch": PACKETS}
        },
        "data_types": {"input_type": "fp32", "output_type": "fp32", "endianness": "network"},
        "frame": {"shape": [PACKETS, WORDS], "dtype": "float32"},
    },
    "a shorter last packet, and a header of variable length": {
        "method": {
            "batch_packet_number": {
                "batch_number": field(64, 64),
                "packet_number": field(128, 16) | {"step": 2},
                "packets_per_batch": PACKETS,
                "first_packet": 7,
            }
        },
        "payload_byte_offset": 4,
        "payload_offset_field": field(24, 8) | {"unit": 4},
        "payload_bytes": 110,
        "conditions": [field(0, 8) | {"equal": 3}, field(8, 16) | {"at_least": 5}],
    },
    "modules in an image": {
        "method": {
            "batch_packet_number": {
                "batch_number": field(0),
                "packet_number": field(32, 8),
                "packets_per_batch": PACKETS,
            }
        },
        "payload_byte_offset": 8,
        "frame": {
            "shape": [22, 31],
            "dtype": "uint16",
            "modules": {
                "shape": [20, 10],
                "tile": [4, 5],
                "chip": [10, 5],
                "chip_gap": [1, 0],
                "positions": [
                    {"origin": [1, 0], "flip": "rows"},
                    {"origin": [5, 10], "flip": "both", "rotate": 90},
                ],
            },
        },
    },
    "columns": {
        "method": {
            "batch_packet_number": {
                "batch_number": field(0),
                "packet_number": field(32, 8),
                "packets_per_batch": PACKETS,
            }
        },
        "payload_byte_offset": 16,
        "payload_bytes": 100,
        "columns": {
            "pulse_id": field(64, 64, order="little"),
            "trailer": field(8 * 116, 16),
            "pixel": field(8 * 20, 16),
            "identification": field(8 * 18, 16, "packet"),
            "total": field(40, 24) | {"from": "sum"},
            "clock": field(8 * 118, 48, order="little") | {"from": "packets"},
            "pixels": field(8 * 20, 16) | {"from": "packets"},
        },
    },
    "modules that count on": {
        "method": {
            "batch_packet_number": {
                "batch_number": field(0),
                "packet_number": field(32) | {"step": 2},
                "packets_per_batch": PACKETS,
                "first_packet": [1, 9],
                "running": True,
            }
        },
        "flow_ids": [8, 7],
        "flow_stride": PACKETS // 2,
        "payload_byte_offset": 8,
    },
    "one sequence in steps": {
        "method": {
            "seq_packets_per_batch": {
                "sequence_number": field(0, 64) | {"step": 10},
                "packets_per_batch": PACKETS,
                "first_packet": 3,
            }
        },
        "payload_byte_offset": 8,
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


def frames(count: int, plan: dict[str, Any]) -> Any:
    dtype = np.dtype(plan.get("frame", {}).get("dtype", "uint16"))
    values = np.random.default_rng(3).integers(0, 1 << 16, (count, PACKETS, WORDS), np.uint16)
    if plan.get("data_types", {}).get("input_type") == "uint12":
        values &= 0xFFF
    return values.astype(dtype) - dtype.type(1 << 15 if dtype.kind == "i" else 0)


def images(sent: Any, config: dict[str, Any]) -> Any:
    """Return frames of values in the order of packets; what is of no module is 0."""
    frame = load_config(config).interfaces[0].rx.reorder_configs[0].frame
    assert frame is not None
    made = np.zeros((len(sent), *frame.shape), sent.dtype)
    made.reshape(len(sent), -1)[:, module_pixels(frame)] = sent.reshape(len(sent), -1)
    return made


def send(engine: Engine, chunk: Chunk) -> None:
    sent = engine.ports[0].tx[0].send(chunk.data, offsets=chunk.offsets, lengths=chunk.lengths)
    assert sent == len(chunk)


@pytest.mark.parametrize("kind", METHODS)
def test_recorded_frames_are_sent_and_made_again(tmp_path: Path, kind: str) -> None:
    config = configuration(METHODS[kind])
    form = FrameFormat(load_config(config), PLAN, LINKTYPE_ETHERNET)
    sent = frames(6, METHODS[kind])
    batches = np.array([5, 6, 7, 9, 10, 11])
    valid = np.ones((6, PACKETS), bool)
    valid[2, [1, 4]] = False  # two of an image are lost, as is image 8
    # Of 64 bits: none is lost.
    numbers = np.arange(2**64 - 6, 2**64, dtype=np.uint64)
    columns: dict[str, Any] = dict.fromkeys(form.columns, numbers)
    clock = np.arange(2**48 - 6 * PACKETS, 2**48, dtype=np.uint64).reshape(6, PACKETS)
    if "clock" in columns:
        columns["clock"] = clock
    packets = form.packets_of(images(sent, config), batches, valid, columns)
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
        of_plan = METHODS[kind].get("columns", {})
        for name in ("data", "batch", "missing", "packets", "valid", *of_plan):
            place = f"/entry/instrument/camera/{name}"
            np.testing.assert_array_equal(first[place][:], second[place][:])
        kept = [0, 1, 2, 4, 5, 6]
        if of_plan:
            found = {name: first[f"/entry/data/{name}"][:] for name in of_plan}
            assert {values.dtype for values in found.values()} == {np.dtype(np.uint64)}
            assert found["pulse_id"][kept].tolist() == numbers.tolist()
            assert found["trailer"][kept].tolist() == (numbers % (1 << 16)).tolist()
            assert found["pixel"][kept].tolist() == sent[:, 0, 2].byteswap().tolist()
            came = np.where(valid, clock, 0)
            assert found["clock"][kept].tolist() == came.tolist()
            pixels = np.where(valid, sent[:, :, 2].byteswap(), 0)
            assert found["pixels"][kept].tolist() == pixels.tolist()
            assert not any(values[3].any() for values in found.values())
        wanted = sent.copy()
        size = METHODS[kind].get("payload_bytes", sent[0].nbytes // PACKETS)
        for image, slot in zip(*np.nonzero(~valid), strict=True):
            wanted[image].view(np.uint8).reshape(-1)[slot * size : (slot + 1) * size] = 0
        frames_of_file = first["/entry/instrument/camera/data"][:][kept]
        np.testing.assert_array_equal(frames_of_file, images(wanted, config))

    twice = FrameReplay([path, path], config, link_type=LINKTYPE_ETHERNET, loops=2, speed=2.0)
    assert twice.packets == 4 * len(packets)
    assert sum(len(chunk) for chunk in twice.chunks()) == twice.packets
    assert schedule(twice)[-1] == twice.duration_ns


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (
            {"data_types": {"input_type": "uint8", "output_type": "fp32"}},
            "converts uint8 to fp32",
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
        (
            METHODS["one sequence"] | {"conditions": [field(8 * 23, 8, "packet") | {"equal": 17}]},
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


def test_conditions_on_the_numbers_themselves_are_named() -> None:
    plan = METHODS["one sequence"] | {"conditions": [field(24, 8) | {"at_most": 100}]}
    form = FrameFormat(load_config(configuration(plan)), PLAN, LINKTYPE_ETHERNET)
    valid = np.ones((1, PACKETS), bool)
    assert len(form.packets_of(frames(1, plan), np.array([3], np.uint64), valid)) == PACKETS
    with pytest.raises(ReplayError, match="conditions on bits that also have other meanings"):
        form.packets_of(frames(1, plan), np.array([20], np.uint64), valid)
