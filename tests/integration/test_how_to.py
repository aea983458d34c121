"""The Python code of how-to guides runs unchanged."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from documented_programs import commands_of, run_command, run_program, start
from page_blocks import page_blocks, program
from preloaded_processes import run_preloaded

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
        "make-frames-of-packets.md",
        "prepare-a-fly-scan.md",
        "send-on-a-schedule.md",
    ],
)
def test_the_programs_of_a_guide_run(tmp_path: Path, guide: str) -> None:
    run_guide(guide, tmp_path)


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
