"""``daqiri-ophyd gpu check``, with a GPU driver that runs kernels on this host."""

import json
from pathlib import Path

import pytest

from daqiri_ophyd.cli import _gpu_frames

from .conftest import Run

CHECK = """
import subprocess, sys
command = [sys.executable, "-m", "daqiri_ophyd", "gpu", "check", *{options!r}]
done = subprocess.run(command, capture_output=True, text=True)
print(done.returncode)
print(done.stdout + done.stderr)
"""
FEW = ("--bytes", "100000", "--seconds", "0")


def check(run: Run, *options: str, **answers: int) -> tuple[int, str]:
    """Return the exit code and the output."""
    said, _ = run(CHECK.format(options=options), **answers)
    code, _, text = said.partition("\n")
    return int(code), text


def test_frames_of_every_layout_are_compared_and_rates_measured(
    with_driver: Run, tmp_path: Path
) -> None:
    answers = {"ON_HOST": 1, "CUFILE_OPEN": 5001}
    code, said = check(with_driver, *FEW, "--json", "--folder", f"{tmp_path}", **answers)
    assert code == 0, said
    found = json.loads(said)
    assert found["gpu"]["gpu"] == "Host 0"
    assert [(each["layout"], each["memory"]) for each in found["frames"]] == [
        (layout.name, kind) for layout in _gpu_frames.LAYOUTS for kind in ("host_pinned", "device")
    ]
    assert not any(each["wrong"] for each in found["frames"])
    assert found["cufile"]["mode"] == ""
    assert found["cufile"]["missing"].startswith("cuFile's driver does not open")
    assert len(found["rates"]) == 6
    assert all(each["share"] > 0 for each in found["rates"])


def test_frames_are_written_with_cufile_and_read_back(with_driver: Run) -> None:
    # On a file system with O_DIRECT, which that of the temporary folder may not support.
    folder = Path(__file__).parents[3] / "build"
    code, said = check(with_driver, *FEW, "--folder", f"{folder}", ON_HOST=1, CUFILE_MAJOR=0)
    assert code == 0, said
    assert "compatibility mode, read back the same" in said
    lines = [line.rstrip() for line in said.splitlines()]
    assert sum(line.endswith("the same") for line in lines) == 2 * len(_gpu_frames.LAYOUTS) + 1


def test_a_kernel_that_does_not_convert_is_told(with_driver: Run, tmp_path: Path) -> None:
    # Without ON_HOST, the driver copies bytes unchanged.
    code, said = check(with_driver, *FEW, "--folder", f"{tmp_path}", CUFILE_OPEN=5001)
    assert code == 1
    assert "frame 0: 522242 bytes are not" in said
    assert "bench_gpu: ours makes a wrong frame" in said


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"GPUS": 0}, "the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES may hide it)"),
        ({"COMPILE": 6}, "NVRTC 13.1 cannot compile a kernel"),
    ],
    ids=["gpu", "compiler"],
)
def test_what_is_missing_is_told(
    with_driver: Run, tmp_path: Path, answers: dict[str, int], reason: str
) -> None:
    code, said = check(with_driver, "--folder", f"{tmp_path}", **answers)
    assert (code, reason in said) == (1, True)
    assert "Traceback" not in said
