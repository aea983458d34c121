"""Checks after every run: documents, files and counters agree, and nothing is still running."""

import threading
from pathlib import Path
from typing import Any

import event_model
from ophyd.device import Staged

from daqiri_ophyd.devices import Capture, Daq, RxQueue, TxQueue
from daqiri_ophyd.documents import read_sidecar
from daqiri_ophyd.engine import PcapFile

COUNTERS = ("packets", "bytes", "dropped", "t_first_ns", "t_last_ns")


def parts(daq: Daq, cls: type) -> list[Any]:
    """Return the devices of a kind in an engine."""
    return [part for _, part in daq.walk_subdevices(include_lazy=True) if isinstance(part, cls)]


def settings_of(daq: Daq) -> dict[str, Any]:
    """Return all settings of captures and transmit queues."""
    return {
        f"{part.name}.{name}": getattr(part, name).get()
        for cls in (Capture, TxQueue)
        for part in parts(daq, cls)
        for name in part.configuration_attrs
    }


def events_of(documents, run: str, stream: str) -> list[dict[str, Any]]:
    """Return the events of a stream, pages unpacked; no number is missing or there twice.

    A stream that is declared again has several descriptors, and one row of numbers.
    """
    descriptors = {
        doc["uid"]
        for doc in documents.of("descriptor")
        if (doc["run_start"], doc["name"]) == (run, stream)
    }
    events = []
    for name, doc in documents:
        if name == "event_page" and doc["descriptor"] in descriptors:
            events += event_model.unpack_event_page(doc)
        elif name == "event" and doc["descriptor"] in descriptors:
            events.append(doc)
    assert [event["seq_num"] for event in events] == list(range(1, len(events) + 1))
    return events


def check(
    documents,
    daq: Daq,
    captures: Path,
    before: dict[str, Any] | None,
    *,
    status: str = "success",
    runs: int = 1,
    beside: int = 0,
) -> list[Path]:
    """Check complete runs; return their files, in the order of the documents.

    Parameters
    ----------
    documents : Documents
        Documents of the runs.
    daq, captures
        The engine, and the directory of all its files.
    before : dict or None
        `settings_of` before the runs; None: they may have changed (a halt leaves no chance).
    status : str
        Exit status of every run.
    runs : int
        Number of runs.
    beside : int
        Files in no document: of readings that were interrupted.
    """
    assert len(documents.of("start")) == runs
    assert [doc["exit_status"] for doc in documents.of("stop")] == [status] * runs
    files = check_files(documents)
    assert len(set(files)) == len(files)
    on_disk = set(captures.rglob("*.pcap"))
    assert set(files) <= on_disk
    assert len(on_disk) - len(files) == beside
    if before is not None:
        assert settings_of(daq) == before
    check_idle(daq)
    return files


def check_files(documents) -> list[Path]:
    """Check that events, files and metadata files have equal numbers; return the files."""
    descriptors = {doc["uid"]: doc for doc in documents.of("descriptor")}
    resources = {doc["uid"]: doc for doc in documents.of("stream_resource")}
    external = {
        (doc["run_start"], doc["name"]): {
            key for key, value in doc["data_keys"].items() if "external" in value
        }
        for doc in descriptors.values()
    }
    events = {stream: events_of(documents, *stream) for stream in external}
    for stop in documents.of("stop"):
        counts = {
            name: len(rows) for (run, name), rows in events.items() if run == stop["run_start"]
        }
        assert stop["num_events"] == counts
    users: dict[str, tuple[str, str]] = {}
    named: dict[tuple[tuple[str, str], str], list[int]] = {}
    found = []
    for datum in documents.of("stream_datum"):
        resource, descriptor = resources[datum["stream_resource"]], descriptors[datum["descriptor"]]
        stream = descriptor["run_start"], descriptor["name"]
        assert users.setdefault(resource["uid"], stream) == stream
        assert resource["run_start"] == descriptor["run_start"]
        folder = Path(resource["uri"].removeprefix("file://localhost"))
        template, key = resource["parameters"]["template"], resource["data_key"]
        assert descriptor["data_keys"][key]["external"] == "STREAM:"
        indices = range(datum["indices"]["start"], datum["indices"]["stop"])
        numbers = range(datum["seq_nums"]["start"], datum["seq_nums"]["stop"])
        for index, number in zip(indices, numbers, strict=True):
            named.setdefault((stream, key), []).append(number)
            found.append(folder / template.format(index))
            check_file(found[-1], events[stream][number - 1]["data"], key.removesuffix("_files"))
    assert set(users) == set(resources)
    for stream, rows in events.items():  # every row has its files
        for key in external[stream]:
            assert named.get((stream, key), []) == list(range(1, len(rows) + 1))
    return found


def check_file(file: Path, row: dict[str, Any], stem: str) -> None:
    """Check a file against its metadata file and its row."""
    sidecar = read_sidecar(file)
    assert sidecar is not None
    with PcapFile(file) as pcap:
        assert pcap.torn_bytes == 0
        assert len(pcap) == sidecar.packets
        if len(pcap):
            assert pcap.timestamps[0] == sidecar.t_first_ns
            assert pcap.timestamps[-1] == sidecar.t_last_ns
    assert sidecar.dropped == 0
    columns = {name: row[f"{stem}_{name}"] for name in COUNTERS if f"{stem}_{name}" in row}
    assert columns  # there is at least one counter, independent of `read_attrs`
    assert columns == {name: getattr(sidecar, name) for name in columns}


def check_idle(daq: Daq) -> None:
    """Check that nothing is recorded, sent, held or lost, and nothing is staged."""
    for capture in parts(daq, Capture):
        assert capture.progress is None
    for rx in parts(daq, RxQueue):
        dropped = daq.rx_queue(rx.port_name, rx.member_name).counters().dropped
        assert {why for why, count in dropped.items() if count} <= {"flushed"}
    for tx in parts(daq, TxQueue):
        assert tx.transmission is None
        counters = daq.tx_queue(tx.port_name, tx.member_name).counters()
        assert counters.held == 0
        assert {why for why, count in counters.dropped.items() if count} <= {"flushed"}
    for part in [daq, *parts(daq, Capture), *parts(daq, TxQueue)]:
        assert part._staged == Staged.no, part.name
    assert "daqiri-transmit" not in [thread.name for thread in threading.enumerate()]
