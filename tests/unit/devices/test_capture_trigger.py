"""Descriptions of prepared captures, and those of ophyd-async."""

from enum import Enum
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from daqiri_ophyd.devices import CaptureError, CaptureTrigger


class DetectorTrigger(Enum):
    """As in ophyd-async."""

    INTERNAL = "INTERNAL"
    EXTERNAL_EDGE = "EXTERNAL_EDGE"
    CONSTANT_GATE = "CONSTANT_GATE"
    SOFTWARE = "SOFTWARE"


class TriggerInfo(BaseModel):
    """As in ophyd-async, with fields of several of its versions."""

    number_of_events: int | list[int] = 1
    trigger: DetectorTrigger = DetectorTrigger.INTERNAL
    deadtime: float = 0.0
    livetime: float | None = None
    exposure_timeout: float | None = None
    exposures_per_event: int = 1
    exposures_per_collection: int = 1
    collections_per_event: int = 1
    gain: str = "high"


def test_numbers_are_those_of_all_files() -> None:
    trigger = CaptureTrigger(number_of_files=np.int64(3), packets_per_file=np.uint32(100))
    assert trigger.packets == 300
    assert trigger == CaptureTrigger(number_of_files=3, packets_per_file=100)
    assert trigger.settings() == {
        "num_packets": 300,
        "acquire_time": 0.0,
        "roll_packets": 100,
        "roll_bytes": 0,
        "roll_seconds": 0.0,
        "start_flow": "",
        "deadtime": 0.0,
        "file_timeout": 0.0,
    }


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"number_of_files": 0}, ValueError, "number_of_files is 0; accepted is 1 or more"),
        ({"number_of_files": True}, TypeError, "number_of_files is True; accepted is an integer"),
        ({"number_of_files": 1.5}, TypeError, "number_of_files is 1.5; accepted is an integer"),
        ({"packets_per_file": -1}, ValueError, "packets_per_file is -1; accepted is 1 or more"),
        ({"packets_per_file": "9"}, TypeError, "packets_per_file is '9'; accepted is an integer"),
        ({"start": 7}, TypeError, "start is 7; accepted are the name of a flow, and None"),
        ({"start": ""}, TypeError, "start is ''; accepted are the name of a flow, and None"),
        (
            {"number_of_files": 2**60},
            ValueError,
            f"are {10 * 2**60} packets; accepted are {2**63 - 1}",
        ),
        ({"deadtime": -0.1}, ValueError, "deadtime is -0.1 s; accepted is 0 or more"),
        ({"deadtime": float("nan")}, ValueError, "deadtime is nan s; accepted is 0 or more"),
        ({"deadtime": None}, TypeError, "deadtime is None; accepted is a time in s"),
        ({"deadtime": 10**400}, TypeError, "deadtime is 1000.*; accepted is a time in s"),
        ({"deadtime": b"5"}, TypeError, "deadtime is b'5'; accepted is a time in s"),
        ({"livetime": -1}, ValueError, "livetime is -1 s; accepted is 0 or more"),
        ({"external": 1}, TypeError, "external is 1; accepted are True and False"),
        ({"timeout": 0}, ValueError, "timeout is 0; accepted are more than 0 s, and None"),
        ({"timeout": "1"}, TypeError, "timeout is '1'; accepted is a time in s"),
    ],
)
def test_nonsense_is_named(values: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        CaptureTrigger(**{"packets_per_file": 10, **values})


def test_a_trigger_info_of_ophyd_async_is_understood() -> None:
    given = TriggerInfo(number_of_events=4, deadtime=0.001, exposure_timeout=2.0)
    assert CaptureTrigger.of(given, packets_per_file=50) == CaptureTrigger(
        number_of_files=4, packets_per_file=50, deadtime=0.001, timeout=2.0
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"trigger": DetectorTrigger.SOFTWARE},
            r"trigger is DetectorTrigger.SOFTWARE; accepted are INTERNAL, EXTERNAL_EDGE, EXT",
        ),
        (
            {"livetime": 0.1},
            "livetime is 0.1 and trigger is INTERNAL; a capture receives what.* EXT",
        ),
        ({"exposures_per_event": 2}, "exposures_per_event is 2; accepted is 1: a row has one file"),
        ({"collections_per_event": 3}, "collections_per_event is 3; accepted is 1.*as many events"),
        (
            {"number_of_events": [1, 2]},
            r"number_of_events is \[1, 2\]; accepted is one number, 0 .*prepare again for another",
        ),
        ({"number_of_events": 0}, "number_of_events is 0; accepted is 1 or more: each kickoff"),
        ({"gain": "low"}, "gain: a capture has no such field"),
    ],
)
def test_what_a_capture_cannot_do_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        CaptureTrigger.of(TriggerInfo(**values), packets_per_file=50)


@pytest.mark.parametrize(
    "trigger", [DetectorTrigger.EXTERNAL_EDGE, DetectorTrigger.CONSTANT_GATE, "EXTERNAL_LEVEL"]
)
def test_the_times_of_an_external_trigger_are_how_long_packets_take(trigger: Any) -> None:
    given = TriggerInfo.model_construct(
        number_of_events=[4], trigger=trigger, livetime=2.0, deadtime=0.5
    )
    assert CaptureTrigger.of(given, packets_per_file=50) == CaptureTrigger(
        number_of_files=4, packets_per_file=50, external=True, livetime=2.5
    )


def test_defaults_of_a_real_trigger_info_ask_for_nothing() -> None:
    ophyd_async = pytest.importorskip("ophyd_async.core", reason="needs ophyd-async")
    given = ophyd_async.TriggerInfo(number_of_events=3, deadtime=0.5)
    assert CaptureTrigger.of(given, packets_per_file=50) == CaptureTrigger(
        number_of_files=3, packets_per_file=50, deadtime=0.5
    )
    given = ophyd_async.TriggerInfo(exposure_timeout=2.0)
    assert CaptureTrigger.of(given, packets_per_file=50) == CaptureTrigger(
        packets_per_file=50, timeout=2.0
    )


def test_a_trigger_info_needs_the_packets_of_a_file() -> None:
    with pytest.raises(CaptureError, match="set roll_packets before, or use CaptureTrigger"):
        CaptureTrigger.of(TriggerInfo(), packets_per_file=0)
