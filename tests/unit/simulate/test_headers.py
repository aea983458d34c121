"""Packets of instruments have the bytes that their formats prescribe, written out by hand."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spead2
import spead2.recv
from numpy.typing import NDArray

from daqiri_ophyd import profiles
from daqiri_ophyd.engine import ethernet, load_config, module_pixels
from daqiri_ophyd.simulate import INSTRUMENTS


def packet(name: str, frame: int, number: int) -> bytes:
    """Return a packet of a frame whose elements count up."""
    instrument = INSTRUMENTS[name]
    elements = np.arange(np.prod(instrument.shape)).astype(instrument.dtype)
    packets = instrument.packets(elements.reshape(1, *instrument.shape), frame)
    assert packets.shape == (instrument.packets_per_frame, instrument.packet_size)
    return packets[number, : instrument.sizes()[number]].tobytes()


def test_a_jungfrau_packet() -> None:
    header = bytes.fromhex(
        "0302000000000000"  # frame number 0x203, from 1 on
        "64000000"  # exposure: 100 units of 100 ns
        "11000000"  # packet number 17
        "0000000000000000"  # specific to the detector
        "206e 4e00 0000 0000"  # 514 ms (5 140 000 units of 100 ns): 1000 frames per second
        "0000 0000 0000 0000"  # module id, row, column, specific
        "00000000"  # specific
        "0000"  # specific
        "03 02"  # JUNGFRAU; version 2
    )
    assert len(header) == 48
    made = packet("jungfrau", 0x202, 17)
    assert made[:48] == header
    assert len(made) == 48 + 8192
    # 4 rows of 1024 pixels a packet.
    pixels = np.arange(17 * 4096, 18 * 4096).astype("<u2")
    assert made[48:] == pixels.tobytes()


def test_modules_of_a_stack_take_turns() -> None:
    made = packet("jungfrau-stack", 0, 4 * 9 + 2)
    assert made[12:16] == bytes([9, 0, 0, 0])
    assert made[32:36] == bytes([2, 0, 2, 0])
    pixels = np.arange(2 * 512 * 1024 + 9 * 4096, 2 * 512 * 1024 + 10 * 4096).astype("<u2")
    assert made[48:] == pixels.tobytes()


def test_halves_of_modules_number_their_packets_apart() -> None:
    # Packet 9 of the lower half of module 5: in the second column, and in its fourth row of halves.
    made = packet("jungfrau-4m", 0, 16 * 9 + 11)
    assert made[12:16] == bytes([9, 0, 0, 0])
    assert made[32:38] == bytes([5, 0, 3, 0, 1, 0])
    # Rows 36 to 39 of the half, which begins 256 pixels and a gap of 2 below the module's origin.
    rows = 514 + 36 + 258 + np.arange(36, 40)[:, None]
    chips = [np.arange(256) + 258 * chip for chip in range(4)]
    columns = 1030 + 8 + np.concatenate(chips)
    assert made[48:] == (rows * 2068 + columns).astype("<u2").tobytes()


def eiger_image(parts: NDArray[Any]) -> NDArray[Any]:
    """The image of upper left, upper right, lower left and lower right part, as they are sent."""
    image = np.zeros((514, 1030), parts.dtype)
    upper_left, upper_right, lower_left, lower_right = parts
    image[:256, :256], image[:256, 258:514] = upper_left[:, :256], upper_left[:, 256:]
    image[:256, 516:772], image[:256, 774:] = upper_right[:, :256], upper_right[:, 256:]
    left, right = np.flipud(lower_left), np.flipud(lower_right)
    image[258:, :256], image[258:, 258:514] = left[:, :256], left[:, 256:]
    image[258:, 516:772], image[258:, 774:] = right[:, :256], right[:, 256:]
    return image


@pytest.mark.parametrize(
    ("bits", "pixels"),
    [
        # The first pixels of packet 2 of the lower right part, which count up modulo 2^bits.
        (4, "10 32 54 76"),
        (8, "00 01 02 03"),
        # Byte 8192: the rest of pixel 5461, which is 0x555, and pixels 0x556, 0x557, 0x558.
        (12, "55 56 75 55 58"),
        (16, "0010 0110 0210"),
        (32, "00080600 01080600"),
    ],
)
def test_eiger_packets(bits: int, pixels: str) -> None:
    name = f"eiger-{bits}bit"
    eiger = INSTRUMENTS[name]
    counted = (np.arange(4 * 256 * 512) % 2**bits).astype(eiger.dtype).reshape(4, 256, 512)
    packets = eiger.packets(eiger_image(counted)[None], 6)
    made = packets[4 * 2 + 3].tobytes()
    assert made[:8] == bytes([7, *[0] * 7])
    assert made[12:16] == bytes([2, 0, 0, 0])
    assert made[32:38] == bytes([1, 0, 1, 0, 1, 0])
    assert made[46:48] == bytes([1, 2])
    assert len(made) == 48 + 4096
    assert made[48:].startswith(bytes.fromhex(pixels))


def test_a_mythen_packet() -> None:
    made = packet("mythen", 258, 3)
    assert made[:8] == bytes([3, 1, *[0] * 6])
    assert made[12:16] == bytes([3, 0, 0, 0])
    assert made[46:48] == bytes([6, 2])
    # 256 counters a packet: 0x300, 0x301.
    assert made[48:54] == bytes.fromhex("000300 010300")
    assert len(made) == 48 + 768


@pytest.mark.parametrize("name", ["eiger-8bit", "jungfrau-500k", "jungfrau-2m", "jungfrau-4m"])
def test_simulated_detectors_have_the_geometry_of_their_profiles(name: str) -> None:
    (plan,) = load_config(profiles.path(name)).reorder_configs
    instrument = INSTRUMENTS[name]
    assert plan.frame is not None and instrument.layout is not None
    assert plan.frame.shape == instrument.shape
    np.testing.assert_array_equal(instrument.layout.pixels, module_pixels(plan.frame))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        # Row and column of the first pixel of each stream's part.
        ("eiger-16bit", [(0, 0), (0, 516), (258, 0), (258, 516)]),
        ("jungfrau-500k", [(0, 0), (258, 0)]),
        ("jungfrau-2m", [(550 * m + half, 0) for m in range(4) for half in (0, 258)]),
        (
            "jungfrau-4m",
            [(550 * m + half, c) for c in (0, 1038) for m in range(4) for half in (0, 258)],
        ),
    ],
)
def test_images_have_the_parts_of_streams_where_they_are(
    name: str, parts: list[tuple[int, int]]
) -> None:
    instrument = INSTRUMENTS[name]
    layout = instrument.layout
    assert layout is not None
    streams = np.zeros(instrument.shape, np.int64)
    sent = np.repeat(np.arange(len(parts)) + 1, 256 * (512 if name[0] == "e" else 1024))
    streams.reshape(-1)[layout.pixels] = sent
    wanted = np.zeros(instrument.shape, np.int64)
    for number, (row, column) in enumerate(parts):
        for chip in range(2 if name[0] == "e" else 4):
            at = column + 258 * chip
            wanted[row : row + 256, at : at + 256] = number + 1
    np.testing.assert_array_equal(streams, wanted)
    np.testing.assert_array_equal(layout.gaps, wanted == 0)


@pytest.mark.parametrize("name", ["eiger-8bit", "jungfrau-2m", "jungfrau-4m"])
def test_rings_go_on_over_the_edges_of_modules(name: str) -> None:
    instrument = INSTRUMENTS[name]
    (image,) = instrument.frames(0, 1, np.random.default_rng(1)).astype(float)
    assert instrument.layout is not None
    gaps = instrument.layout.gaps
    assert image[gaps].max() == 0
    # Rows and columns without gaps of modules: neighbours are alike, but for two pixels of a gap.
    rows = image[~gaps.all(axis=1)][:, ~gaps.all(axis=0)]
    assert np.abs(np.diff(rows, axis=0)).mean(axis=1).max() < 0.2 * image.max()
    assert np.abs(np.diff(rows, axis=1)).mean(axis=0).max() < 0.2 * image.max()


def test_a_spead_packet() -> None:
    header = bytes.fromhex(
        "53 04 02 06 0000 0005"  # magic, version, 16 + 48 bits of an item, 5 items
        "8001 000000000104"  # heap counter 260, from 1 on; the first bit: a value
        "8002 000000010000"  # heap size: 65536 bytes
        "8003 000000003000"  # heap offset: 12288, of packet 3
        "8004 000000001000"  # payload length: 4096 bytes
        "1000 000000000000"  # item 0x1000 is at the beginning of the heap
    )
    made = packet("spead", 259, 3)
    assert made[:48] == header
    assert made[48:] == (np.arange(3 * 4096, 4 * 4096) % 256).astype(np.uint8).tobytes()


def test_another_spead_receiver_reads_the_heaps() -> None:
    spead = INSTRUMENTS["spead"]
    frames = spead.frames(0, 3, np.random.default_rng(1))
    stream = spead2.recv.Stream(spead2.ThreadPool())
    stream.add_buffer_reader(spead.packets(frames, 0).tobytes())
    heaps = list(stream)
    assert [heap.cnt for heap in heaps] == [1, 2, 3]
    for heap, sent in zip(heaps, frames, strict=True):
        (item,) = [item for item in heap.get_items() if item.id == 0x1000]
        assert bytes(item) == sent.tobytes()


def test_a_vita_49_packet() -> None:
    header = bytes.fromhex(
        "1"  # IF data with a stream identifier
        "0"  # no class identifier, no trailer
        "3"  # no seconds; the fraction is a free-running count
        "2"  # packet count: packet 34 modulo 16
        "0104"  # 260 words of 32 bits
        "00000001"  # stream 1
        "000000000000c400"  # number of its first sample: 32768 + 34 * 512 = 50176
    )
    made = packet("vita49", 1, 34)
    assert made[:16] == header
    assert made[16:] == np.arange(34 * 512, 35 * 512).astype(">i2").tobytes()


def test_an_ecpri_packet() -> None:
    header = bytes.fromhex(
        "10"  # revision 1, no other message follows
        "00"  # IQ data
        "1004"  # 4100 bytes after the common header
        "0001"  # PC_ID
        "0015"  # SEQ_ID: 4097 frames of 16 messages, and 5 messages, modulo 65536
    )
    made = packet("ecpri", 4097, 5)
    assert made[:8] == header
    assert made[8:] == np.arange(5 * 2048, 6 * 2048).astype(">i2").tobytes()


def test_gige_vision_packets() -> None:
    leader = bytes.fromhex(
        "0000 0003"  # no error; block 3, from 1 on
        "01 000000"  # leader; packet 0
        "0000 0001"  # an image
        "00000000001e8480"  # 2 ms, in ns: 1000 frames per second
        "01080001"  # Mono8
        "00000280 000001e0"  # 640 x 480
        "00000000 00000000 0000 0000"  # from its first pixel on; no padding
    )
    assert packet("gige-vision", 2, 0) == leader
    full = packet("gige-vision", 2, 17)
    assert full[:8] == bytes.fromhex("0000 0003 03 000011")  # payload; packet 17
    assert full[8:] == (np.arange(16 * 1464, 17 * 1464) % 256).astype(np.uint8).tobytes()
    short = packet("gige-vision", 65535, 210)
    # 65535 is followed by 1: 0 is no block.
    assert short[:8] == bytes.fromhex("0000 0001 03 0000d2")
    assert short[8:] == (np.arange(209 * 1464, 640 * 480) % 256).astype(np.uint8).tobytes()
    trailer = bytes.fromhex("0000 0003 02 0000d3 0000 0001 000001e0")
    assert packet("gige-vision", 2, 211) == trailer


def test_gige_vision_packets_with_extended_ids() -> None:
    made = packet("gige-vision-mono12p", 2**40, 2)
    assert made[:20] == bytes.fromhex(
        "0000 0000"  # no error; no flags
        "83 000000"  # extended IDs, payload
        "0000010000000001"  # block 2^40 + 1
        "00000002"  # packet 2
    )
    # The first two pixels of packet 2, 5968 and 5969 of the image: 0x750 and 0x751.
    assert made[20:23] == bytes.fromhex("50 17 75")
    assert len(made) == 20 + 8952
    assert len(packet("gige-vision-mono12p", 0, 220)) == 20 + 5592


@pytest.mark.parametrize("name", ["gige-vision", "gige-vision-mono12p"])
def test_wireshark_dissects_gige_vision(name: str, tmp_path: Path) -> None:
    camera = INSTRUMENTS[name]
    packets = camera.packets(camera.frames(0, 2, np.random.default_rng(1)), 6)
    lines = []
    for row, size in zip(packets, np.tile(camera.sizes(), 2).tolist(), strict=True):
        (frame,) = ethernet.udp_frames(
            row[None, :size],
            src_mac="02:00:00:00:00:01",
            dst_mac="02:00:00:00:00:02",
            src_ip="192.0.2.1",
            dst_ip="192.0.2.2",
            src_port=50101,
            dst_port=camera.port,
        )
        lines.append("000000 " + frame.tobytes().hex(" "))
    text, capture = tmp_path / "packets.txt", tmp_path / "packets.pcap"
    text.write_text("\n".join(lines) + "\n")
    subprocess.run(["text2pcap", "-q", text, capture], check=True, capture_output=True)
    block, number = ("16", "24") if name == "gige-vision" else ("64", "32")
    fields = ["format", f"blockid{block}", f"packetid{number}", "pixel", "sizex", "sizey"]
    command = ["tshark", "-r", capture, "--enable-heuristic", "gvsp_udp", "-T", "fields"]
    command += ["-E", "separator=,", *(f"-egvsp.{each}" for each in fields)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    # It takes a port for that of a camera after its first payload packet.
    second = told[len(told) // 2 :]
    last = camera.packets_per_frame - 1
    flag = 0 if name == "gige-vision" else 0x80
    pixels = "0x01080001,640,480" if name == "gige-vision" else "0x010c0047,1280,1024"
    assert second[0] == f"0x{flag + 1:02x},8,0,{pixels}"
    assert second[1:-1] == [f"0x{flag + 3:02x},8,{i},,," for i in range(1, last)]
    assert second[-1] == f"0x{flag + 2:02x},8,{last},,,{pixels.rpartition(',')[2]}"
