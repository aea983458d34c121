import json
import os
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daqiri_ophyd.documents import Sidecar, SidecarError, read_sidecar, sidecar_path

GOOD = {
    "packets": 3,
    "bytes": 183,
    "t_first_ns": 1_700_000_000_000_000_000,
    "t_last_ns": 1_700_000_000_000_000_002,
    "dropped": 5,
    "dropped_by_reason": {"ring_full": 4, "kernel": 1},
    "lost_before_engine": 9,
    "lost_before_engine_by_reason": {"card": 2, "backlog": 7},
    "link_type": 101,
    "nanosecond": True,
    "headers_reconstructed": True,
    "queue": "port0/rx0",
    "clock": "CLOCK_REALTIME",
    "run": {"uid": "5c09", "scan_id": 3, "plan_name": "count"},
    "detector": {"name": "camera", "count_time": 0.5},
    "configuration": "daqiri: {}\n",
}
REQUIRED = ("packets", "bytes", "t_first_ns", "t_last_ns", "dropped")


def write(directory: Path, content: object) -> Path:
    pcap = directory / "capture_000000.pcap"
    sidecar_path(pcap).write_text(content if isinstance(content, str) else json.dumps(content))
    return pcap


def test_path_is_beside_the_file():
    assert sidecar_path("/data/a.pcap") == Path("/data/a.pcap.json")


def test_no_sidecar(tmp_path):
    assert read_sidecar(tmp_path / "capture_000000.pcap") is None


def test_everything_is_read(tmp_path):
    assert read_sidecar(write(tmp_path, GOOD)) == Sidecar(**GOOD)


def test_other_keys_are_ignored(tmp_path):
    pcap = write(tmp_path, GOOD | {"torn_bytes": 0, "host": "daq1", "flows": [1, 2]})
    assert read_sidecar(pcap) == Sidecar(**GOOD)


def test_required_keys_are_enough(tmp_path):
    pcap = write(tmp_path, {key: GOOD[key] for key in REQUIRED})
    sidecar = read_sidecar(pcap)
    assert sidecar == Sidecar(**{key: GOOD[key] for key in REQUIRED})
    assert sidecar.dropped_by_reason == {} and not sidecar.headers_reconstructed


def test_summary(tmp_path):
    pcap = write(tmp_path, GOOD)
    summary = read_sidecar(pcap).summary(pcap)
    assert summary.path == pcap
    assert summary.record().tolist() == tuple(GOOD[key] for key in REQUIRED)
    assert summary.lost_before_engine == GOOD["lost_before_engine"]


def test_empty_capture(tmp_path):
    none = {"packets": 0, "bytes": 0, "t_first_ns": -1, "t_last_ns": -1, "dropped": 0}
    assert read_sidecar(write(tmp_path, none)).t_first_ns == -1


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("packets", -1, "packets is -1, expected an integer >= 0"),
        ("packets", True, "packets is True, expected an integer >= 0"),
        ("bytes", 1.5, "bytes is 1.5, expected an integer >= 0"),
        ("t_first_ns", -2, "t_first_ns is -2, expected an integer >= -1"),
        ("t_last_ns", 2**63, "t_last_ns is 9223372036854775808, expected an integer >= -1"),
        ("dropped", "none", "dropped is 'none', expected an integer >= 0"),
        ("dropped_by_reason", [], r"dropped_by_reason is \[\], expected an object"),
        ("dropped_by_reason", {"nic": None}, "dropped_by_reason.nic is None, expected an integer"),
        ("lost_before_engine", -1, "lost_before_engine is -1, expected an integer >= 0"),
        (
            "lost_before_engine_by_reason",
            1,
            "lost_before_engine_by_reason is 1, expected an object",
        ),
        (
            "lost_before_engine_by_reason",
            {"card": "x"},
            "lost_before_engine_by_reason.card is 'x', expected an integer",
        ),
        ("link_type", "EN10MB", "link_type is 'EN10MB', expected an integer"),
        ("nanosecond", 1, "nanosecond is 1, expected true or false"),
        ("headers_reconstructed", "no", "headers_reconstructed is 'no', expected true or false"),
        ("queue", 0, "queue is 0, expected a string"),
        ("clock", None, "clock is None, expected a string"),
        ("run", "5c09", "run is '5c09', expected an object"),
        ("detector", None, "detector is None, expected an object"),
        ("configuration", {}, r"configuration is \{\}, expected a string"),
    ],
)
def test_bad_value(tmp_path, key, value, message):
    pcap = write(tmp_path, GOOD | {key: value})
    with pytest.raises(SidecarError, match=message) as raised:
        read_sidecar(pcap)
    assert str(sidecar_path(pcap)) in str(raised.value)


def test_all_faults_at_once(tmp_path):
    pcap = write(tmp_path, {"packets": "x", "queue": 1})
    with pytest.raises(SidecarError) as raised:
        read_sidecar(pcap)
    for words in ("packets is 'x'", "bytes is missing", "dropped is missing", "queue is 1"):
        assert words in str(raised.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", "null", '{"packets": NaN}'])
def test_not_a_json_object(tmp_path, text):
    with pytest.raises(SidecarError):
        read_sidecar(write(tmp_path, text))


def test_not_text(tmp_path):
    pcap = tmp_path / "a.pcap"
    sidecar_path(pcap).write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(SidecarError, match="is not JSON"):
        read_sidecar(pcap)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(string.printable),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(string.printable), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from([*GOOD, "other"]), json_values))
def test_any_object_is_read_or_refused(tmp_path_factory, content):
    pcap = write(tmp_path_factory.mktemp("sidecar"), GOOD | content)
    try:
        sidecar = read_sidecar(pcap)
    except SidecarError:
        return
    for key in REQUIRED:
        assert getattr(sidecar, key) == (GOOD | content)[key]


def test_metadata_that_no_parser_takes(tmp_path):
    pcap = write(tmp_path, "[" * 100_000)
    with pytest.raises(SidecarError, match="is not JSON"):
        read_sidecar(pcap)


def test_a_pipe_in_place_of_metadata(tmp_path):
    pcap = tmp_path / "capture_000000.pcap"
    os.mkfifo(sidecar_path(pcap))
    with pytest.raises(SidecarError, match="not a regular file"):
        read_sidecar(pcap)
