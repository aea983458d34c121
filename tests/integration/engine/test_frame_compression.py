"""Compressed files of frames, as h5py and hdf5plugin read them."""

import json
import subprocess
import time
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from numpy.typing import NDArray

from daqiri_ophyd.documents import sidecar_path
from daqiri_ophyd.engine import Engine, InvalidParameterError, Recorder

PROCESS = Path(__file__).with_name("frame_recording_process.py")
spec = spec_from_file_location(PROCESS.stem, PROCESS)
assert spec is not None and spec.loader is not None
made = module_from_spec(spec)
spec.loader.exec_module(made)


def record(directory: Path, data: NDArray[np.uint16], part: int = 16, **options: Any) -> list[Path]:
    """Record frames of these values, ``part`` at a time."""
    with Engine.open(made.config()) as engine:
        port = engine.ports[0]
        with port.reorder["camera"].record(directory, **options) as recorder:
            for first in range(0, len(data), part):
                port.tx[0].send(made.packets_of(first, data[first : first + part]))
                wait_for(recorder, min(first + part, len(data)))
        assert recorder.snapshot().error == ""
        return [file.path for file in recorder.files()]


def wait_for(recorder: Recorder, frames: int) -> None:
    for _ in range(20_000):
        if recorder.snapshot().frames >= frames or not recorder.snapshot().running:
            return
        time.sleep(0.001)
    raise AssertionError(f"{recorder.snapshot()} after 20 s, not {frames} frames")


@pytest.mark.parametrize("threads", [1, 3])
def test_compressed_frames_are_read_back_exactly(threads: int, tmp_path: Path) -> None:
    data = made.pixels(0, 200)
    # Every third cannot be compressed.
    data[::3] = np.random.default_rng(1).integers(0, 2**16, data[::3].shape, dtype="u2")
    (path,) = record(tmp_path, data, compression="bitshuffle-lz4", compression_threads=threads)
    with h5py.File(path) as file:
        stored = file["entry/data/data"]
        assert np.array_equal(stored[()], data)
        assert stored.dtype == np.uint16
        assert stored.chunks == (1, made.PACKETS, made.WORDS)
        assert stored._filters == {"32008": (0, 5, 2, 0, 2)}
        assert stored.id.get_create_plist().get_filter(0)[1] == 0  # not optional
        sizes = np.array([stored.id.get_chunk_info(i).size for i in range(len(data))])
        assert np.array_equal(file["entry/data/batch"][()], np.arange(200))
    raw = data[0].nbytes
    assert (sizes[::3] > raw).all() and (sizes[::3] < raw * 1.02).all()
    assert (np.delete(sizes, slice(0, None, 3)) < raw / 2).all()
    said = json.loads(sidecar_path(path).read_text())
    assert (said["frames"], said["bytes"]) == (200, data.nbytes)
    assert said["compression"] == "bitshuffle-lz4"


def test_the_chunks_are_what_hdf5plugin_would_have_written(tmp_path: Path) -> None:
    data = made.pixels(0, 20)
    (path,) = record(tmp_path, data, compression="bitshuffle-lz4")
    with h5py.File(path) as ours, h5py.File(tmp_path / "theirs.h5", "w") as theirs:
        theirs.create_dataset(
            "data", data=data, chunks=(1, *data.shape[1:]), **hdf5plugin.Bitshuffle(cname="lz4")
        )
        for frame in range(20):
            at = (frame, 0, 0)
            assert ours["entry/data/data"].id.read_direct_chunk(at) == theirs[
                "data"
            ].id.read_direct_chunk(at)


def test_many_files_of_compressed_frames(tmp_path: Path) -> None:
    data = made.pixels(0, 160)
    files = record(
        tmp_path, data, compression="bitshuffle-lz4", compression_threads=2, roll_frames=7
    )
    assert len(files) == 23
    seen = []
    for path in files:
        with h5py.File(path) as file:
            seen.append(file["entry/data/data"][()])
    assert np.array_equal(np.concatenate(seen), data)


def test_a_follower_sees_compressed_frames_soon(tmp_path: Path) -> None:
    data = made.pixels(0, 16)
    with Engine.open(made.config()) as engine:
        port = engine.ports[0]
        with port.reorder["camera"].record(tmp_path, compression="bitshuffle-lz4") as recorder:
            port.tx[0].send(made.packets_of(0, data))
            with h5py.File(tmp_path / "frames_000000.h5", swmr=True) as file:
                stored = file["entry/data/data"]
                for _ in range(20_000):
                    stored.refresh()
                    if len(stored) == 16:
                        break
                    time.sleep(0.001)
                assert np.array_equal(stored[()], data)
            assert recorder.snapshot().flushed == 16


@pytest.mark.parametrize("writer", ["buffered", "direct"])
def test_compressed_frames_are_forgotten_and_moved_to_the_next_file(
    writer: Any, disk: Path
) -> None:
    data = made.pixels(0, 30)
    with Engine.open(made.config()) as engine:
        port = engine.ports[0]
        options = {"compression": "bitshuffle-lz4", "compression_threads": 2, "writer": writer}
        with port.reorder["camera"].record(disk, held=True, **options) as recorder:
            assert recorder.writer == writer

            def acquire(first: int, end: int) -> None:
                recorder.acquire(end - first)
                port.tx[0].send(made.packets_of(first, data[first:end]))
                while recorder.snapshot().acquired != end - first:
                    assert recorder.wait(60)

            acquire(0, 12)
            recorder.rewind(5)
            assert (recorder.snapshot().frames, recorder.snapshot().flushed) == (5, 5)
            acquire(12, 22)
            recorder.split(8)
            acquire(22, 30)
            recorder.rewind(12)
        files = [file.path for file in recorder.files()]
        assert [file.frames for file in recorder.files()] == [8, 12]
    kept = [*range(5), *range(12, 27)]
    for path, numbers in zip(files, (kept[:8], kept[8:]), strict=True):
        with h5py.File(path) as file:
            found = file["entry/data"]
            assert np.array_equal(found["batch"][()], numbers)
            assert np.array_equal(found["data"][()], data[numbers])
            assert (found["packets"][()] == made.PACKETS).all()
        assert json.loads(sidecar_path(path).read_text())["frames"] == len(numbers)


def test_a_disk_that_fills_up_leaves_whole_frames(
    tmp_path: Path, python: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = python(
        f"""
        import resource, signal, sys
        from importlib.util import module_from_spec, spec_from_file_location
        import numpy as np
        spec = spec_from_file_location("made", {str(PROCESS)!r})
        made = module_from_spec(spec); spec.loader.exec_module(made)
        from daqiri_ophyd.engine import Engine
        import hdf5plugin, time
        data = np.random.default_rng(1).integers(0, 2**16, (640, 8, 1000), dtype="u2")
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, resource.RLIM_INFINITY))
        with Engine.open(made.config()) as engine:
            port = engine.ports[0]
            with port.reorder["camera"].record(
                {str(tmp_path)!r}, compression="bitshuffle-lz4", compression_threads=2
            ) as recorder:
                for first in range(0, 640, 16):
                    port.tx[0].send(made.packets_of(first, data[first : first + 16]))
                    while True:
                        now = recorder.snapshot()
                        if now.frames + now.dropped >= first + 16:
                            break
                        time.sleep(0.001)
            end = recorder.snapshot()
            print(end.frames, end.dropped, end.error)
        """
    )
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    frames, dropped, error = out.split(maxsplit=2)
    assert "File too large" in error
    assert int(frames) + int(dropped) == 640
    assert 0 < int(frames) < 250
    data = np.random.default_rng(1).integers(0, 2**16, (640, 8, 1000), dtype="u2")
    with h5py.File(tmp_path / "frames_000000.h5") as file:
        assert np.array_equal(file["entry/data/data"][()], data[: int(frames)])
        assert len(file["entry/data/packets"]) == int(frames)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression": "gzip"}, "compression is 'gzip'; accepted are 'none', 'bitshuffle-lz4'"),
        ({"compression_threads": 0}, "compression_threads is 0; accepted are 1 to 64"),
        ({"compression_threads": -1}, "compression_threads is -1"),
        (
            {"compression": "bitshuffle-lz4", "compression_threads": 65},
            "compression_threads is 65; accepted are 1 to 64",
        ),
    ],
)
def test_compression_that_cannot_be_is_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with Engine.open(made.config()) as engine:
        plan = engine.ports[0].reorder["camera"]
        with pytest.raises(InvalidParameterError, match=message):
            plan.record(tmp_path, **options)
        assert not list(tmp_path.iterdir())
        plan.record(tmp_path).stop()


def test_without_the_plugin_an_error_says_what_to_install(
    tmp_path: Path, python: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = python(
        f"""
        import os, sys
        sys.modules["hdf5plugin"] = None
        os.environ["HDF5_PLUGIN_PATH"] = {str(tmp_path)!r}
        from importlib.util import module_from_spec, spec_from_file_location
        spec = spec_from_file_location("made", {str(PROCESS)!r})
        made = module_from_spec(spec); spec.loader.exec_module(made)
        from daqiri_ophyd.engine import Engine, NotSupportedError
        with Engine.open(made.config()) as engine:
            try:
                engine.ports[0].reorder["camera"].record(
                    {str(tmp_path)!r}, compression="bitshuffle-lz4"
                )
            except NotSupportedError as error:
                print(error)
        """
    )
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert out.startswith("compression 'bitshuffle-lz4' needs HDF5's plugin libh5bshuf.so")
    assert "pip install hdf5plugin" in out
    assert not list(tmp_path.iterdir())


def test_the_plugin_is_found_where_hdf5_looks_for_it(
    tmp_path: Path, python: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = python(
        f"""
        import os, sys
        sys.modules["hdf5plugin"] = None
        os.environ["HDF5_PLUGIN_PATH"] = "/nowhere:" + {hdf5plugin.PLUGIN_PATH!r}
        sys.argv = ["process", {str(tmp_path)!r}, "compression=bitshuffle-lz4", "max_frames=9"]
        from importlib.util import module_from_spec, spec_from_file_location
        spec = spec_from_file_location("made", {str(PROCESS)!r})
        made = module_from_spec(spec); spec.loader.exec_module(made)
        from daqiri_ophyd.engine import Engine
        with Engine.open(made.config()) as engine:
            port = engine.ports[0]
            plan = port.reorder["camera"]
            with plan.record({str(tmp_path)!r}, compression="bitshuffle-lz4") as recorder:
                port.tx[0].send(made.packets_of(0, made.pixels(0, 9)))
                while recorder.snapshot().frames < 9:
                    recorder.wait(0.01)
        """
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    with h5py.File(tmp_path / "frames_000000.h5") as file:
        assert np.array_equal(file["entry/data/data"][()], made.pixels(0, 9))
