"""A run is stored whatever its metadata contain."""

import datetime
import decimal
import json
import logging

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from ophyd import Signal

from daqiri_ophyd.catalog import BackupError, Catalog, capture_files

ODD = {
    "exposure": decimal.Decimal("1.5"),
    "dwell": datetime.timedelta(seconds=3),
    "phase": 1 + 2j,
    "sample": {"name": "a\0b", "note": "\udcff"},
}
PLAIN = {
    "exposure": "1.5",
    "dwell": "0:00:03",
    "phase": "(1+2j)",
    "sample": {"name": "a\ufffdb", "note": "\ufffd"},
}


class Odd(Signal):
    """A signal whose value JSON does not know."""

    def describe(self):
        key = {"source": "odd", "dtype": "string", "shape": []}
        return {self.name: key}


@pytest.fixture
def odd():
    return Odd(name="odd", value=decimal.Decimal("2.5"))


def warnings(caplog):
    wanted = (logging.WARNING, "daqiri_ophyd.catalog._writer")
    return [r.getMessage() for r in caplog.records if (r.levelno, r.name) == wanted]


@pytest.mark.parametrize("batch_size", [1, 10_000])
def test_metadata_of_a_run(catalog, device, run_engine, caplog, batch_size):
    writer = catalog.writer(batch_size=batch_size)
    run_engine.subscribe(writer)
    (uid,) = run_engine(bp.count([device], 2, md=ODD))
    run = catalog.client[uid]
    assert {key: run.start[key] for key in PLAIN} == PLAIN
    assert run.stop["exit_status"] == "success"
    assert capture_files(run) == device.written
    assert list(run["primary"].read()["soft_packets"]) == [2, 3]
    assert writer.backups == [] and list(catalog.backup_directory.iterdir()) == []
    (warning,) = warnings(caplog)
    for named in (
        "start['exposure'] (text, its type is decimal.Decimal)",
        "start['dwell']",
        "start['phase']",
        "start['sample']['name'] (U+FFFD",
        "start['sample']['note']",
    ):
        assert named in warning


def test_configuration_and_readings(catalog, device, odd, run_engine, caplog):
    @bpp.stage_decorator([device, odd])
    @bpp.run_decorator()
    def plan():
        for _ in range(3):
            yield from bps.trigger_and_read([device, odd])

    device.read_configuration = lambda: {"gain": {"value": decimal.Decimal(7), "timestamp": 0}}
    device.describe_configuration = lambda: {"gain": {"source": "", "dtype": "string", "shape": []}}
    run_engine.subscribe(catalog.writer())
    (uid,) = run_engine(plan())
    stream = catalog.client[uid]["primary"]
    assert stream.metadata["configuration"]["soft"]["data"]["gain"] == "7"
    assert stream.read()["odd"].values.tolist() == ["2.5"] * 3
    first, second = warnings(caplog)  # once for all events
    assert "descriptor['configuration']['soft']['data']['gain']" in first
    assert "event['data']['odd']" in second


def test_the_backup_of_a_run_is_whole(
    tmp_path, captures, catalog, device, run_engine, odd, monkeypatch
):
    monkeypatch.setattr("tiled.client.utils.TILED_RETRY_ATTEMPTS", 2)
    monkeypatch.setattr("tiled.client.utils.TILED_RETRY_TIMEOUT", 2.0)
    writer = catalog.writer()
    run_engine.subscribe(writer)
    catalog._server.close()
    (uid,) = run_engine(bp.count([device, odd], 2, md=ODD))
    (backup,) = writer.backups
    start = json.loads(backup.read_text().splitlines()[0])["doc"]
    assert {key: start[key] for key in PLAIN} == PLAIN
    catalog.close()
    with Catalog.open(tmp_path / "catalog", readable=[captures]) as reopened:
        assert reopened.ingest_backup(backup) == uid
        run = reopened.client[uid]
        assert {key: run.start[key] for key in PLAIN} == PLAIN
        assert run["primary"].read()["odd"].values.tolist() == ["2.5"] * 2


def test_the_journal_of_a_run_has_the_same_text(catalog, device, run_engine):
    seen = []

    def look() -> None:
        (journal,) = catalog.backup_directory.glob("*.unfinished.jsonl")
        seen.append(json.loads(journal.read_text().splitlines()[0])["doc"])

    device.before_read = look
    run_engine.subscribe(catalog.writer())
    run_engine(bp.count([device], md=ODD))
    assert {key: seen[0][key] for key in PLAIN} == PLAIN


@pytest.mark.parametrize("value", [2**64, [1, "a"], {"a": 1}])
def test_a_value_that_no_table_has_is_named(catalog, device, odd, run_engine, caplog, value):
    values = iter([decimal.Decimal(1), value])

    def put_next():
        odd.put(next(values))

    device.before_read = put_next
    writer = catalog.writer()
    run_engine.subscribe(writer)
    (uid,) = run_engine(bp.count([device, odd], 2))
    (backup,) = writer.backups
    where = f"field 'odd' of stream 'primary': the value {value} in row 2"
    (error,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert error.exc_info is None
    assert error.getMessage().startswith(f"Run {uid} is not in the catalog at {catalog.uri}, which")
    assert where in error.getMessage() and str(backup) in error.getMessage()
    assert "\n" not in error.getMessage()
    with pytest.raises(BackupError, match="Correct the value in the file") as refused:
        catalog.ingest_backup(backup)
    assert where in str(refused.value)
