"""What becomes of a capture whose packets were lost."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from daqiri_ophyd.devices.recording._errors import CaptureError
from daqiri_ophyd.devices.recording._losses import PacketLossError
from daqiri_ophyd.devices.recording.frames._outcome import Acquisition
from daqiri_ophyd.devices.recording.packets._outcome import Outcome
from daqiri_ophyd.engine import RecorderSnapshot

GOOD = {
    "packets": 100,
    "bytes": 10_000,
    "files": 1,
    "dropped": 0,
    "left_out": 0,
    "running": False,
    "failing": False,
    "error": "",
    "unreported": 0,
    "limit_reached": False,
}


def failure(on_drop: str, on_error: str = "resume", **changes: Any) -> Exception | None:
    counters = SimpleNamespace(dropped={"ring_full": 0, "flushed": 0})
    queue: Any = SimpleNamespace(counters=lambda: counters)
    outcome = Outcome({"port0/q": queue}, 0, [counters.dropped], 0, on_error, on_drop)
    return outcome.failure(RecorderSnapshot(**(GOOD | changes)))


@pytest.mark.parametrize("on_drop", ["fail", "flag", "ignore"])
@pytest.mark.parametrize("on_error", ["stop", "resume"])
def test_losses_that_no_row_tells_fail_a_capture(on_drop: str, on_error: str) -> None:
    error = failure(on_drop, on_error, error="no room", dropped=5, unreported=7)
    assert isinstance(error, CaptureError)
    assert str(error) == (
        "no room; 5 packets were not written; 7 lost packets are in no row and no metadata"
    )


def test_losses_that_rows_tell_are_up_to_the_setting() -> None:
    lost: dict[str, Any] = {"error": "no room", "dropped": 5}
    assert failure("flag", **lost) is None
    assert failure("ignore", **lost) is None
    error = failure("fail", **lost)
    assert isinstance(error, PacketLossError)
    assert str(error) == "5 packets were not written: no room"
    error = failure("ignore", failing=True, **lost)
    assert str(error) == "no room; 5 packets were not written"
    assert failure("fail") is None


class LostBefore:
    """A port whose host lost packets before the engine."""

    def __init__(self, lost: int) -> None:
        self._lost = lost

    def lost(self, *, last: bool = False) -> int:
        return self._lost

    def text(self, *, last: bool = False) -> str:
        return f"{self._lost} lost before" if self._lost else ""

    def error(self, *, last: bool = False) -> PacketLossError | None:
        return PacketLossError(self.text()) if self._lost else None


@pytest.mark.parametrize("on_drop", ["fail", "flag", "ignore"])
@pytest.mark.parametrize("lost", [0, 9])
def test_losses_before_the_engine_are_up_to_the_setting(on_drop: str, lost: int) -> None:
    before_engine: Any = LostBefore(lost)
    outcome = Outcome({}, 0, [], 0, "stop", on_drop, before_engine=before_engine)
    error = outcome.failure(RecorderSnapshot(**GOOD))
    expected = "9 lost before" if lost and on_drop == "fail" else None
    assert (None if error is None else str(error)) == expected
    progress = "100 packets, 9 lost before the engine" if lost else "100 packets"
    assert outcome.progress_text(RecorderSnapshot(**GOOD)) == progress


def test_an_empty_file_is_no_dead_time() -> None:
    outcome = Outcome({}, 0, [], 0, "stop", "fail", files=4, deadtime=1e-6)

    def gap_error(first: int, last: int) -> CaptureError | None:
        return outcome.gap_error({"t_first_ns": first, "t_last_ns": last})

    assert gap_error(-1, -1) is None
    assert gap_error(1_000, 2_000) is None
    assert gap_error(-1, -1) is None
    assert str(gap_error(2_900, 3_000)) == (
        "file 4 begins 0.000000900 s after the last packet before it; the dead time is 1e-06 s: it "
        "has packets of two exposures"
    )
    assert gap_error(-1, -1) is None
    assert gap_error(4_000, 5_000) is None


def test_a_prepared_capture_that_ends_without_its_files_fails() -> None:
    counters = SimpleNamespace(dropped={"ring_full": 50, "flushed": 0}, held=0)
    queue: Any = SimpleNamespace(counters=lambda: counters)
    outcome = Outcome({"port0/q": queue}, 150, [counters.dropped], 0, "stop", "ignore", files=3)
    assert outcome.missing(RecorderSnapshot(**(GOOD | {"packets": 150, "files": 3}))) is None
    error = outcome.missing(RecorderSnapshot(**(GOOD | {"packets": 100, "files": 2})))
    assert "it ended with 100 of 150 packets, 2 of 3 files: the others were lost" in str(error)


@pytest.mark.parametrize(
    ("counted", "unwritten", "why"),
    [
        (2, 0, "2 frames were lost: no packet of them came, or memory region of plan 'p' had"),
        (0, 2, "2 frames were lost: a.h5: No space left on device; to"),
        (1, 2, "3 frames were lost: no packet .* buffer, or a.h5: No space left on device; to"),
    ],
)
def test_lost_frames_are_explained(counted: int, unwritten: int, why: str) -> None:
    """Also before their recorder has ended, whose error is the same."""
    counters = SimpleNamespace(absent=5 + counted, placed=7, late=2, malformed=0)
    plan = SimpleNamespace(name="p", counters=lambda: counters)
    before = SimpleNamespace(dropped=1, missing=0)
    now = SimpleNamespace(
        dropped=1 + unwritten, missing=0, error="a.h5: No space left on device", failing=True
    )
    detector = SimpleNamespace(on_drop=SimpleNamespace(get=lambda: "fail"))
    given: list[Any] = [9, True, None, plan, before, 5, counters]
    acquisition: Any = Acquisition(*given)
    assert re.match(why, str(acquisition.loss(detector, now)))
    assert acquisition.cause(now) == "a.h5: No space left on device"


@pytest.mark.parametrize(
    ("missing", "require_complete", "on_drop", "said"),
    [
        (0, True, "fail", None),  # the packets were of other programs
        (
            3,
            True,
            "ignore",
            "3 packets are missing in frames; to accept such frames set complete to False; 9 lost",
        ),
        (3, False, "fail", "3 packets are missing in frames; 9 lost before; to continue in spite"),
        (3, False, "flag", None),
    ],
)
def test_frames_without_the_packets_that_a_host_lost(
    missing: int, require_complete: bool, on_drop: str, said: str | None
) -> None:
    counters = SimpleNamespace(absent=5, placed=7, late=2, malformed=0)
    plan = SimpleNamespace(name="p", counters=lambda: counters)
    before = SimpleNamespace(dropped=1, missing=0)
    now: Any = SimpleNamespace(dropped=1, missing=missing, error="", failing=False)
    detector = SimpleNamespace(
        on_drop=SimpleNamespace(get=lambda: on_drop),
        require_complete=SimpleNamespace(get=lambda: require_complete, name="complete"),
    )
    given: list[Any] = [9, True, None, plan, before, 5, counters, LostBefore(9)]
    error = Acquisition(*given).loss(detector, now)
    assert (error is None) if said is None else str(error).startswith(said)
