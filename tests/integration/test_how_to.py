"""The Python code of how-to guides runs unchanged."""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from textwrap import indent
from typing import Any

import h5py
import numpy as np
import pytest
from documented_programs import (
    commands_of,
    require_shown,
    run_command,
    run_page,
    run_program,
    start,
)
from object_servers import fault_server
from page_blocks import page_blocks, program
from preloaded_processes import run_preloaded

from daqiri_ophyd import profiles
from daqiri_ophyd.documents import sidecar_path, write_master
from daqiri_ophyd.engine import ethernet, load_config, write_pcap
from daqiri_ophyd.simulate import DescribedDetector, PacketFormat, Traffic

GUIDES = Path(__file__).parents[2] / "docs" / "how-to"


def run_guide(name: str, folder: Path, **options: Any) -> None:
    """Run the blocks of a guide as one program, whose output must be that of the page."""
    page = GUIDES / name
    exit_code, printed = run_program(program(page), folder, "-W", "error", **options)
    assert exit_code == 0, printed
    begin = 0
    for code, shown in pairwise(page_blocks(page)):
        if (code.language, shown.language) == ("python", "text") and not code.why_not_run:
            found = printed.find(shown.code, begin)
            assert found >= 0, f"not printed, or not in this order: {shown}\n{printed}"
            begin = found + len(shown.code)


def test_the_program_of_a_guide_runs_and_ends_in_an_interpreter_of_its_own(tmp_path: Path) -> None:
    run_guide("change-flows.md", tmp_path, start=start)


@pytest.mark.parametrize(
    "guide",
    [
        "prepare-a-fly-scan.md",
        "send-on-a-schedule.md",
    ],
)
def test_the_programs_of_a_guide_run(tmp_path: Path, guide: str) -> None:
    run_guide(guide, tmp_path)


@pytest.mark.usefixtures("camera_port")
def test_the_images_of_a_described_camera_are_recorded_as_the_guide_says(
    tmp_path: Path, empty_catalog: Path
) -> None:
    page = GUIDES / "make-frames-of-packets.md"
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    texts = [block.code for block in page_blocks(page) if block.language == "text"]
    description = next(block.code for block in page_blocks(page) if block.language == "yaml")
    (tmp_path / "camera-packets.yaml").write_text(description)
    printed = "".join(run_command(command, tmp_path) for command in commands_of(page))
    assert printed == texts[0]
    write_recording(tmp_path)
    exit_code, printed = run_program(program(page), tmp_path, "-W", "error")
    assert exit_code == 0, printed
    assert printed == "".join(texts[1:4])
    assert (tmp_path / "camera.png").stat().st_size > 10_000
    assert len(list((tmp_path / "data").rglob("*.h5"))) == 1


def test_packed_pixels_are_unpacked_as_the_guide_says(tmp_path: Path) -> None:
    page = GUIDES / "my-format-does-not-fit.md"
    (text,) = [block.code for block in page_blocks(page) if block.language == "text"]
    assert run_program(program(page), tmp_path, "-W", "error") == (0, text)


def write_recording(folder: Path) -> None:
    """Write packets of the camera, with later numbers than those of the simulated one."""
    camera = DescribedDetector(PacketFormat.read(folder / "camera-packets.yaml"))
    (chunk,) = Traffic(camera, 3, first=1_000_000)
    packets = ethernet.udp_frames(
        chunk.packets,
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=6000,
        dst_port=6000,
    )
    write_pcap(folder / "detector.pcap", packets, np.arange(len(packets)), link_type=1)


@pytest.mark.usefixtures("made_catalog")
@pytest.mark.parametrize("guide", ["read-captures.md", "replay-a-run.md"])
def test_the_run_of_the_demonstration_is_read_and_replayed_as_a_guide_says(
    tmp_path: Path, guide: str
) -> None:
    done = run_preloaded("-m", "daqiri_ophyd", "demo", "--packets", 2000, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run_guide(guide, tmp_path)
    if guide == "read-captures.md":
        is_given_to_a_colleague(tmp_path)


def is_given_to_a_colleague(folder: Path) -> None:
    page = GUIDES / "give-a-run-to-a-colleague.md"
    copy, listing, export = commands_of(page)
    for command in (copy, listing, export):
        run_command(command, folder)
    assert (folder / "run-for-anna" / "run.nxs").is_file()
    exit_code, printed = run_program(program(page), folder, "-W", "error")
    assert exit_code == 0, printed
    assert printed.splitlines() == [f"<Catalog {folder}/for-anna/catalog: 2 runs>", "True"]


@pytest.mark.usefixtures("udp_profile_port", "tcp_profile_port")
def test_a_configuration_is_written_as_the_guide_says(tmp_path: Path) -> None:
    run_command("daqiri-ophyd config show udp > detector.yaml", tmp_path)
    run_guide("write-a-configuration.md", tmp_path)


@pytest.mark.usefixtures("udp_profile_port")
def test_captures_of_your_own_plans_go_where_the_guide_says(tmp_path: Path) -> None:
    run_guide("capture-in-your-own-plan.md", tmp_path)
    (file,) = tmp_path.glob("data/FeNi 3/scan 00*/*.pcap")
    assert file.name == "daq_receiver_capture_000000.pcap"


@pytest.mark.usefixtures("jungfrau_port")
def test_frames_are_recorded_as_the_guide_says(tmp_path: Path) -> None:
    run_guide("record-frames-in-scans.md", tmp_path)


def write_master_of_frames(folder: Path) -> None:
    """Write a master of a JUNGFRAU module; of the third image, packet 5 did not come."""
    count, packets, shape = 10, 128, (512, 1024)
    valid = np.full((count, packets // 8), 255, np.uint8)
    valid[2, 0] -= 1 << 5
    missing = (np.arange(count) == 2).astype("u4")
    times = np.arange(count, dtype="i8")
    columns = {"batch": times.astype("u4"), "timestamp": times, "last_timestamp": times}
    columns |= {"packets": packets - missing, "missing": missing, "valid": valid}
    columns |= {name: np.zeros(count, "u1") for name in ("timed_out", "lossy")}
    path = folder / "images_000000.h5"
    with h5py.File(path, "w") as file:
        device = file.create_group("entry/instrument/images")
        device["description"] = "frames of reorder plan images"
        chunks, most = (1, *shape), (None, *shape)
        device.create_dataset("data", (count, *shape), "u2", chunks=chunks, maxshape=most)
        for name, values in columns.items():
            device[name] = values
        plot = file.create_group("entry/data")
        for name in device:
            if name != "description":
                plot[name] = device[name]
    told = {"frames": count, "packets": count * packets - 1, "missing": 1, "bytes": 1, "dropped": 0}
    told |= {"t_first_ns": 0, "t_last_ns": 9, "reorder_plan": "receiver/images"}
    told |= {"configuration": profiles.path("jungfrau").read_text()}
    sidecar_path(path).write_text(json.dumps(told))
    mask = np.zeros(shape, bool)
    mask[20, 0] = mask[300, 7] = True  # packet 5 has rows 20 to 23
    ones = np.ones(shape)
    write_master([path], references={"pixel_mask": mask, "dark": ones, "flatfield": ones})


def test_frames_are_corrected_as_the_guide_says(tmp_path: Path) -> None:
    write_master_of_frames(tmp_path)
    run_guide("frame-files.md", tmp_path)
    run_command("daqiri-ophyd frames correct images_000000_master.h5", tmp_path)
    with h5py.File(tmp_path / "images_000000_master_corrected.h5") as file:
        lacking = np.isnan(file["entry/data/data"][()]).sum(axis=(1, 2))
    assert lacking.tolist() == [2, 2, 4097, *[2] * 7]


def test_settings_have_the_names_that_the_guide_from_areadetector_gives(tmp_path: Path) -> None:
    run_page(GUIDES / "from-areadetector.md", tmp_path, "-W", "error")


@pytest.mark.usefixtures("jungfrau_port")
def test_images_are_seen_live_as_the_guide_shows(tmp_path: Path) -> None:
    run_page(GUIDES / "see-images-live.md", tmp_path, "-W", "error")
    assert (tmp_path / "live.png").stat().st_size > 10_000


@pytest.mark.usefixtures("jungfrau_port", "made_catalog")
def test_a_scan_is_plotted_as_the_guide_shows(tmp_path: Path) -> None:
    page = GUIDES / "plot-a-scan.md"
    done = run_preloaded(
        "-m", "daqiri_ophyd", "shell", "jungfrau", cwd=tmp_path, given=program(page)
    )
    assert done.returncode == 0, done.stderr + done.stdout
    require_shown(page, done.stdout)
    for picture in ("scan.png", "profiles.png"):
        assert (tmp_path / picture).stat().st_size > 5_000


def test_a_program_gives_its_metrics_to_opentelemetry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    run_guide("watch-in-grafana.md", tmp_path)


def test_files_go_to_an_object_store_as_the_guide_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_catalog: Path
) -> None:
    shutil.copytree(empty_catalog, tmp_path / "data" / "catalog")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page = GUIDES / "ship-to-an-object-store.md"
    with fault_server() as server:
        server.use(monkeypatch)
        run_guide(page.name, tmp_path)
        assert len(server.objects) == 8
        (ship,) = commands_of(page)
        assert run_command(ship, tmp_path) == "no file waits for an object store\n"
    (found,) = [block.code for block in page_blocks(page) if block.language == "yaml"]
    text = f"{Path(profiles.path('loopback')).read_text()}{indent(found, '    ')}"
    assert load_config(text).ship_to == "s3://bucket/beamline"


@pytest.mark.usefixtures("udp_profile_port")
def test_stats_are_read_as_the_guide_says(tmp_path: Path) -> None:
    page = GUIDES / "read-stats.md"
    shown, _ = (run_command(f"COLUMNS=150 {each}", tmp_path) for each in commands_of(page))
    text = page.read_text()
    for line in shown.splitlines():
        if line.startswith(("receive queue", "transmit queue", "memory region")):
            for column in re.split(r" {2,}", line.strip())[1:]:
                assert f"`{column}`" in text or column in text, column
    run_guide("read-stats.md", tmp_path)
    assert len((tmp_path / "stats.jsonl").read_text().splitlines()) == 2
