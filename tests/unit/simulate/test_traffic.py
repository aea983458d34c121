"""Frames, and what happens to their packets, follow from the seed."""

import numpy as np
import pytest

from daqiri_ophyd import profiles
from daqiri_ophyd.simulate import INSTRUMENTS, Disturbance, Traffic

ALL = Disturbance(loss=0.1, duplicates=0.1, shuffle=64)


@pytest.mark.parametrize("name", sorted(INSTRUMENTS))
def test_the_same_seed_makes_the_same_packets(name: str) -> None:
    def packets(seed: int) -> bytes:
        traffic = Traffic(INSTRUMENTS[name], 3, disturbance=ALL, seed=seed)
        return b"".join(chunk.packets.tobytes() for chunk in traffic)

    assert packets(5) == packets(5)
    assert packets(5) != packets(6)
    assert packets(5)[-64:] != packets(6)[-64:]


@pytest.mark.parametrize("name", sorted(INSTRUMENTS))
def test_every_instrument_has_a_profile_and_frames_that_differ(name: str) -> None:
    assert name in profiles.names()
    (frames,) = [np.concatenate([c.frames for c in Traffic(INSTRUMENTS[name], 3)])]
    assert (frames.shape[1:], frames.dtype) == (INSTRUMENTS[name].shape, INSTRUMENTS[name].dtype)
    assert (frames[0] != frames[1]).any() and (frames[1] != frames[2]).any()


def test_lost_and_duplicated_packets_are_counted() -> None:
    for chunk in Traffic(INSTRUMENTS["jungfrau"], 20, disturbance=ALL):
        packets = np.bincount(chunk.order, minlength=len(chunk.frames) * 128)
        assert chunk.lost == (packets == 0).sum() > 0
        assert chunk.duplicated == (packets == 2).sum() > 0
        assert packets.max() == 2
        # Blocks of 64, each out of order; no packet is in an earlier or later block.
        blocks = np.split(chunk.order, range(64, len(chunk.order), 64))
        for one, other in zip(blocks[:-1], blocks[1:], strict=True):
            assert (np.diff(one) < 0).any() and one.max() <= other.min()


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"loss": 1.5}, "loss is 1.5; accepted is 0 to 1"),
        ({"duplicates": -0.1}, "duplicates is -0.1; accepted is 0 to 1"),
        ({"shuffle": -1}, r"shuffle is -1; accepted is 0 \(in order\) and more"),
    ],
)
def test_what_is_out_of_range_is_refused(keys: dict[str, float], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Disturbance(**keys)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("restart", [1, 3, 7])
def test_numbers_begin_anew_after_so_many_frames(restart: int) -> None:
    detector = INSTRUMENTS["jungfrau"]
    # More frames than there are in a chunk.
    traffic = Traffic(detector, 20, first=2, restart=restart)
    chunks = list(traffic)
    packets = np.concatenate([chunk.packets for chunk in chunks])
    numbers = np.ascontiguousarray(packets[::128, :8]).view("<u8").ravel()
    np.testing.assert_array_equal(numbers, 3 + np.arange(20) % restart)
    begins = np.cumsum([0, *(len(chunk.frames) for chunk in chunks)])[:-1]
    anew = [int(at) for at, chunk in zip(begins, chunks, strict=True) if chunk.begins_anew]
    assert anew == list(range(restart, 20, restart))
    frames = np.concatenate([chunk.frames for chunk in chunks])
    assert len({frame.tobytes() for frame in frames}) == 20
    for number in range(2, 22):
        np.testing.assert_array_equal(traffic.frame(number), frames[number - 2])


def test_a_negative_number_of_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="restart is -1; accepted is 0 and more"):
        Traffic(INSTRUMENTS["spead"], 1, restart=-1)


@pytest.mark.parametrize("name", sorted(INSTRUMENTS))
def test_sizes_are_those_of_the_packets_of_a_frame(name: str) -> None:
    instrument = INSTRUMENTS[name]
    sizes = instrument.sizes()
    assert len(sizes) == instrument.packets_per_frame
    assert sizes.max() == instrument.packet_size
    packets = instrument.packets(next(iter(Traffic(instrument, 1))).frames, 0)
    for packet, size in zip(packets, sizes, strict=True):
        assert not packet[size:].any()


def test_a_frame_can_be_made_again() -> None:
    traffic = Traffic(INSTRUMENTS["jungfrau"], 10, first=3, disturbance=ALL, seed=2)
    frames = np.concatenate([chunk.frames for chunk in traffic])
    for number in (3, 9, 12):
        assert np.array_equal(traffic.frame(number), frames[number - 3])
    with pytest.raises(ValueError, match="frame 13 is not sent; accepted is 3 to 12"):
        traffic.frame(13)
