import json

import event_model
import numpy as np
import pytest

from daqiri_ophyd.documents import (
    PCAP_MIMETYPE,
    SUMMARY_DTYPE,
    CaptureSequence,
    FileSummary,
    capture_data_key,
)

VALIDATORS = event_model.schema_validators


def deliver(documents, run: str = "run"):
    """Do to documents what the RunEngine does when it passes them on."""
    documents = list(documents)
    for name, doc in documents:
        if name == "stream_resource":
            doc["run_start"] = run
        VALIDATORS[event_model.DocumentNames[name]].validate(doc)
    return documents


def test_record_of_a_summary(tmp_path):
    record = FileSummary(
        tmp_path, packets=2, bytes=120, t_first_ns=5, t_last_ns=7, dropped=1
    ).record()
    assert record.shape == () and record.dtype == SUMMARY_DTYPE
    assert record.tolist() == (2, 120, 5, 7, 1)
    assert FileSummary(tmp_path, packets=0, bytes=0).record().tolist() == (0, 0, -1, -1, 0)


def test_data_key_is_valid_and_describes_the_record():
    key = capture_data_key("daqiri://port0/rx/0")
    VALIDATORS[event_model.DocumentNames.descriptor].validate(
        {
            "uid": "d",
            "run_start": "r",
            "time": 0,
            "data_keys": {"files": key | {"object_name": "x"}},
        }
    )
    assert key["external"] == "STREAM:" and key["shape"] == []
    # As databroker on MongoDB reads it, which has lists in place of tuples.
    assert np.dtype(json.loads(json.dumps(key["dtype_numpy"]))) == np.dtype("<U255")


def test_a_resource_and_a_datum_for_each_step():
    sequence = CaptureSequence("files", "/data/run", "scan")
    documents = [deliver(sequence.emit(stop)) for stop in (1, 2, 5)]
    for step, indices in zip(documents, [(0, 1), (1, 2), (2, 5)], strict=True):
        assert [name for name, _ in step] == ["stream_resource", "stream_datum"]
        resource, datum = (doc for _, doc in step)
        assert resource["mimetype"] == PCAP_MIMETYPE and resource["data_key"] == "files"
        assert resource["uri"] == "file://localhost/data/run/"
        assert datum["indices"] == {"start": indices[0], "stop": indices[1]}
        assert datum["stream_resource"] == resource["uid"]
        assert datum["descriptor"] == "" and datum["seq_nums"] == {"start": 0, "stop": 0}
    assert len({doc["uid"] for step in documents for _, doc in step}) == 6


def test_uri_and_template_name_the_files():
    sequence = CaptureSequence("files", "/data/run", "scan")
    (_, resource), (_, _) = deliver(sequence.emit(12))
    for index in (0, 11, 1_234_567):
        name = resource["parameters"]["template"].format(index)
        assert resource["uri"] + name == f"file://localhost{sequence.path(index)}"
    assert sequence.path(3).name == "scan_000003.pcap"
    assert (str(sequence.directory), sequence.prefix) == ("/data/run", "scan")


def test_many_files_in_one_step_and_none_in_the_next():
    sequence = CaptureSequence("files", "/data")
    assert list(sequence.emit(0)) == []
    documents = deliver(sequence.emit(5))
    assert documents[1][1]["indices"] == {"start": 0, "stop": 5}
    assert list(sequence.emit(5)) == []
    assert sequence.emitted == 5


def test_skipped_files_have_no_datum():
    sequence = CaptureSequence("files", "/data")
    deliver(sequence.emit(1))
    sequence.skip(3)
    (_, (_, datum)) = sequence.emit(4)
    assert datum["indices"] == {"start": 3, "stop": 4}


@pytest.mark.parametrize("step", ["emit", "skip"])
def test_a_sequence_only_grows(step):
    sequence = CaptureSequence("files", "/data")
    list(sequence.emit(2))
    with pytest.raises(ValueError, match=r"1 files finished in /data, .* emitted for 2"):
        list(getattr(sequence, step)(1) or ())


def test_directory_as_readers_see_it():
    sequence = CaptureSequence("files", "/fast/run", uri="file://localhost/mnt/daq1/run")
    assert next(iter(sequence.emit(1)))[1]["uri"] == "file://localhost/mnt/daq1/run/"
    assert str(sequence.path(0)) == "/fast/run/capture_000000.pcap"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("files", "run"), "'run' is relative; give its full path"),
        (("files", "/data", "a b"), "prefix 'a b' has characters"),
        (("files", "/data", "{}"), "prefix '{}' has characters"),
        (("files", "/data", "a/b"), "prefix 'a/b' has characters"),
        (("files", "/data", ""), "prefix '' has characters"),
        (("files", "/data/what?"), r"'\?' is not allowed in the URI"),
        (("files", "/data/#1"), "'#' is not allowed in the URI"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        CaptureSequence(*arguments)


def test_uri_of_another_scheme_is_refused():
    with pytest.raises(ValueError, match="must begin with file://localhost/"):
        CaptureSequence("files", "/data", uri="s3://bucket/run")
