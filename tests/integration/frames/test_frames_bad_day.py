"""Frames of modules with columns when processes are killed, disks are full and senders fail."""

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from free_ports import free_ports
from numbered_camera import loopback, together
from waiting import wait_for

from daqiri_ophyd.cli import _main
from daqiri_ophyd.documents import sidecar_path
from daqiri_ophyd.engine import ConnectFailureError, Engine
from daqiri_ophyd.replay import FrameReplay, ReplayError

from .killed_recorder import PLAN, ROW, ROWS, columns, image, opened

HERE = Path(__file__)
COMMAND = [sys.executable, "-m", "daqiri_ophyd", "frames"]
LOST = {3: (1,), 6: (1,)}


def run(*arguments: str | Path) -> int:
    return _main._run(["frames", *map(str, arguments)])


def killed(folder: Path, mode: str) -> list[Path]:
    """Return the files of a process that was killed while it wrote the third one."""
    found = os.pathsep.join([str(HERE.parents[1]), str(HERE.parent)])
    process = subprocess.Popen(
        [sys.executable, str(HERE.with_name("killed_recorder.py")), str(folder), mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": found},
    )
    with process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"recorded\n"
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    files = sorted(folder.glob("*.h5"))
    assert [path.name for path in files] == [f"frames_{n:06d}.h5" for n in range(3)]
    return files


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Files of seven images of a recorder that ended."""
    folder = tmp_path / "files"
    folder.mkdir()
    with opened() as camera, camera.plan.record(folder, roll_frames=3) as recorder:
        for number in range(1, 8):
            camera.send([number], number, LOST.get(number, ()))
        wait_for(lambda: recorder.snapshot().frames == 7)
    return [file.path for file in recorder.files()]


@pytest.fixture
def dark(tmp_path: Path) -> Path:
    path = tmp_path / "dark.npy"
    np.save(path, np.zeros((6, ROW)))
    return path


@pytest.mark.parametrize("mode", ["", "roi"])
def test_frames_of_a_killed_process_are_repaired_joined_and_corrected(
    mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = killed(tmp_path, mode)
    assert run("master", *files) == 1
    said = capsys.readouterr().err
    assert f"{files[2]} is marked as open for writing" in said
    assert f"daqiri-ophyd frames repair {files[2]}" in said
    assert run("repair", *files) == 0
    assert run("check", *files) == 0
    assert run("master", *files) == 0
    master = tmp_path / "frames_000000_master.h5"
    np.save(tmp_path / "dark.npy", np.zeros(image(mode, 1).shape))
    capsys.readouterr()
    for source, numbers in ((master, range(1, 8)), (files[2], [7])):
        assert run("correct", source, "--dark", tmp_path / "dark.npy") == 0, capsys.readouterr()
        with h5py.File(source.with_name(f"{source.stem}_corrected.h5")) as file:
            data = file["entry/data"]
            expected = [image(mode, n, LOST.get(n, ())) for n in numbers]
            np.testing.assert_array_equal(data["data"][()], expected)
            for name in ("pulse_id", "hits"):
                found = [columns(mode, n, LOST.get(n, ()))[name] for n in numbers]
                assert data[name][:].tolist() == found


def test_columns_are_sent_again_and_files_without_metadata_are_named(
    files: list[Path], tmp_path: Path
) -> None:
    config = loopback(len(ROWS[""]), ROW, **PLAN)
    replay = FrameReplay(files, config, link_type=1, max_gap_ns=0)
    assert replay.packets == 7 * 4 - 2
    with Engine.open(config) as engine:
        (port,) = engine.ports
        plan = port.reorder["images"]
        with plan.record(tmp_path, "again") as recorder:
            for chunk in replay.chunks():
                packets = np.split(chunk.data, chunk.offsets[1:])
                assert port.tx[0].send(packets, timeout=60.0) == len(packets)
            wait_for(lambda: plan.counters().packets == replay.packets)
        again = [*recorder.files()]
    for name in ("data", "batch", "packets", "missing", "valid", "pulse_id"):
        before = [h5py.File(path)["entry/data"][name][()] for path in files]
        np.testing.assert_array_equal(together(again, name), np.concatenate(before))
    sidecar_path(files[1]).unlink()
    with pytest.raises(ReplayError, match=r"000001.h5.json does not name the reorder plan"):
        FrameReplay(files, config, link_type=1)


def limited(size: int) -> Any:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize(("command", "size"), [("master", 4096), ("correct", 100_000)])
def test_a_limit_of_file_sizes_is_named_and_leaves_nothing(
    files: list[Path], dark: Path, command: str, size: int
) -> None:
    """As a quota, which the free space of the disk does not tell."""
    before = sorted(files[0].parent.iterdir())
    ended = subprocess.run(
        [*COMMAND, command, str(files[0]), "--dark", str(dark)],
        preexec_fn=limited(size),
        capture_output=True,
        text=True,
        check=False,
    )
    target = files[0].with_name(f"{files[0].stem}_{command.removesuffix('rect')}")
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error: {target}") and "File too large" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert sorted(files[0].parent.iterdir()) == before


@pytest.fixture
def read_only(files: list[Path]) -> Iterator[Path]:
    """The folder of the files, which nobody can write to."""
    folder = files[0].parent
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.root
def test_a_folder_that_is_read_only_is_named(
    files: list[Path],
    dark: Path,
    read_only: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(read_only.iterdir())
    for command, suffix in (("master", "master"), ("correct", "corrected")):
        assert run(command, files[0], "--dark", dark) == 1
        target = read_only / f"frames_000000_{suffix}.h5"
        assert capsys.readouterr().err == f"error: {target}: Read-only file system\n"
        assert run(command, files[0], "--dark", dark, "--output", tmp_path / f"{suffix}.h5") == 0
    assert sorted(read_only.iterdir()) == before


def interrupt(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    raise AssertionError("the signal comes before the next operation")


@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("master", "fsync"),
        ("master", "write_sidecar"),
        ("master", "replace"),
        ("correct", "posix_fallocate"),
        ("correct", "write_sidecar"),
        ("correct", "replace"),
    ],
)
def test_ctrl_c_leaves_no_half_file(
    files: list[Path],
    dark: Path,
    command: str,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(files[0].parent.iterdir())
    module = "_master" if command == "master" else "_corrected_file"
    if where == "write_sidecar":
        monkeypatch.setattr(f"daqiri_ophyd.documents.{module}.write_sidecar", interrupt)
    elif where == "replace":
        monkeypatch.setattr(Path, "replace", interrupt)
    else:
        monkeypatch.setattr(os, where, interrupt)
    code = run(command, files[0], "--dark", dark)
    monkeypatch.undo()
    assert code == 1 and "interrupted" in capsys.readouterr().err
    assert sorted(files[0].parent.iterdir()) == before
    assert run(command, files[0], "--dark", dark) == 0


def test_a_port_without_its_sender_leaves_frames_of_the_others() -> None:
    """And frames are whole again when it is back."""
    config = loopback(4, ROW, timeout_us=100_000)
    (interface,) = config.pop("interfaces")
    (plan,) = interface["rx"].pop("reorder_configs")
    del interface["tx"], interface["rx"]["flows"], plan["flow_ids"], config["loopback"]
    first = free_ports("udp", 2)
    for number in range(2):
        flow = {"name": "data", "id": number + 1, "action": {"type": "queue", "id": 0}}
        address = {"mode": "server", "local_addr": f"udp://127.0.0.1:{first + number}"}
        each = {"name": f"half{number}", "address": "127.0.0.1", "socket_config": address}
        config.setdefault("interfaces", []).append(
            {**each, "rx": {**interface["rx"], "flows": [flow]}}
        )
    flows = {"flows": ["half0/data", "half1/data"], "flow_stride": 2}
    config |= {"stream_type": "socket", "reorder_configs": [plan | flows]}
    missing = {4, 5, 6}
    with Engine.open(config) as engine, ExitStack() as opened:
        senders = []
        for number in range(2):
            sender = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sender.connect(("127.0.0.1", first + number))
            senders.append(sender)
        images = engine.reorder["images"]
        sent = 0
        with images.frames(timeout=60.0) as frames:
            for image_number in range(1, 10):
                for half, sender in enumerate(senders):
                    if half == 1 and image_number in missing:
                        continue
                    for slot in range(2):
                        numbers = (image_number, slot)
                        header = b"".join(n.to_bytes(4, "big") for n in numbers)
                        sender.send(header + bytes([image_number]) * ROW)
                        sent += 1
                wait_for(lambda so_far=sent: images.counters().packets == so_far)
                frame = next(frames)
                expected = np.full((4, ROW), image_number, np.uint8)
                if image_number in missing:
                    expected[2:] = 0
                assert (frame.batch, frame.packets) == (image_number, 2 + 2 * int(expected.all()))
                np.testing.assert_array_equal(frame.data, expected)
                del frame
        counters = images.counters()
    assert (counters.complete, counters.incomplete, counters.missing) == (6, 3, 6)
    assert counters.placed == sent


def test_one_port_for_two_interfaces_is_refused_by_name() -> None:
    config = loopback(4, ROW)
    (interface,) = config.pop("interfaces")
    del interface["tx"], interface["rx"]["flows"], interface["rx"]["reorder_configs"]
    del config["loopback"]
    port = free_ports("udp", 1)
    config["interfaces"] = [
        {
            **interface,
            "name": f"half{number}",
            "address": host,
            "socket_config": {"mode": "server", "local_addr": f"udp://{host}:{port}"},
        }
        for number, host in enumerate(("127.0.0.1", "0.0.0.0"))
    ]
    with pytest.raises(ConnectFailureError) as caught:
        Engine.open(config | {"stream_type": "socket"})
    assert f"interface 'half1': cannot bind udp://0.0.0.0:{port}" in str(caught.value)
    assert f"interface 'half0' has udp://127.0.0.1:{port}; choose" in str(caught.value)
