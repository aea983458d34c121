"""Packets of instruments have the bytes that their formats prescribe, written out by hand."""

import numpy as np
import spead2
import spead2.recv

from daqiri_ophyd.simulate import INSTRUMENTS


def packet(name: str, frame: int, number: int) -> bytes:
    """Return a packet of a frame whose elements count up."""
    instrument = INSTRUMENTS[name]
    elements = np.arange(np.prod(instrument.shape)).astype(instrument.dtype)
    packets = instrument.packets(elements.reshape(1, *instrument.shape), frame)
    assert packets.shape == (instrument.packets_per_frame, instrument.packet_size)
    return packets[number].tobytes()


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
