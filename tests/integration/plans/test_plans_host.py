"""The readiness of the host as a device, and plans that begin only on a host that is ready."""

import json
import shutil

import pytest
from bluesky import plans as bp
from bluesky.preprocessors import SupplementalData
from bluesky.utils import FailedStatus

from daqiri_ophyd.devices import HostReadiness
from daqiri_ophyd.host import CHECKS
from daqiri_ophyd.plans import HostNotReadyError, host_ready_wrapper


@pytest.fixture
def host(tmp_path):
    """Return a function that makes a host whose clock is off, on a disk that may be read-only."""

    def make(mount="rw"):
        root = tmp_path / "host"
        (root / "proc").mkdir(parents=True)
        (root / "recorded").mkdir()
        (root / "proc/mounts").write_text(f"/dev/a / xfs {mount} 0 0\n")
        clock = {"synchronized": False, "max_error": 16_000_000}
        (root / "recorded/clock.json").write_text(json.dumps(clock))
        return root

    return make


@pytest.fixture
def readiness(host):
    return HostReadiness(name="readiness", root=host(), folder="/data")


@pytest.fixture
def unready(host):
    return HostReadiness(name="readiness", root=host("ro"), folder="/data")


def test_a_reading_begins_and_ends_a_run(run_engine, documents, readiness, daq):
    run_engine.preprocessors.append(SupplementalData(baseline=[readiness]))
    run_engine(bp.count([daq.port0]))
    rows = documents.rows("baseline")
    assert [row["readiness_state"] for row in rows] == ["warn", "warn"]
    assert [row["readiness_not_ready"] for row in rows] == ["clocks", "clocks"]
    assert [(row["readiness_failures"], row["readiness_warnings"]) for row in rows] == [(0, 1)] * 2
    described = documents.descriptor("baseline")
    assert described["hints"]["readiness"]["fields"] == ["readiness_state"]
    configured = described["configuration"]["readiness"]["data"]
    assert configured["readiness_platform"] == "auto"
    for row in rows:
        checks = json.loads(row["readiness_checks"])
        assert list(checks) == list(CHECKS)
        assert checks["clocks"] == {"status": "warn", "found": "system clock: not synchronized"}


def test_what_was_found_is_in_the_start_document(run_engine, documents, readiness, daq):
    (uid,) = run_engine(host_ready_wrapper(bp.count([daq.port0]), readiness))
    [start] = documents.of("start")
    assert start["uid"] == uid
    assert start["host_readiness"] == {
        "platform": "generic",
        "status": "warn",
        "not_ready": {"clocks": "system clock: not synchronized"},
    }
    assert documents.stop["exit_status"] == "success"


def test_no_run_begins_on_a_host_that_is_not_ready(run_engine, documents, unready, daq):
    with pytest.raises(HostNotReadyError) as refused:
        run_engine(host_ready_wrapper(bp.count([daq.port0]), unready))
    text = str(refused.value)
    assert "storage: /data: mounted read-only; wanted: a local disk" in text
    assert "mount -o remount,rw /" in text
    assert "clocks" not in text
    assert not documents


def test_warnings_refuse_if_asked(run_engine, documents, readiness, daq):
    with pytest.raises(HostNotReadyError, match="clocks: system clock: not synchronized"):
        run_engine(host_ready_wrapper(bp.count([daq.port0]), readiness, refuse="warn"))
    assert not documents
    plan = host_ready_wrapper(bp.count([daq.port0]), readiness, refuse="warn", ignore=["clocks"])
    run_engine(plan)
    assert documents.stop["exit_status"] == "success"


def test_checks_that_may_come_out_as_they_like(run_engine, documents, unready, daq):
    run_engine(host_ready_wrapper(bp.count([daq.port0]), unready, ignore={"storage"}))
    [start] = documents.of("start")
    assert start["host_readiness"]["status"] == "fail"
    assert start["host_readiness"]["not_ready"]["storage"] == "/data: mounted read-only"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"refuse": "skip"}, "refuse is 'skip'; accepted are 'fail' and 'warn'"),
        ({"ignore": ["clock"]}, "ignore has 'clock'; accepted is a list of checks: engine, "),
        ({"ignore": "clocks"}, "ignore has 'clocks'; accepted is a list"),
    ],
)
def test_options_that_mean_nothing_are_named(run_engine, documents, readiness, options, message):
    with pytest.raises(ValueError, match=message):
        run_engine(host_ready_wrapper(bp.count([]), readiness, **options))
    assert readiness.report is None
    assert not documents


def test_a_check_that_cannot_be_made_fails_with_the_cause(run_engine, documents, host, daq):
    root = host()
    readiness = HostReadiness(name="readiness", root=root)
    shutil.rmtree(root)
    with pytest.raises(FailedStatus) as failed:
        run_engine(host_ready_wrapper(bp.count([daq.port0]), readiness))
    assert "which is not a folder" in str(failed.value.__cause__)
    assert not documents


def test_the_platform_is_a_setting(readiness):
    readiness.platform.set("spark").wait(timeout=60)
    readiness.trigger().wait(timeout=60)
    assert readiness.metadata()["platform"] == "spark"
    assert readiness.read()["readiness_state"]["value"] == "fail"
    with pytest.raises(ValueError, match="accepted are 'auto', 'generic'"):
        readiness.platform.set("jetson")


def test_before_the_first_check_nothing_is_known(readiness):
    assert readiness.report is None
    assert readiness.metadata() == {}
    assert readiness.read()["readiness_state"]["value"] == ""
    assert {key["dtype"] for key in readiness.describe().values()} == {"string", "integer"}
    assert readiness.describe().keys() == readiness.read().keys()
    assert readiness.describe_configuration().keys() == readiness.read_configuration().keys()
