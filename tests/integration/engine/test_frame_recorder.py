"""Frames of reorder plans in HDF5 files."""

import contextlib
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401 - has h5py read compressed frames
import numpy as np
import pytest
from numpy.typing import NDArray
from waiting import wait_for

from daqiri_ophyd.engine import (
    Engine,
    FrameReductions,
    InvalidParameterError,
    NotReadyError,
    PcapFile,
    Recorder,
    RecorderGroup,
    cut_frames,
    examine_frames,
)

Build = Callable[..., dict[str, Any]]
Frames = Callable[..., NDArray[np.uint8]]

PACKETS, BYTES = 8, 512
"""Packets of a frame, and its bytes."""
COLUMNS = [
    "batch",
    "timestamp",
    "last_timestamp",
    "packets",
    "missing",
    "timed_out",
    "lossy",
    "valid",
]
KINDS = [
    {"compression": compression, "writer": writer}
    for compression in ("none", "bitshuffle-lz4")
    for writer in ("buffered", "direct")
]


def name_of(options: dict[str, Any]) -> str:
    return " ".join(options.values())


def images(packets: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Return the frames that packets come to."""
    payloads = np.ascontiguousarray(packets[:, 46:]).view(np.uint16)
    return payloads.reshape(-1, PACKETS, 32).copy()


class Source:
    """An engine with a plan, and packets for it."""

    def __init__(self, engine: Engine, packets: NDArray[np.uint8]) -> None:
        self.engine, self.packets = engine, packets
        self.plan = engine.ports[0].reorder["images"]
        self.sent = 0

    def send(self, frames: int, *, without: int | None = None) -> NDArray[np.uint16]:
        """Send the packets of the next frames, but for one; return the frames."""
        rows = np.arange(self.sent * PACKETS, (self.sent + frames) * PACKETS)
        self.sent += frames
        sent = self.packets[rows]
        udp = self.engine.config.stream_type == "socket"
        kept = np.delete(sent, without, axis=0) if without is not None else sent
        assert self.engine.ports[-1].tx[0].send(kept[:, 42:].copy() if udp else kept) == len(kept)
        return images(sent)


@pytest.fixture
def source(loopback: Build, with_frames: Build, made_frames: Frames) -> Iterator[Source]:
    with Engine.open(with_frames(loopback())) as engine:
        yield Source(engine, made_frames(200 * PACKETS, 68))


def metadata(path: Path) -> dict[str, Any]:
    return json.loads(Path(f"{path}.json").read_text())


def open_files() -> set[str]:
    """Return what this process has open."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return found


def read(path: Path) -> dict[str, NDArray[Any]]:
    with h5py.File(path) as file:
        return {name: file["entry/data"][name][...] for name in ["data", *COLUMNS]}


@pytest.mark.parametrize("writer", ["buffered", "auto"])
@pytest.mark.parametrize("stream", ["loopback", "dpdk", "udp"])
def test_a_file_has_the_frames_and_what_is_known_of_them(
    stream: str,
    writer: Any,
    request: pytest.FixtureRequest,
    with_frames: Build,
    made_frames: Frames,
    tmp_path: Path,
) -> None:
    config = with_frames(request.getfixturevalue(stream)())
    with Engine.open(config) as engine:
        source = Source(engine, made_frames(200 * PACKETS, 68))
        begin = engine.ports[0].now()
        with source.plan.record(tmp_path, writer=writer) as recorder:
            with pytest.raises(NotReadyError, match="a recorder that writes .*/frames_"):
                source.plan.frames()
            with pytest.raises(NotReadyError, match="a recorder that writes .*/frames_"):
                source.plan.record(tmp_path, "other")
            # Frame 1 lacks packet 3; packets of frames behind it push it out of the window.
            wanted = source.send(20, without=PACKETS + 3)
            wanted[1, 3] = 0x0707
            wait_for(lambda: recorder.snapshot().frames == 20)
        end = engine.ports[0].now()
        counters = source.plan.counters()
    state, [file] = recorder.snapshot(), recorder.files()
    assert (state.frames, state.packets, state.missing) == (20, 159, 1)
    assert (state.bytes, state.dropped, state.left_out, state.error) == (20 * BYTES, 0, 0, "")
    assert file.path == tmp_path / "frames_000000.h5"
    assert str(file.path) not in open_files()
    assert (file.frames, file.packets, file.missing, file.bytes) == (20, 159, 1, 20 * BYTES)
    found = read(file.path)
    order = np.argsort(found["batch"])
    assert found["data"].dtype == np.uint16
    np.testing.assert_array_equal(found["data"][order], wanted)
    np.testing.assert_array_equal(found["batch"][order], np.arange(20))
    lacks = (np.arange(20) == 1).astype(int)
    np.testing.assert_array_equal(found["missing"][order], lacks)
    np.testing.assert_array_equal(found["packets"][order], PACKETS - lacks)
    np.testing.assert_array_equal(found["timed_out"], 0)
    assert found["lossy"].dtype == bool and not found["lossy"].any()
    valid = np.unpackbits(found["valid"], axis=1, bitorder="little")[order]
    np.testing.assert_array_equal(np.argwhere(valid == 0), [[1, 3]])
    assert (begin <= found["timestamp"]).all()
    assert (found["timestamp"] <= found["last_timestamp"]).all()
    assert (found["last_timestamp"] <= end).all()
    told = metadata(file.path)
    assert {key: told[key] for key in ("frames", "packets", "missing", "bytes", "dropped")} == {
        "frames": 20,
        "packets": 159,
        "missing": 1,
        "bytes": 20 * BYTES,
        "dropped": 0,
    }
    assert told["format"] == "hdf5"
    assert told["shape"] == [PACKETS, 32] and told["dtype"] == "uint16"
    assert told["reorder_plan"] == f"{engine.ports[0].name}/images"
    assert [flow["id"] for flow in told["flows"]] == [7]
    assert told["counters_end"]["complete"] == counters.complete == 19
    assert (told["t_first_ns"], told["t_last_ns"]) == (file.t_first_ns, file.t_last_ns)
    assert file.t_first_ns == found["timestamp"][0]
    assert file.t_last_ns == found["last_timestamp"][-1]


def test_files_are_nexus(source: Source, tmp_path: Path) -> None:
    with source.plan.record(tmp_path) as recorder:
        source.send(2)
        wait_for(lambda: recorder.snapshot().frames == 2)
    with h5py.File(recorder.files()[0].path) as file:
        groups = ["/", "entry", "entry/instrument", "entry/instrument/images", "entry/data"]
        kinds = [file[name].attrs["NX_class"] for name in groups]
        assert kinds == ["NXroot", "NXentry", "NXinstrument", "NXdetector", "NXdata"]
        assert file.attrs["default"] == "entry" and file["entry"].attrs["default"] == "data"
        start = np.datetime64(int(file["entry/data/timestamp"][0]), "ns")
        assert file["entry/start_time"].asstr()[()] == f"{start}Z"
        assert file["entry/start_time"].shape == ()
        plot = file["entry/data"]
        assert plot.attrs["signal"] == "data"
        assert list(plot.attrs["axes"]) == ["timestamp", *["."] * (plot["data"].ndim - 1)]
        assert plot.attrs["timestamp_indices"] == 0
        assert dict(plot["timestamp"].attrs) == {
            "units": "ns",
            "start": "1970-01-01T00:00:00Z",
            "long_name": "arrival of the first packet (ns since 1970, UTC)",
        }
        assert dict(plot["data"].attrs) == {"units": "counts", "long_name": "images"}
        assert "bit i of a row" in plot["valid"].attrs["description"]
        end = np.datetime64(int(plot["last_timestamp"][-1]), "ns")
        assert file["entry/end_time"].asstr()[()] == f"{end}Z"
        assert file["entry/program_name"].attrs["version"] == file.attrs["creator_version"]
        detector = file["entry/instrument/images"]
        for name in ["data", *COLUMNS]:
            assert file["entry/data"][name] == detector[name]
        assert detector["timestamp"].attrs["units"] == "ns"
        assert detector["data"].chunks == (1, PACKETS, 32)


@pytest.mark.parametrize("limit", [{"roll_frames": 4}, {"roll_bytes": 4 * BYTES - 1}])
def test_files_are_complete_after_so_many_frames(
    source: Source, limit: dict[str, int], tmp_path: Path
) -> None:
    with source.plan.record(tmp_path, max_frames=10, **limit) as recorder:
        wanted = source.send(12)
        wait_for(lambda: not recorder.snapshot().running)
    state, files = recorder.snapshot(), recorder.files()
    assert state.limit_reached and state.frames == 10
    assert [file.frames for file in files] == [4, 4, 2]
    assert [file.path.name for file in files] == [f"frames_00000{n}.h5" for n in range(3)]
    found = np.concatenate([read(file.path)["data"] for file in files])
    np.testing.assert_array_equal(found, wanted[:10])


def test_files_are_complete_after_so_much_time(source: Source, tmp_path: Path) -> None:
    with source.plan.record(tmp_path, roll_seconds=0.2) as recorder:
        source.send(3)
        wait_for(lambda: recorder.snapshot().files == 1)
        source.send(2)
        wait_for(lambda: recorder.snapshot().frames == 5 and recorder.snapshot().files >= 2)
    # A busy machine may complete a file between two frames.
    assert sum(file.frames for file in recorder.files()) == 5


def test_paused_frames_are_left_out(source: Source, tmp_path: Path) -> None:
    with source.plan.record(tmp_path) as recorder:
        source.send(2)
        wait_for(lambda: recorder.snapshot().frames == 2)
        recorder.pause()
        source.send(3)
        wait_for(lambda: recorder.snapshot().left_out == 3)
        recorder.resume()
        source.send(1)
        wait_for(lambda: recorder.snapshot().frames == 3)
    [file] = recorder.files()
    assert (file.frames, file.left_out, file.dropped) == (3, 3, 0)
    assert metadata(file.path)["left_out_by_reason"] == {"paused": 3}
    np.testing.assert_array_equal(read(file.path)["batch"], [0, 1, 5])


def test_recordings_that_cannot_be_are_refused(
    source: Source, loopback: Build, with_frames: Build, tmp_path: Path
) -> None:
    record = source.plan.record
    # An option of earlier versions.
    for layout in ("contiguous", "chunked"):
        with pytest.raises(InvalidParameterError) as refused:
            record(tmp_path, layout=layout)  # type: ignore[arg-type]
        assert str(refused.value) == (
            f"layout is {layout!r}; files of frames are always chunked, one chunk per frame: leave "
            "layout out"
        )
    with pytest.raises(InvalidParameterError, match="start_flow is 3; accepted is the id of a"):
        record(tmp_path, start_flow=3)
    with pytest.raises(InvalidParameterError, match="roll_frames is -1"):
        record(tmp_path, roll_frames=-1)
    (tmp_path / "frames_000000.h5").touch()
    with pytest.raises(InvalidParameterError, match=r"frames_000000.h5 exists and is not"):
        record(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["frames_000000.h5"]
    with record(tmp_path, first_number=1) as recorder:
        with pytest.raises(InvalidParameterError, match="start it with held=True"):
            recorder.acquire(1)
    config = with_frames(loopback())
    del config["interfaces"][0]["rx"]["reorder_configs"][0]["frame"]
    with Engine.open(config) as engine:
        with pytest.raises(InvalidParameterError, match="'images' have no shape"):
            engine.ports[0].reorder["images"].record(tmp_path, "shapeless")


def test_packets_and_frames_of_a_stream_are_recorded_at_once(
    source: Source, tmp_path: Path
) -> None:
    queue = source.engine.ports[0].rx[0]
    with queue.record(tmp_path, "packets") as packets, source.plan.record(tmp_path) as frames:
        wanted = source.send(10)
        wait_for(lambda: packets.snapshot().packets == 10 * PACKETS)
        wait_for(lambda: frames.snapshot().frames == 10)
    np.testing.assert_array_equal(read(frames.files()[0].path)["data"], wanted)
    assert packets.files()[0].frames == 0
    with PcapFile(packets.files()[0].path) as pcap:
        assert len(pcap) == 10 * PACKETS


@pytest.mark.parametrize("options", KINDS, ids=name_of)
def test_numbers_of_frames_are_columns(
    source: Source, options: dict[str, Any], tmp_path: Path
) -> None:
    """Also in files that were cut and split; frames that did not come have none."""
    reductions = FrameReductions(
        {"total": lambda frame: frame.data.sum(), "number": lambda frame: frame.batch}
    )
    with source.plan.record(tmp_path, held=True, reductions=reductions, **options) as recorder:
        recorder.acquire(6)
        wanted = [source.send(2)]
        source.sent += 1
        wanted.append(source.send(3))
        wait_for(lambda: recorder.snapshot().acquired == 6)
        recorder.rewind(5)
        recorder.split(3)
        recorder.acquire(1)
        wanted.append(source.send(1))
        wait_for(lambda: recorder.snapshot().acquired == 1)
    numbers = [[0, 1, np.nan], [3, 4, 6]]
    sent = zip((0, 1, 3, 4, 5, 6), np.concatenate(wanted), strict=True)
    totals = {number: float(image.sum()) for number, image in sent}
    for file, expected in zip(recorder.files(), numbers, strict=True):
        with h5py.File(file.path) as found:
            np.testing.assert_array_equal(found["entry/data/number"], expected)
            sums = [totals.get(number, np.nan) for number in expected]
            np.testing.assert_array_equal(found["entry/data/total"], sums)
            assert found["entry/data/total"] == found["entry/instrument/images/total"]
        with h5py.File(file.path, "r+") as found:  # datasets of others are not ours to cut
            temperature = np.array([20.0])
            found["entry/instrument/images"].create_dataset(
                "temperature", data=temperature, maxshape=(None,)
            )
        assert examine_frames(file.path).frames == 3
        assert examine_frames(file.path).lengths["total"] == 3
        cut_frames(file.path, 2)
        with h5py.File(file.path) as found:
            np.testing.assert_array_equal(found["entry/data/number"], expected[:2])
            assert list(found["entry/instrument/images/temperature"]) == [20.0]


@pytest.mark.parametrize("name", ["data", "batch", "a/b", "", "."])
def test_numbers_have_names_of_their_own(source: Source, name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match=f"is named '{name}'; accepted is a name"):
        source.plan.record(tmp_path, reductions=FrameReductions({name: float}))
    assert list(tmp_path.iterdir()) == []


def test_frames_that_the_plan_loses_are_in_the_metadata(
    loopback: Build, with_frames: Build, made_frames: Frames, tmp_path: Path
) -> None:
    config = with_frames(loopback())
    config["memory_regions"][-1]["num_bufs"] = 2
    with Engine.open(config) as engine:
        source = Source(engine, made_frames(200 * PACKETS, 68))
        source.send(2)
        with source.plan.frames(20.0) as frames:
            held = [next(frames), next(frames)]
        with source.plan.record(tmp_path) as recorder:
            # No buffer is free: all frames are lost, also the two open ones.
            source.send(5)
            wait_for(lambda: source.plan.counters().lost == 5)
            held.clear()
            source.send(2)
            wait_for(lambda: recorder.snapshot().frames == 2)
    [file] = recorder.files()
    assert (file.frames, file.dropped) == (2, 5)
    told = metadata(file.path)
    assert told["dropped_by_reason"] == {"lost": 5}
    assert told["counters_begin"]["complete"] == 2 and told["counters_end"]["complete"] == 4


def test_exactly_so_many_frames_are_acquired(source: Source, tmp_path: Path) -> None:
    with source.plan.record(tmp_path, held=True) as recorder:
        source.send(3)
        wait_for(lambda: recorder.snapshot().left_out == 3)
        for n in (4, 2):
            recorder.acquire(n)
            assert recorder.snapshot().acquired == 0
            source.send(5)
            while recorder.snapshot().acquired != n:
                assert recorder.wait(60)
            path = tmp_path / "frames_000000.h5"
            flushed = recorder.snapshot().flushed
            with h5py.File(path, swmr=True) as file:
                assert len(file["entry/data/data"]) == flushed
            wait_for(lambda n=n: recorder.snapshot().left_out == (4 if n == 4 else 7))
    [file] = recorder.files()
    assert (file.frames, file.left_out) == (6, 7)
    assert metadata(file.path)["left_out_by_reason"] == {"held": 7}
    np.testing.assert_array_equal(read(file.path)["batch"], [3, 4, 5, 6, 8, 9])


def test_a_frame_that_has_begun_is_not_acquired(source: Source, tmp_path: Path) -> None:
    tx = source.engine.ports[0].tx[0]
    with source.plan.record(tmp_path, held=True) as recorder:
        tx.send(source.packets[:3])
        wait_for(lambda: source.plan.counters().placed == 3)
        recorder.acquire(2)
        tx.send(source.packets[3 : 4 * PACKETS])
        wait_for(lambda: recorder.snapshot().acquired == 2)
        wait_for(lambda: recorder.snapshot().left_out == 2)
    np.testing.assert_array_equal(read(recorder.files()[0].path)["batch"], [1, 2])


@pytest.mark.parametrize("options", KINDS, ids=name_of)
@pytest.mark.parametrize("kept", [0, 3, 5])
def test_an_interrupted_reading_is_taken_again(
    source: Source, options: dict[str, Any], kept: int, disk: Path
) -> None:
    path = disk / "frames_000000.h5"

    def acquire(recorder: Recorder, n: int) -> None:
        recorder.acquire(n)
        source.send(n, without=0)
        # The first frame lacks a packet; one more pushes it out of the window.
        source.send(2)
        wait_for(lambda: recorder.snapshot().acquired == n)

    with source.plan.record(disk, held=True, **options) as recorder:
        acquire(recorder, 5)
        before = read_along(path)
        with pytest.raises(InvalidParameterError, match="cannot rewind to 6 frames: the current"):
            recorder.rewind(6)
        recorder.rewind(kept)
        state = recorder.snapshot()
        assert (state.frames, state.flushed, state.acquired) == (kept, kept, 0)
        np.testing.assert_array_equal(read_along(path), before[:kept])
        acquire(recorder, 4)
        after = read_along(path)
        assert len(after) == kept + 4
        np.testing.assert_array_equal(after[:kept], before[:kept])
    [file] = recorder.files()
    found = read(file.path)
    assert {len(values) for values in found.values()} == {kept + 4}
    np.testing.assert_array_equal(found["batch"], after)
    wanted = images(source.packets)[after]
    wanted[found["missing"] == 1, 0] = 0x0707
    np.testing.assert_array_equal(found["data"], wanted)
    assert file.frames == kept + 4
    assert file.missing == found["missing"].sum() and file.packets == found["packets"].sum()
    assert metadata(file.path)["left_out_by_reason"].get("rewound", 0) == 5 - kept


def test_a_rewind_ends_the_acquisition_whose_frames_wait(source: Source, tmp_path: Path) -> None:
    with source.plan.record(tmp_path, held=True) as recorder:
        for turn in range(1, 31):
            recorder.acquire(5)
            source.send(5)
            # Immediately, while the recorder is about to write them.
            while source.plan.counters().complete < turn * 5:
                assert recorder.snapshot().running
            recorder.rewind(0)
            state = recorder.snapshot()
            assert (state.acquired, state.frames) == (0, 0)


def test_a_refused_recording_leaves_the_frames_that_wait(source: Source, tmp_path: Path) -> None:
    source.send(3)
    wait_for(lambda: source.plan.counters().complete == 3)
    (tmp_path / "frames_000000.h5").touch()
    with pytest.raises(InvalidParameterError, match="start_flow is 3"):
        source.plan.record(tmp_path, start_flow=3)
    with pytest.raises(InvalidParameterError, match="exists and is not"):
        source.plan.record(tmp_path, held=True)
    assert source.plan.counters().lost == 0
    # One that begins with new frames discards them; they do not count as lost.
    with source.plan.record(tmp_path, "held", held=True) as recorder:
        counters = source.plan.counters()
        assert (counters.lost, counters.untaken) == (0, 3)
    assert (recorder.files()[0].dropped, recorder.files()[0].left_out) == (0, 0)


def test_an_acquisition_tells_what_was_lost_before(
    loopback: Build, with_frames: Build, made_frames: Frames, tmp_path: Path
) -> None:
    config = with_frames(loopback())
    config["memory_regions"][-1]["num_bufs"] = 2
    with Engine.open(config) as engine:
        source = Source(engine, made_frames(200 * PACKETS, 68))
        source.send(2)
        with source.plan.frames(20.0) as frames:
            held = [next(frames), next(frames)]
        with source.plan.record(tmp_path, held=True) as recorder:
            assert recorder.acquire(1) == 0
            # No buffer is free. The last packet of the latest frame is missing: it is open.
            tx = engine.ports[0].tx[0]
            tx.send(source.packets[2 * PACKETS : 4 * PACKETS - 1])
            wait_for(lambda: source.plan.counters().no_buffer == 2 * PACKETS - 1)
            assert recorder.acquire(1) == source.plan.counters().lost == 2
            held.clear()


def test_the_current_file_is_known(source: Source, tmp_path: Path) -> None:
    with source.plan.record(tmp_path, roll_frames=2) as recorder:
        assert recorder.snapshot().path == tmp_path / "frames_000000.h5"
        source.send(2)
        wait_for(lambda: recorder.snapshot().files == 1)
        state = recorder.snapshot()
        assert (state.path, state.flushed) == (None, 0)
        source.send(1)
        wait_for(lambda: recorder.snapshot().frames == 3)
        assert recorder.snapshot().path == tmp_path / "frames_000001.h5"
    assert recorder.snapshot().path is None


def test_flushing_the_queue_costs_a_recorder_no_frames(source: Source, tmp_path: Path) -> None:
    port = source.engine.ports[0]
    with source.plan.record(tmp_path) as recorder:
        port.tx[0].send(source.packets[: PACKETS + 3])
        wait_for(lambda: source.plan.counters().placed == PACKETS + 3)
        port.rx[0].flush()
        port.tx[0].send(source.packets[PACKETS + 3 : 3 * PACKETS])
        wait_for(lambda: recorder.snapshot().frames == 3)
    np.testing.assert_array_equal(read(recorder.files()[0].path)["batch"], [0, 1, 2])
    assert source.plan.counters().lost == 0
    # Without a reader, frames wait in the queue.
    port.tx[0].send(source.packets[3 * PACKETS : 4 * PACKETS])
    wait_for(lambda: source.plan.counters().complete == 4)
    port.rx[0].flush()
    assert source.plan.counters().lost == 1


def read_along(path: Path) -> NDArray[np.uint32]:
    """Return the batches of a file that is being written."""
    with h5py.File(path, swmr=True) as file:
        assert {len(file["entry/data"][name]) for name in ["data", *COLUMNS]} == {
            len(file["entry/data/batch"])
        }
        return file["entry/data/batch"][...]


def test_recording_begins_behind_a_packet_of_a_flow(
    loopback: Build, with_frames: Build, made_frames: Frames, tmp_path: Path
) -> None:
    config = with_frames(loopback())
    flows = config["interfaces"][0]["rx"]["flows"]
    flows.append({**flows[0], "name": "gate", "id": 9, "match": {"udp_dst": 5001}})
    with Engine.open(config) as engine:
        source = Source(engine, made_frames(200 * PACKETS, 68))
        tx = engine.ports[0].tx[0]
        with source.plan.record(tmp_path, start_flow=9) as recorder:
            tx.send(source.packets[: 2 * PACKETS + 3])
            wait_for(lambda: recorder.snapshot().left_out == 2)
            tx.send(made_frames(1, 68, dst_port=5001))
            tx.send(source.packets[2 * PACKETS + 3 : 6 * PACKETS])
            wait_for(lambda: recorder.snapshot().frames == 3)
    [file] = recorder.files()
    np.testing.assert_array_equal(read(file.path)["batch"], [3, 4, 5])
    assert metadata(file.path)["left_out_by_reason"] == {"before_start": 3}


def test_recorders_of_a_group_share_their_limits(
    source: Source, loopback: Build, with_frames: Build, made_frames: Frames, tmp_path: Path
) -> None:
    group = RecorderGroup(max_packets=10)
    with Engine.open(with_frames(loopback())) as engine:
        other = Source(engine, made_frames(200 * PACKETS, 68))
        with (
            source.plan.record(tmp_path, "one", group=group) as one,
            other.plan.record(tmp_path, "two", group=group) as two,
        ):
            source.send(4)
            wait_for(lambda: one.snapshot().frames == 4)
            other.send(20)
            wait_for(lambda: not two.snapshot().running)
        assert (one.snapshot().frames, two.snapshot().frames) == (4, 6)


FOLLOWER = """
    import sys, time, h5py
    with h5py.File(sys.argv[1], swmr=True) as file:
        data = file["entry/data/data"]
        print("open", len(data), flush=True)
        for _ in range(2000):
            data.refresh()
            n = len(data)
            batches = file["entry/data/batch"]
            batches.refresh()
            assert len(batches) >= n
            if n == 30:
                print(data[...].sum(), batches[:n].tolist() == list(range(30)), flush=True)
                break
            time.sleep(0.01)
"""


@pytest.mark.parametrize("writer", ["buffered", "direct"])
def test_another_process_reads_along(source: Source, writer: Any, disk: Path) -> None:
    path = disk / "frames_000000.h5"
    with source.plan.record(disk, writer=writer) as recorder:
        first = source.send(10)
        wait_for(lambda: recorder.snapshot().flushed == 10)
        follower = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(FOLLOWER), path],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert follower.stdout is not None
        assert follower.stdout.readline() == "open 10\n"
        rest = source.send(20)
        output, _ = follower.communicate(timeout=60)
    total = int(first.sum(dtype=np.uint64) + rest.sum(dtype=np.uint64))
    assert output == f"{total} True\n"


def test_frames_past_the_page_cache_are_seen_by_who_has_read_their_place_before(
    source: Source, direct_disk: Path
) -> None:
    path = direct_disk / "frames_000000.h5"
    ended = threading.Event()

    def read_all() -> None:
        while not ended.wait(0.001):
            path.read_bytes()

    with source.plan.record(direct_disk, writer="direct") as recorder:
        assert recorder.writer == "direct"
        reader = threading.Thread(target=read_all)
        reader.start()
        try:
            wanted = np.empty((0, PACKETS, 32), np.uint16)
            for turn in range(1, 21):
                wanted = np.concatenate([wanted, source.send(10)])
                wait_for(lambda turn=turn: recorder.snapshot().flushed == 10 * turn)
                with h5py.File(path, swmr=True) as file:
                    np.testing.assert_array_equal(file["entry/data/data"][...], wanted)
        finally:
            ended.set()
            reader.join()
    with h5py.File(path) as file:
        data = file["entry/data/data"]
        np.testing.assert_array_equal(data[...], wanted)
        places = [data.id.get_chunk_info(i).byte_offset for i in range(len(data))]
        assert not np.any(np.array(places) % 4096)
