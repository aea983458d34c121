"""Frames of every type of pixels, in all orders, of any length and at any place in packets."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from daqiri_ophyd.engine import Engine, InvalidParameterError, check_config
from daqiri_ophyd.simulate import pixel_bits, pixel_bytes, pixel_dtype

from .reorder_reference import bits_of, converted, group_of, orders
from .test_reorder_properties import CONVERSIONS, HEADERS, ROOM, Build, Maker, configured

Config = dict[str, Any]
INPUTS = sorted({kind for kind, _ in CONVERSIONS})
NUMBER = {"bit_offset": 0, "bit_width": 8, "byte_order": "big", "base": "udp_payload"}
# Groups of pixels in a packet: vectors of all sizes, with and without a rest.
GROUPS = [*range(1, 18), 25, 31, 32, 33, 40]


def plan_of(types: Config, offset: int = ROOM) -> Config:
    """Return a plan of frames of one packet."""
    return {
        "name": "images",
        "reorder_type": "cpu",
        "memory_region": "frames",
        "flow_ids": [7],
        "payload_base": "udp_payload",
        "payload_byte_offset": offset,
        "data_types": types,
        "method": {"seq_packets_per_batch": {"sequence_number": NUMBER, "packets_per_batch": 1}},
    }


def made(build: Build, plan: Config, payloads: list[bytes]) -> list[NDArray[Any]]:
    """Return the frames of packets with these payloads."""
    maker = Maker((plan, 1, 0, 1), HEADERS)
    offset = plan["payload_byte_offset"]
    packets = [
        maker.framed(np.frombuffer(bytes([number, *bytes(offset - 1)]) + each, np.uint8), 0)
        for number, each in enumerate(payloads)
    ]
    with Engine.open(configured(build(), plan, HEADERS)) as engine:
        port = engine.ports[0]
        with port.reorder["images"].frames(timeout=20.0) as taken:
            assert port.tx[0].send(packets, timeout=20.0) == len(packets)
            return [next(taken).data.copy() for _ in packets]


@pytest.mark.parametrize("kind", INPUTS)
def test_frames_have_the_values_of_numpy(kind: str, loopback: Build) -> None:
    rng = np.random.default_rng(bits_of(kind))
    outputs = [output for each, output in CONVERSIONS if each == kind]
    for number, (output, order) in enumerate((a, b) for a in outputs for b in orders(kind)):
        types = {"input_type": kind, "output_type": output, **order}
        payloads = [rng.bytes(count * group_of(kind)) for count in GROUPS]
        frames = made(loopback, plan_of(types, ROOM + number % 16), payloads)
        for frame, payload in zip(frames, payloads, strict=True):
            assert frame.tobytes() == converted(payload, types).tobytes(), (types, len(payload))


@pytest.mark.parametrize("kind", INPUTS)
def test_bytes_of_pixels_become_the_pixels(kind: str, loopback: Build) -> None:
    wide = pixel_dtype(kind)
    bits = pixel_bits(kind)
    assert bits == bits_of(kind)
    rng = np.random.default_rng(bits)
    if wide.kind == "f":
        pixels = rng.normal(size=(3, 24)).astype(wide)
    else:
        least = -(1 << (bits - 1)) if wide.kind == "i" else 0
        pixels = rng.integers(least, least + (1 << bits) - 1, (3, 24), wide, endpoint=True)
        pixels[0, :2] = least, least + (1 << bits) - 1
    output = kind if kind.startswith("fp") else wide.name
    for order in orders(kind):
        types = {"input_type": kind, "output_type": output, **order}
        big = "big" if order.get("endianness") == "network" else "little"
        sent = pixel_bytes(pixels, kind, byte_order=big, packing=order.get("packing", "msb"))
        frames = made(loopback, plan_of(types), [row.tobytes() for row in sent])
        np.testing.assert_array_equal(np.array(frames), pixels)
        assert frames[0].dtype == wide


@pytest.mark.parametrize(
    ("kind", "output", "payload", "wanted"),
    [
        ("int4", "int8", b"\x78\x0f\x81", np.array([7, -8, 0, -1, -8, 1], "i1")),
        ("int4", "fp16", b"\x78\xf0", np.array([7, -8, -1, 0], "f2")),
        ("uint4", "uint8", b"\x78\xf0", np.array([7, 8, 15, 0], "u1")),
        ("int8", "int16", b"\x7f\x80\xff\x00", np.array([127, -128, -1, 0], "i2")),
        ("int8", "fp32", b"\x7f\x80\xff\x00", np.array([127, -128, -1, 0], "f4")),
        ("int12", "int16", b"\x7f\xf8\x00\xff\xf0\x01", np.array([2047, -2048, -1, 1], "i2")),
        ("uint64", "fp64", b"\xff" * 8, np.array([2.0**64], "f8")),
        # 2^53 + 1 is a half; the nearest is even.
        ("int64", "fp64", (2**53 + 1).to_bytes(8, "little"), np.array([2.0**53], "f8")),
        ("int64", "fp32", (2**24 + 1).to_bytes(8, "little"), np.array([2.0**24], "f4")),
    ],
)
def test_extremes(
    kind: str, output: str, payload: bytes, wanted: NDArray[Any], loopback: Build
) -> None:
    (frame,) = made(loopback, plan_of({"input_type": kind, "output_type": output}), [payload])
    assert frame.dtype == wanted.dtype
    assert frame.tolist() == wanted.tolist()


def test_payloads_that_cut_a_group_are_malformed(loopback: Build) -> None:
    plan = plan_of({"input_type": "uint10", "output_type": "uint16"})
    maker = Maker((plan, 1, 0, 1), HEADERS)
    with Engine.open(configured(loopback(), plan, HEADERS)) as engine:
        port = engine.ports[0]
        with port.reorder["images"].frames(timeout=20.0) as taken:
            for size in (1, 4, 6, 9, 5):
                data = np.frombuffer(bytes(ROOM) + bytes(size), np.uint8)
                assert port.tx[0].send([maker.framed(data, 0)]) == 1
            assert next(taken).data.tolist() == [0, 0, 0, 0]
            assert port.reorder["images"].counters().malformed == 4


def offset_method(size: int) -> Config:
    keys = {"batch_number": NUMBER, "byte_offset": {**NUMBER, "bit_offset": 8, "bit_width": 16}}
    return {"batch_byte_offset": {**keys, "batch_bytes": size}}


@pytest.mark.parametrize(
    ("changes", "where", "text"),
    [
        (
            {"data_types": {"input_type": "uint12", "output_type": "uint8"}},
            "data_types.output_type",
            "found 'uint8' from 'uint12'; accepts floating-point types, and integers that hold "
            "every value of the input",
        ),
        (
            {"data_types": {"input_type": "int12", "output_type": "uint16"}},
            "data_types.output_type",
            "found 'uint16' from 'int12'; accepts",
        ),
        (
            {"data_types": {"input_type": "fp64", "output_type": "fp32"}},
            "data_types.output_type",
            "found 'fp32' from 'fp64'; accepts fp16, fp32 and fp64, if they hold every value of "
            "the input",
        ),
        (
            {"data_types": {"input_type": "fp32", "output_type": "int32"}},
            "data_types.output_type",
            "found 'int32' from 'fp32'; accepts fp16",
        ),
        (
            {"data_types": {"input_type": "uint18", "output_type": "uint32"}},
            "data_types.input_type",
            "found 'uint18', unknown word; accepts 'int4', 'int8', 'int10', 'int12', 'int14'",
        ),
        (
            {"data_types": {"input_type": "uint16", "output_type": "uint16", "packing": "lsb"}},
            "data_types.packing",
            "found 'lsb' with 'uint16', whose elements are whole bytes; accepts it with elements "
            "of 4, 10, 12 and 14 bits. Set endianness, the order of bytes",
        ),
        (
            {"data_types": {"input_type": "uint24", "output_type": "uint32", "packing": "lsb"}},
            "data_types.packing",
            "found 'lsb' with 'uint24'",
        ),
        (
            {
                "data_types": {
                    "input_type": "uint12",
                    "output_type": "uint16",
                    "endianness": "network",
                }
            },
            "data_types.endianness",
            "found 'network' with 'uint12', whose elements are not whole bytes; remove it, and set "
            "packing: msb for a stream of bits with the most significant first",
        ),
        (
            {"data_types": {"input": "int14", "output": "int16", "input_endianness": "network"}},
            "data_types.input_endianness",
            "found 'network' with 'int14'",
        ),
        (
            {
                "data_types": {"input_type": "uint12", "output_type": "uint16"},
                "frame": {"shape": [25]},
            },
            "frame.shape",
            "found a frame of 50 bytes in 1 packets, each 50 bytes of it; accepts a multiple of 4 "
            "bytes from a packet: its payload has whole groups of 3 bytes of 2 elements of uint12",
        ),
        (
            {
                "data_types": {"input_type": "uint14", "output_type": "uint16"},
                "method": offset_method(100),
            },
            "method.batch_byte_offset.batch_bytes",
            "found 100; accepts a multiple of the 7 bytes of 4 elements of uint14",
        ),
        (
            {"data_types": {"input_type": "uint10", "output_type": "uint16"}, "fill": 65536},
            "fill",
            "found 65536, which cannot be represented by an element of type 'uint16'",
        ),
    ],
)
def test_what_no_plan_does_is_refused(
    changes: Config, where: str, text: str, loopback: Build
) -> None:
    plan = plan_of({"input_type": "uint8", "output_type": "uint8"}) | changes
    (problem,) = check_config(configured(loopback(), plan, HEADERS)).errors
    assert problem.path == f"interfaces[0].rx.reorder_configs[0].{where}"
    assert problem.message.startswith(text)


def test_no_pixels_of_other_types_or_of_parts_of_bytes() -> None:
    with pytest.raises(ValueError, match="found 'int18'; accepts int and uint with 4, 8, 10"):
        pixel_dtype("int18")
    with pytest.raises(ValueError, match="found 3 of uint12, 36 bits; accepts whole bytes"):
        pixel_bytes(np.zeros(3, np.uint16), "uint12")


def test_the_key_is_in_the_configuration_of_an_engine(loopback: Build) -> None:
    types = {"input_type": "uint12", "output_type": "uint16", "packing": "lsb"}
    config = configured(loopback(), plan_of(types), HEADERS)
    with Engine.open(config) as engine:
        found = engine.config.interfaces[0].rx.reorder_configs[0].data_types
        assert found is not None
        assert (found.packing, found.endianness) == ("lsb", "host")
    with pytest.raises(InvalidParameterError, match=r"packing: found 'big', unknown word"):
        plan = plan_of({**types, "packing": "big"})
        Engine.open(configured(loopback(), plan, HEADERS))
