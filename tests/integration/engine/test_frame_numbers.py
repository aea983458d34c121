"""What the numbers of frames mean, and what becomes of those that nobody takes."""

import threading
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401 - has h5py read compressed frames
import numpy as np
import pytest
from numbered_camera import BYTES, PACKETS, camera, loopback, together
from numpy.typing import NDArray
from waiting import wait_for

from daqiri_ophyd.engine import (
    ConfigError,
    Engine,
    InvalidParameterError,
    Recorder,
    check_config,
    examine_frames,
)

WRITERS: list[dict[str, Any]] = [
    {"writer": writer, "compression": compression}
    for writer in ("buffered", "direct")
    for compression in ("none", "bitshuffle-lz4")
]
COLUMNS = (
    *("batch", "packets", "missing", "lossy", "timed_out"),
    *("valid", "timestamp", "last_timestamp"),
)


def live(recorder: Recorder) -> NDArray[np.uint8]:
    """Return the images that another process can read now."""
    with h5py.File(recorder.snapshot().path, swmr=True) as file:
        return file["entry/data/data"][:]


def columns(recorder: Recorder, *names: str) -> list[list[int]]:
    with h5py.File(recorder.files()[0].path) as file:
        return [file["entry/data"][name][:].tolist() for name in names]


def test_images_are_recorded_in_order_and_skipped_ones_are_told(tmp_path: Path) -> None:
    with camera() as source:
        recorder = source.plan.record(tmp_path, held=True)
        recorder.acquire(9)
        # Image 2 lacks a packet, and image 5 all of them.
        source.send(range(11), lost=(9, 20, 21, 22, 23))
        wait_for(lambda: recorder.snapshot().acquired == 9)
        recorder.stop()
        batches, missing, lossy = columns(recorder, "batch", "missing", "lossy")
        assert batches == list(range(9))
        assert missing == [0, 0, 1, 0, 0, PACKETS, 0, 0, 0]
        assert lossy == [False] * 5 + [True] * 2 + [False] * 2
        assert source.plan.counters().skipped == 1
        (file,) = recorder.files()
        assert file.dropped == 1


@pytest.mark.parametrize("roll", [{}, {"roll_frames": 5}, {"roll_bytes": 5 * PACKETS * BYTES}])
@pytest.mark.parametrize("options", WRITERS, ids=str)
def test_row_i_is_image_i(tmp_path: Path, options: dict[str, Any], roll: dict[str, Any]) -> None:
    absent = [2, 3, 4, 5, 8, 12, 13]
    with camera(fill=9) as source:
        recorder = source.plan.record(tmp_path, held=True, **options, **roll)
        source.send([90])
        wait_for(lambda: recorder.snapshot().left_out == 1)
        recorder.acquire(14)
        for image in {*range(100, 117)} - {100 + row for row in absent}:
            source.send([image], image)
        wait_for(lambda: recorder.snapshot().acquired == 14)
        assert len(live(recorder)) == recorder.snapshot().flushed == (4 if roll else 14)
        recorder.stop()
        snapshot, counters = recorder.snapshot(), source.plan.counters()
    files = recorder.files()
    assert [file.frames for file in files] == ([5, 5, 4] if roll else [14])
    rows = {name: together(files, name) for name in ("data", *COLUMNS)}
    expected = np.array([9 if row in absent else 100 + row for row in range(14)])
    assert (rows["data"] == expected[:, np.newaxis, np.newaxis]).all()
    there = expected != 9
    assert rows["batch"].tolist() == [*range(100, 114)]
    assert rows["packets"].tolist() == (PACKETS * there).tolist()
    assert rows["missing"].tolist() == (PACKETS * ~there).tolist()
    assert rows["valid"].tolist() == [[(1 << PACKETS) - 1 if came else 0] for came in there]
    assert (rows["lossy"] == (~there | np.insert(~there[:-1], 0, False))).all()
    assert not rows["timed_out"].any()
    for name in ("timestamp", "last_timestamp"):
        assert (np.diff(rows[name]) >= 0).all()
        assert (rows[name] > 0).all()
    assert (snapshot.frames, snapshot.packets) == (14, PACKETS * 7)
    assert (snapshot.missing, snapshot.dropped) == (PACKETS * 7, 0)
    assert (counters.skipped, counters.lost) == (7, 0)
    for file in files:
        found = examine_frames(file.path)
        assert (found.frames, found.packets) == (file.frames, file.packets)
        assert (found.t_first_ns, found.t_last_ns) == (file.t_first_ns, file.t_last_ns)
    assert sum(examine_frames(file.path).empty for file in files) == 7


@pytest.mark.parametrize("options", WRITERS, ids=str)
def test_absent_images_are_rewound_and_split(tmp_path: Path, options: dict[str, Any]) -> None:
    with camera() as source:
        recorder = source.plan.record(tmp_path, held=True, **options)

        def acquire(images: list[int]) -> None:
            recorder.acquire(6)
            source.send(images, 1)
            wait_for(lambda: recorder.snapshot().acquired == 6)

        acquire([0, 1, 3, 4, 6, 7, 8])  # not 2 and 5
        recorder.rewind(3)
        acquire([0, 3, 4, 6, 7, 8])  # not 1, 2 and 5
        recorder.split(4)
        acquire([0, 1, 2, 3, 6, 7, 8])  # not 4 and 5
        recorder.stop()
    first, second = recorder.files()
    came = [[1, 1, 0, 1], [0, 0, 1, 1, 0, 1, 1, 1, 1, 0, 0]]
    for file, expected in zip((first, second), came, strict=True):
        assert together([file], "packets").tolist() == [PACKETS * each for each in expected]
        assert together([file], "data")[:, 0, 0].tolist() == expected
        assert (file.frames, file.packets) == (len(expected), PACKETS * sum(expected))
    assert together([second], "batch").tolist() == [1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_row_0_is_the_expected_first_image(tmp_path: Path, lost: int) -> None:
    with camera(fill=9) as source, source.plan.record(tmp_path, held=True) as recorder:
        for exposure in (1, 2):
            recorder.acquire(5, first_number=1)
            source.send([0], 7)  # of before
            source.send(range(1 + lost, 8), exposure)
            wait_for(lambda: recorder.snapshot().acquired == 5)
    data = together(recorder.files(), "data")[:, 0, 0]
    row = [9] * lost + [0] * (5 - lost)
    assert data.tolist() == [each or 1 for each in row] + [each or 2 for each in row]
    assert together(recorder.files(), "batch").tolist() == [1, 2, 3, 4, 5] * 2
    counters = source.plan.counters()
    assert (counters.early, counters.skipped) == (2 * PACKETS, 2 * lost)


@pytest.mark.parametrize(("number", "reason"), [
    (-1, "first_number is -1; accepted is 0 or more"),
    (2**64, f"first_number is {2**64}; accepted is less than {2**64}"),
    (256, "the number of the first frame is 256; reorder plan 'images' has numbers up to 255"),
])  # fmt: skip
def test_a_first_number_that_no_image_has_is_refused(
    tmp_path: Path, number: int, reason: str
) -> None:
    field = {"bit_offset": 24, "bit_width": 8, "base": "udp_payload"}
    method = loopback()["interfaces"][0]["rx"]["reorder_configs"][0]["method"]
    short = method["batch_packet_number"] | {"batch_number": field}
    with (
        camera(method={"batch_packet_number": short}) as source,
        source.plan.record(tmp_path, held=True) as recorder,
    ):
        recorder.acquire(2)
        source.send([3])
        with pytest.raises(InvalidParameterError, match=reason):
            recorder.acquire(2, first_number=number)
        source.send([4])
        wait_for(lambda: recorder.snapshot().acquired == 2)
    assert columns(recorder, "batch") == [[3, 4]]


def test_a_pause_of_a_recorder_leaves_no_rows(tmp_path: Path) -> None:
    with camera() as source:
        recorder = source.plan.record(tmp_path, held=True)
        recorder.acquire(6)
        source.send([0, 1])
        wait_for(lambda: recorder.snapshot().frames == 2)
        recorder.pause()
        source.send([2, 3])
        wait_for(lambda: recorder.snapshot().left_out == 2)
        recorder.resume()
        source.send([4, 6, 7, 8])
        wait_for(lambda: recorder.snapshot().acquired == 6)
        recorder.stop()
        assert columns(recorder, "batch") == [[0, 1, 4, 5, 6, 7]]


def test_images_that_begin_anew_in_an_acquisition_are_its_next_rows(tmp_path: Path) -> None:
    with camera() as source:
        recorder = source.plan.record(tmp_path, held=True)
        recorder.acquire(8)
        source.send([5, 7, 8])
        wait_for(lambda: source.plan.counters().complete == 3)
        port = source.engine.ports[0]
        # The first packet after this pause begins the numbers anew.
        packets = source.packets_of([0, 1, 3, 4, 5])
        assert port.tx[0].send(packets, launch_times=[port.now() + 400_000_000] * len(packets))
        wait_for(lambda: recorder.snapshot().acquired == 8)
        recorder.stop()
        assert columns(recorder, "batch") == [[5, 6, 7, 8, 0, 1, 2, 3]]
        assert source.plan.counters().restarts == 1


def test_more_absent_images_than_a_detector_leaves_out_have_no_rows(tmp_path: Path) -> None:
    with camera() as source:
        recorder = source.plan.record(tmp_path, held=True)
        recorder.acquire(0)
        far = 5_000_000
        source.send([0, 3, 4, far, far + 2, far + 3])
        wait_for(lambda: recorder.snapshot().frames == 9)
        recorder.stop()
        batches, lossy = columns(recorder, "batch", "lossy")
        assert batches == [0, 1, 2, 3, 4, far, far + 1, far + 2, far + 3]
        assert lossy == [False, True, True, True, False, True, True, True, False]


@pytest.mark.parametrize("images", [1, 2, 10])
def test_exposures_that_count_from_zero_are_acquired(tmp_path: Path, images: int) -> None:
    with camera() as source:
        recorder = source.plan.record(tmp_path, held=True)
        for exposure in range(1, 6):
            recorder.acquire(images)
            # The third one lacks its last packet, without which it does not end.
            if exposure == 3:
                source.send(range(images), exposure, lost=(images * PACKETS - 1,))
                wait_for(lambda: recorder.snapshot().frames == 3 * images - 1)
            else:
                source.send(range(images), exposure)
                wait_for(lambda: recorder.snapshot().acquired == images)
        recorder.stop()
        with h5py.File(recorder.files()[0].path) as file:
            data = file["entry/data/data"][:]
            assert file["entry/data/missing"][:].sum() == 0
        assert len(data) == 5 * images - 1
        for image in data:
            assert len(np.unique(image)) == 1
        assert source.plan.counters().restarts == 0


def test_exposures_that_count_from_zero_are_received_after_pauses() -> None:
    with camera() as source, source.plan.frames(timeout=0.3) as taken:
        for exposure in range(1, 5):
            source.send([0], exposure)
            got = [(frame.batch, frame.missing, np.unique(frame.data).tolist()) for frame in taken]
            assert got == [(0, 0, [exposure])]
        assert source.plan.counters().restarts == 3


def test_a_slow_camera_has_whole_images_without_a_timeout() -> None:
    """The timeout of the queue's bursts is none of the plan."""
    with camera() as source, source.plan.frames(timeout=60.0) as taken:
        port = source.engine.ports[0]
        begin = port.now() + 50_000_000
        times = [begin + i * 10_000_000 + k * 2_000_000 for i in range(5) for k in range(PACKETS)]
        assert port.tx[0].send(source.packets_of(range(5)), launch_times=times) == 5 * PACKETS
        got = [next(taken) for _ in range(5)]
        assert [(frame.batch, frame.missing, frame.timed_out) for frame in got] == [
            (image, 0, False) for image in range(5)
        ]


@pytest.mark.parametrize("by", ["recorder", "consumer"])
def test_frames_of_one_packet_are_lost_where_nobody_is_fast_enough(tmp_path: Path, by: str) -> None:
    received = []
    with camera(1, 64, buffers=16) as source:
        if by == "recorder":
            recorder = source.plan.record(tmp_path)
        else:
            taken = source.plan.frames(timeout=60.0)
            thread = threading.Thread(target=lambda: received.extend(f.batch for f in taken))
            thread.start()
        for first in range(0, 40 * 4096, 4096):
            source.send(range(first, first + 4096))
        if by == "recorder":
            recorder.stop()
            received, *_ = columns(recorder, "batch")
        else:
            source.engine.close()
            thread.join()
        counters = source.plan.counters()
    assert counters.packets == counters.complete + counters.lost == source.sent
    assert (counters.placed, counters.no_buffer) == (counters.complete, counters.lost)
    assert len(received) == counters.complete
    assert (np.diff(received) > 0).all()


def test_packets_from_before_an_acquisition_are_in_none_of_its_frames(tmp_path: Path) -> None:
    with camera() as source:
        recorder = source.plan.record(tmp_path, held=True)
        source.send([7], 1, lost=(2, 3))
        recorder.acquire(2)
        # The rest of image 7, whose first packets came before.
        source.send([7], 1, lost=(0, 1))
        source.send([8, 9], 2)
        wait_for(lambda: recorder.snapshot().acquired == 2)
        recorder.stop()
        assert columns(recorder, "batch", "missing") == [[8, 9], [0, 0]]
        counters = source.plan.counters()
        assert (counters.early, counters.skipped, counters.incomplete) == (2, 0, 1)


def test_a_counter_that_one_frame_uses_up_is_refused() -> None:
    field = {"bit_offset": 0, "bit_width": 8, "base": "udp_payload"}
    method = {"seq_packets_per_batch": {"sequence_number": field, "packets_per_batch": 256}}
    with pytest.raises(ConfigError, match=r"256\s+packets of a batch use all numbers"):
        Engine.open(loopback(256, method=method))


def test_a_timeout_that_few_cameras_keep_is_warned_of() -> None:
    for timeout_us, warned in ((9999, True), (10_000, False), (0, False)):
        report = check_config(loopback(timeout_us=timeout_us))
        assert report.ok
        assert [warning.path for warning in report.warnings] == (
            ["interfaces[0].rx.reorder_configs[0].timeout_us"] if warned else []
        )
