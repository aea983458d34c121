"""Pixels that the packets of a frame have brought."""

from typing import Any

import numpy as np
import pytest

from daqiri_ophyd.engine import (
    InvalidParameterError,
    ReorderConfig,
    gap_mask,
    load_config,
    valid_pixels,
)


def field(offset: int, base: str = "udp_payload") -> dict[str, Any]:
    return {"bit_offset": offset, "bit_width": 32, "base": base}


def numbered(packets: int) -> dict[str, Any]:
    method = {"sequence_number": field(0), "packets_per_batch": packets}
    return {"seq_packets_per_batch": method}


def plan_of(method: dict[str, Any], flows: int = 1, **keys: Any) -> ReorderConfig:
    """Return a plan as an engine reads it."""
    plan = {
        "name": "images",
        "reorder_type": "cpu",
        "memory_region": "frames",
        "flow_ids": list(range(1, flows + 1)),
        "payload_base": "udp_payload",
        "payload_byte_offset": 4,
        "method": method,
        **keys,
    }
    matches = [
        {"name": f"f{i}", "id": i, "match": {"udp_dst": i}, "action": {"type": "queue", "id": 0}}
        for i in range(1, flows + 1)
    ]
    queue = {"id": 0, "cpu_core": "any", "batch_size": 8}
    rx = {"name": "rx", "memory_regions": ["rx"], "timeout_us": 500, **queue}
    config = {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "memory_regions": [
            {"name": name, "kind": "host", "num_bufs": 256, "buf_size": size}
            for name, size in (("rx", 256), ("tx", 256), ("frames", 4096))
        ],
        "interfaces": [
            {
                "name": "port0",
                "address": "loopback",
                "rx": {"queues": [rx], "flows": matches, "reorder_configs": [plan]},
                "tx": {"queues": [{"name": "tx", "memory_regions": ["tx"], **queue}]},
            }
        ],
    }
    return load_config(config).interfaces[0].rx.reorder_configs[0]


def test_packets_have_equal_parts_of_a_frame() -> None:
    plan = plan_of(numbered(4), frame={"shape": [4, 3], "dtype": "uint16"})
    valid = np.array([[True, False, True, True], [False, False, False, True]])
    expected = np.repeat(valid, 3, axis=1).reshape(2, 4, 3)
    assert valid_pixels(plan, valid).tolist() == expected.tolist()
    assert valid_pixels(plan, valid[0]).tolist() == expected[0].tolist()
    # The bits of a file fill a byte.
    bits = np.unpackbits(np.packbits(valid, axis=1, bitorder="little"), axis=1, bitorder="little")
    assert valid_pixels(plan, bits).tolist() == expected.tolist()


def test_the_number_of_packets_may_follow_from_the_numbers() -> None:
    batch = {"bit_offset": 0, "bit_width": 30, "base": "udp_payload"}
    method = {"seq_batch_number": {"sequence_number": field(0), "batch_number": batch}}
    plan = plan_of(method, frame={"shape": [4, 3], "dtype": "uint16"})
    found = valid_pixels(plan, [True, False, True, True])
    assert found.astype(int).tolist() == [[1] * 3, [0] * 3, [1] * 3, [1] * 3]


def test_the_last_packet_of_a_flow_may_be_shorter() -> None:
    keys = {"flow_stride": 2, "payload_bytes": 8, "frame": {"shape": [2, 6], "dtype": "uint16"}}
    plan = plan_of(numbered(4), flows=2, **keys)
    found = valid_pixels(plan, [True, False, False, True])
    assert found.astype(int).tolist() == [[1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]]


def test_pixels_that_are_in_two_packets_need_both() -> None:
    plan = plan_of(numbered(4), frame={"shape": [6], "dtype": "uint16"})
    assert valid_pixels(plan, [1, 0, 1, 1]).astype(int).tolist() == [1, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(("name", "packing"), [("uint12", "lsb"), ("uint4", "msb")])
def test_packed_pixels_have_the_bits_of_packets(name: str, packing: str) -> None:
    types = {"input_type": name, "output_type": "uint16", "packing": packing}
    frame = {"shape": [2, 4], "dtype": "uint16"}
    plan = plan_of(numbered(2), data_types=types, frame=frame)
    assert valid_pixels(plan, [0, 1]).astype(int).tolist() == [[0] * 4, [1] * 4]


def test_modules_have_their_places_and_gaps_have_none() -> None:
    positions = [{"origin": [0, 0]}, {"origin": [3, 0], "flip": "rows"}]
    modules = {"shape": [2, 4], "chip": [2, 2], "chip_gap": [0, 1], "positions": positions}
    frame = {"shape": [5, 5], "dtype": "uint16", "modules": modules}
    plan = plan_of(numbered(4), frame=frame)
    assert plan.frame is not None
    assert (valid_pixels(plan, np.ones(4, bool)) == ~gap_mask(plan.frame)).all()
    found = valid_pixels(plan, [False, True, True, False]).astype(int).tolist()
    line = [1, 1, 0, 1, 1]
    # The lower module is upside down: its first packet has the last row.
    assert found == [[0] * 5, line, [0] * 5, [0] * 5, line]


@pytest.mark.parametrize(
    ("keys", "units"),
    [
        ({}, 24),  # bytes
        ({"data_types": {"input_type": "uint16", "output_type": "uint16"}}, 12),
        ({"data_types": {"input_type": "uint12", "output_type": "uint16"}}, 6),
    ],
)
def test_byte_offsets_have_a_bit_for_each_element(keys: dict[str, Any], units: int) -> None:
    size = 18 if units == 6 else 24
    method = {
        "batch_byte_offset": {
            "batch_number": field(0),
            "byte_offset": field(32),
            "batch_bytes": size,
        }
    }
    frame = {"shape": [3, 4], "dtype": "uint16"}
    plan = plan_of(method, payload_byte_offset=8, frame=frame, **keys)
    valid = np.ones(units, bool)
    valid[units // 3 : units * 2 // 3] = False
    assert valid_pixels(plan, valid).astype(int).tolist() == [[1] * 4, [0] * 4, [1] * 4]
    # One unit of a pixel is not enough.
    valid[:] = True
    valid[1] = False
    (lacking,) = np.nonzero(~valid_pixels(plan, valid).ravel())
    assert lacking.tolist() == {24: [0], 12: [1], 6: [2, 3]}[units]


def test_what_is_not_known_is_said() -> None:
    plan = plan_of(numbered(4), frame={"shape": [4, 3], "dtype": "uint16"})
    text = r"valid has the shape \(3,\); accepted are 4 values for each frame of reorder plan 'im"
    with pytest.raises(InvalidParameterError, match=text):
        valid_pixels(plan, [True] * 3)
    with pytest.raises(InvalidParameterError, match="'images' has no frame; .* with frame: {shape"):
        valid_pixels(plan_of(numbered(4)), [True] * 4)


@pytest.mark.parametrize(
    ("came", "arrived"),
    [
        ([1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]),
        ([0, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]),
        ([1, 0, 1], [1, 1, 0, 0, 0, 0, 1, 1]),
        ([1, 1, 0], [1, 1, 1, 1, 0, 0, 0, 0]),
    ],
)
def test_a_group_that_is_in_two_packets_needs_both(came: list[int], arrived: list[int]) -> None:
    # Pixel 3 is wholly in the second packet; the first half of pixel 2 is in the first one.
    types = {"input_type": "uint12", "output_type": "uint16"}
    plan = plan_of(numbered(3), data_types=types, payload_bytes=4, frame={"shape": [8]})
    assert valid_pixels(plan, came).tolist() == [bool(each) for each in arrived]
