"""Frames that cuFile writes from GPU memory to files."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from daqiri_ophyd.documents import read_sidecar
from daqiri_ophyd.engine import Engine, InvalidParameterError, NotSupportedError

from . import test_device_memory as device
from .conftest import Config, Run, loopback
from .test_device_memory import NUMBER, PAYLOAD, made, record
from .test_gpu_reorder import SLOTS, with_plan

# More than may be in flight to the disk.
BUFFERS = 32
CUDAS_OWN = Path("/usr/local/cuda/lib64/libcufile.so.0")
WHOLE_PAGES = 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system with O_DIRECT, which one in memory may not support."""
    for place in (tmp_path, Path(__file__).parents[3] / "build", Path("/var/tmp")):
        try:
            os.close(os.open(place, os.O_TMPFILE | os.O_WRONLY | os.O_DIRECT))
        except OSError:
            continue
        with tempfile.TemporaryDirectory(dir=place) as folder:
            yield Path(folder)
        return
    pytest.skip("needs a file system with O_DIRECT")


@pytest.fixture
def run(with_driver: Run) -> Run:
    """Run a program that continues after an error, and print its log, too."""

    def run(program: str, **answers: int) -> tuple[str, list[str]]:
        program = program.replace("running and", "running and not now.error and")
        return with_driver("import os\nos.dup2(1, 2)\n" + program, **answers)

    return run


def with_frames(payload: int = PAYLOAD) -> Config:
    """Return a loopback port whose frames are in a GPU's memory."""
    return device.with_frames(payload, num_bufs=BUFFERS)


def outcome(said: str) -> Any:
    """Return the output of a program without lines of the log."""
    (line,) = (line for line in said.splitlines() if line.startswith("["))
    return json.loads(line)


def metadata(file: Path) -> dict[str, Any]:
    """Return the metadata of a file."""
    assert read_sidecar(file) is not None
    return json.loads(Path(f"{file}.json").read_text())


def content(files: list[Path]) -> np.ndarray:
    """Return the frames of files."""
    read = []
    for file in files:
        with h5py.File(file) as opened:
            read.append(opened["entry/data/data"][:])
    return np.concatenate(read)


def assert_balanced(asked: list[str]) -> None:
    """Assert that everything registered with cuFile was deregistered."""
    assert asked.count("file") == asked.count("unfile") > 1
    assert asked.count("buffer") == asked.count("unbuffer") == 1
    assert asked.count("cufile") == 1


@pytest.mark.parametrize(
    "options",
    [
        {"writer": "cufile"},
        {"writer": "cufile", "roll_frames": 15, "CUFILE_MOST": 5000},
        {"writer": "auto", "max_frames": NUMBER},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
@pytest.mark.parametrize("payload", [PAYLOAD, WHOLE_PAGES, 3])
def test_frames_go_from_the_gpu_to_the_file(
    run: Run, disk: Path, options: dict[str, Any], payload: int
) -> None:
    data = made(payload)
    options = {"CUFILE_MAJOR": 2} | options
    said, asked, files = record(run, disk, with_frames(payload), data, **options)
    assert outcome(said) == [NUMBER, "", 0, 0, True]
    np.testing.assert_array_equal(content(files), data[:, :, 8:])
    assert len(files) == (3 if "roll_frames" in options else 1)
    for file in files:
        found = metadata(file)
        assert (found["writer"], found["cufile"]) == ("cufile", "nvidia-fs 2.17")
    assert_balanced(asked)


def test_a_host_without_nvidia_fs_says_so(run: Run, disk: Path) -> None:
    data = made()
    _, _, files = record(run, disk, with_frames(), data, writer="cufile", CUFILE_MAJOR=0)
    assert metadata(files[0])["cufile"] == "compatibility mode"
    np.testing.assert_array_equal(content(files), data[:, :, 8:])


REFUSALS = {
    "driver": (
        {"CUFILE_OPEN": 5001},
        "cuFile's driver does not open: CU_FILE_DRIVER_NOT_INITIALIZED (cuFile error 5001); "
        "see cufile.log, and `gdscheck -p` for what this host supports",
    ),
    "cuda": (
        {"CUFILE_OPEN": 5011},
        "cuFile's driver does not open: CU_FILE_CUDA_DRIVER_ERROR (cuFile error 5011, "
        "CUDA_ERROR_NAME: what went wrong); see cufile.log, and `gdscheck -p` for what this host "
        "supports",
    ),
    "directory": (
        {"CUFILE_FILES": 0},
        "cuFile cannot write in FOLDER: CU_FILE_IO_NOT_SUPPORTED (cuFile error 5008)",
    ),
    "write": (
        {"CUFILE_WRITES": 0, "CUFILE_ERROR": 5999},
        "cuFile cannot write in FOLDER: cuFile error 5999",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_keeps_cufile_from_writing_is_told(run: Run, disk: Path, case: str) -> None:
    answers, reason = REFUSALS[case]
    said, asked, files = record(run, disk, with_frames(), made(), writer="cufile", **answers)
    assert said == reason.replace("FOLDER", f"{disk / 'files'}")
    assert not files
    assert asked.count("buffer") == asked.count("unbuffer")


@pytest.mark.parametrize("case", REFUSALS)
def test_auto_goes_another_way_and_says_why(run: Run, disk: Path, case: str) -> None:
    answers, reason = REFUSALS[case]
    data = made()
    said, _, files = record(run, disk, with_frames(), data, writer="auto", **answers)
    reason = reason.replace("FOLDER", f"{disk / 'files'}")
    assert (
        "recording of reorder plan port/images copies frames to the CPU, without cuFile: " + reason
    ) in said
    assert outcome(said) == [NUMBER, "", 0, 0, True]
    found = metadata(files[0])
    assert found["writer"] == "direct" and "cufile" not in found
    np.testing.assert_array_equal(content(files), data[:, :, 8:])


def test_auto_does_without_cufile_where_it_copies_too(run: Run, disk: Path) -> None:
    data = made()
    said, _, files = record(run, disk, with_frames(), data, writer="auto", CUFILE_MAJOR=0)
    assert outcome(said) == [NUMBER, "", 0, 0, True]
    found = metadata(files[0])
    assert found["writer"] == "direct" and "cufile" not in found
    np.testing.assert_array_equal(content(files), data[:, :, 8:])


@pytest.mark.skipif(CUDAS_OWN.exists(), reason="cuFile is installed")
def test_a_host_without_cufile_says_what_to_install(run: Run, disk: Path) -> None:
    said, _, _ = record(run, disk, with_frames(), made(), writer="cufile")
    assert said.startswith("cuFile is not installed (libcufile.so.0: cannot open shared object")
    assert said.endswith(
        "install the CUDA toolkit's libcufile, or name the folder of a pip package's "
        "libcufile.so.0 in LD_LIBRARY_PATH"
    )


def test_compression_is_refused_by_name(run: Run, disk: Path) -> None:
    said, asked, _ = record(
        run,
        disk,
        with_frames(),
        made(),
        writer="cufile",
        compression="bitshuffle-lz4",
        CUFILE_MAJOR=2,
    )
    assert said == (
        "compression is 'bitshuffle-lz4' with writer 'cufile', which writes frames as they are in "
        "the GPU's memory; accepted is 'none', or writer 'auto', 'direct' or 'buffered'"
    )
    assert "cufile" not in asked


@pytest.mark.parametrize("writer", ["cufile", "auto"])
def test_frames_in_the_hosts_memory_do_without_cufile(run: Run, disk: Path, writer: str) -> None:
    config = with_plan()
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    plan["frame"] = {"shape": [SLOTS, PAYLOAD]}
    said, asked, files = record(run, disk, config, made(), writer=writer, CUFILE_MAJOR=2)
    assert "cufile" not in asked
    if writer == "auto":
        assert metadata(files[0])["writer"] == "direct"
        return
    assert said == (
        "writer is 'cufile', which writes frames of a GPU's memory, and memory region 'frames' of "
        "reorder plan 'images' is of kind 'host_pinned'; set kind: device, or writer 'auto', "
        "'direct' or 'buffered'"
    )


def test_packets_are_refused_by_name(tmp_path: Path) -> None:
    with Engine.open(loopback("host")) as engine, pytest.raises(InvalidParameterError) as refused:
        engine.port("port").rx[0].record(tmp_path, writer="cufile")  # pyright: ignore[reportArgumentType]
    assert str(refused.value) == (
        "writer is 'cufile', which writes frames of reorder plans, and queue 'rx' has packets; "
        "accepted are 'buffered', 'direct' and 'auto'"
    )


def test_memory_that_is_not_registered_is_written_all_the_same(run: Run, disk: Path) -> None:
    data = made()
    said, asked, files = record(run, disk, with_frames(), data, writer="cufile", CUFILE_BUFFER=5036)
    size = BUFFERS * SLOTS * 2048
    assert (
        f"memory region 'frames' of {size} bytes is not registered with cuFile, which makes "
        "writes slower (CU_FILE_GPU_MEMORY_PINNING_FAILED (cuFile error 5036)); lower num_bufs or "
        "buf_size"
    ) in said
    assert outcome(said) == [NUMBER, "", 0, 0, True]
    np.testing.assert_array_equal(content(files), data[:, :, 8:])
    assert (asked.count("buffer"), asked.count("unbuffer")) == (1, 0)


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ({"CUFILE_ERRNO": 28}, "No space left on device"),
        ({"CUFILE_ERROR": 5030}, "CU_FILE_INTERNAL_ERROR (cuFile error 5030)"),
        ({}, "Input/output error"),
    ],
    ids=["errno", "cufile", "nothing"],
)
@pytest.mark.parametrize("payload", [PAYLOAD, WHOLE_PAGES])
def test_a_write_that_fails_leaves_whole_frames_and_counts_the_others(
    run: Run,
    disk: Path,
    answers: dict[str, int],
    text: str,
    payload: int,
) -> None:
    data = made(payload)
    # One is the probe's.
    options = {"writer": "cufile", "CUFILE_WRITES": 21, **answers}
    said, asked, files = record(run, disk, with_frames(payload), data, **options)
    frames, error, dropped, lost, _ = outcome(said)
    assert (frames + dropped, lost) == (NUMBER, 0)
    assert error.startswith(f"cannot write {files[0]}: {text}")
    assert frames <= 20
    found = metadata(files[0])
    assert (found["frames"], found["dropped_by_reason"]["write_error"]) == (frames, NUMBER - frames)
    np.testing.assert_array_equal(content(files), data[:frames, :, 8:])
    assert_balanced(asked)


def test_a_later_file_that_cufile_refuses_is_not_begun(run: Run, disk: Path) -> None:
    data = made()
    options = {"writer": "cufile", "roll_frames": 10, "CUFILE_FILES": 2}
    said, _, files = record(run, disk, with_frames(), data, **options)
    frames, error, *_ = outcome(said)
    assert frames == 10
    assert error.endswith("_000001.h5: CU_FILE_IO_NOT_SUPPORTED (cuFile error 5008)")
    assert len(files) == 1
    np.testing.assert_array_equal(content(files), data[:10, :, 8:])


@pytest.mark.gpu
@pytest.mark.parametrize("payload", [PAYLOAD, WHOLE_PAGES])
def test_a_gpu_writes_frames(disk: Path, payload: int) -> None:
    data = made(payload)
    config = with_frames(payload)
    from daqiri_ophyd.engine import ethernet

    with Engine.open(config) as engine:
        port = engine.port("port")
        try:
            recorder = port.reorder["images"].record(disk, writer="cufile", max_frames=NUMBER)
        except NotSupportedError as error:
            pytest.skip(f"{error}")
        with recorder:
            for batch in range(NUMBER):
                while recorder.snapshot().frames < batch - 3:
                    recorder.wait(0.001)
                packets = ethernet.udp_frames(
                    data[batch],
                    src_mac="02:00:00:00:00:01",
                    dst_mac="02:00:00:00:00:02",
                    src_ip="192.0.2.1",
                    dst_ip="192.0.2.2",
                    src_port=4000,
                    dst_port=5000,
                )
                port.tx[0].send(packets, timeout=20)
            while recorder.snapshot().running:
                recorder.wait(60)
        found = recorder.snapshot()
    assert (found.frames, found.error) == (NUMBER, "")
    (file,) = disk.glob("*.h5")
    assert metadata(file)["writer"] == "cufile"
    np.testing.assert_array_equal(content([file]), data[:, :, 8:])
