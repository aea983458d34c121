import struct

import event_model
import numpy as np
import pytest
from databroker.mongo_normalized import discover_handlers

from daqiri_ophyd.catalog import LEGACY_SPEC, PcapHandler
from daqiri_ophyd.documents import SUMMARY_DTYPE, capture_data_key


@pytest.fixture
def files(tmp_path):
    for number in range(2):
        record = struct.pack("<IIII", number, 7, 4, 60) + b"abcd"
        header = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)
        (tmp_path / f"scan_{number:06d}.pcap").write_bytes(header + record * (number + 1))
    return tmp_path


def records() -> list[tuple[int, ...]]:
    return [(1, 60, 7, 7, 0), (2, 120, 1_000_000_007, 1_000_000_007, 0)]


def old_run(files) -> list[tuple[str, dict]]:
    """Resource and Datum documents of a run with two files."""
    run = event_model.compose_run()
    resource = run.compose_resource(
        spec=LEGACY_SPEC,
        root=str(files),
        resource_path=".",
        resource_kwargs={"template": "scan_{:06d}.pcap"},
    )
    key = {**capture_data_key("daqiri://port0"), "external": "FILESTORE:"}
    stream = run.compose_descriptor(name="primary", data_keys={"files": key})
    documents = [
        ("start", run.start_doc),
        ("resource", resource.resource_doc),
        ("descriptor", stream.descriptor_doc),
    ]
    for index in range(2):
        datum = resource.compose_datum(datum_kwargs={"index": index})
        event = stream.compose_event(
            data={"files": datum["datum_id"]}, timestamps={"files": 0.0}, filled={"files": False}
        )
        documents += [("datum", datum), ("event", event)]
    return [*documents, ("stop", run.compose_stop())]


def test_old_documents_are_filled(files):
    with event_model.Filler({LEGACY_SPEC: PcapHandler}, inplace=False) as filler:
        filled = [filler(name, doc) for name, doc in old_run(files)]
    values = [doc["data"]["files"] for name, doc in filled if name == "event"]
    assert [value.tolist() for value in values] == records()
    assert all(value.dtype == SUMMARY_DTYPE for value in values)


def test_one_file(files):
    handler = PcapHandler(files / "scan_000001.pcap")
    assert handler().tolist() == records()[1]
    assert handler.get_file_list([{}]) == [files / "scan_000001.pcap"]


def test_files_are_named(files):
    handler = PcapHandler(str(files), template="scan_{:06d}.pcap", frame_per_point=1)
    assert handler.get_file_list([{"index": 1}, {"index": 0}]) == [
        files / "scan_000001.pcap",
        files / "scan_000000.pcap",
    ]
    np.testing.assert_array_equal(
        [handler(index=i)[()] for i in range(2)], np.array(records(), SUMMARY_DTYPE)
    )
    with pytest.raises(FileNotFoundError):
        handler(index=2)


def test_databroker_finds_the_handler():
    assert discover_handlers(skip_failures=True)[LEGACY_SPEC] is PcapHandler
    assert LEGACY_SPEC in PcapHandler.specs
