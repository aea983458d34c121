"""Documents that reach catalogs twice."""

import logging
import threading

import pytest
from bluesky import plans as bp

from daqiri_ophyd.catalog import capture_files, recover_runs


@pytest.fixture
def recorded(device, run_engine):
    """The documents of a run."""
    documents = []
    run_engine.subscribe(lambda name, doc: documents.append((str(name), doc)))
    run_engine(bp.count([device], 3))
    return documents


def check(catalog, device, caplog, *writers, level=logging.WARNING):
    (uid,) = catalog.client
    run = catalog.client[uid]
    assert run.stop["exit_status"] == "success"
    assert capture_files(run) == device.written
    assert list(run["primary"].read()["soft_packets"]) == [2, 3, 4]
    for writer in writers:
        assert writer.backups == [] and writer.has_stored_all
    assert list(catalog.backup_directory.iterdir()) == []
    told = [r.getMessage() for r in caplog.records if r.levelno >= level]
    # A busy machine takes a while.
    assert [text for text in told if not text.startswith("Waiting for run ")] == []


@pytest.mark.parametrize("batch_size", [1, 10_000])
def test_two_subscriptions(catalog, device, run_engine, caplog, batch_size):
    writers = [catalog.writer(batch_size=batch_size) for _ in range(2)]
    for writer in writers:
        run_engine.subscribe(writer)
    run_engine(bp.count([device], 3))
    check(catalog, device, caplog, *writers)


def test_each_document_twice(catalog, device, recorded, caplog):
    writer = catalog.writer()
    for name, doc in recorded:
        writer(name, doc)
        writer(name, doc)
    check(catalog, device, caplog, writer)


@pytest.mark.parametrize("another", [True, False])
def test_a_run_again(catalog, device, recorded, caplog, another):
    writer = catalog.writer()
    second = catalog.writer() if another else writer
    for each in (writer, second):
        for name, doc in recorded:
            each(name, doc)
    check(catalog, device, caplog, writer, second)


def test_an_answer_that_is_lost(catalog, device, recorded, caplog, monkeypatch):
    """The run is stored, and its writer does not know."""
    writer = catalog.writer()
    stock = writer._tiled

    def lose(name, doc):
        stock(name, doc)
        if name == "stop":
            (catalog.backup_directory / f"{doc['run_start'].split('-')[0]}.jsonl").write_text("")

    monkeypatch.setattr(writer, "_tiled", lose)
    for name, doc in recorded:
        writer(name, doc)
    check(catalog, device, caplog, writer)


def test_a_run_that_another_process_never_ends(catalog, device, recorded, caplog):
    """Its documents are kept, and the run is recovered from them."""
    first = catalog.writer()
    for name, doc in recorded[:-1]:
        first(name, doc)
    catalog.flush()
    first._backlog.forget()
    second = catalog.writer()
    for name, doc in recorded:
        second(name, doc)
    assert second.backups == [] and not second.has_stored_all
    assert "without its end" in caplog.text and "catalog recover" in caplog.text
    (found,) = recover_runs(catalog, lambda _: [])
    assert (found.problem, found.reason) == ("", "it had ended, and is stored now")
    run = catalog.client[recorded[0][1]["uid"]]
    assert run.stop["exit_status"] == "success"
    assert list(run["primary"].read()["soft_packets"]) == [2, 3, 4]


def test_two_writers_that_start_at_once(catalog, device, recorded, caplog):
    writers = [catalog.writer() for _ in range(4)]
    begin = threading.Barrier(len(writers))

    def deliver(writer):
        begin.wait()
        for name, doc in recorded:
            writer(name, doc)

    threads = [threading.Thread(target=deliver, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Only one of them can have the journal.
    check(catalog, device, caplog, *writers, level=logging.ERROR)
