import threading

import pytest

from daqiri_ophyd.documents import CaptureStream

DROPPED = {"source": "daqiri://port0", "dtype": "integer", "shape": []}


@pytest.fixture
def stream() -> CaptureStream:
    stream = CaptureStream({"files": "daqiri://port0"}, {"dropped": DROPPED})
    stream.begin("/data/run", "capture")
    return stream


def datums(stream: CaptureStream) -> list[tuple[int, int]]:
    return [
        (doc["indices"]["start"], doc["indices"]["stop"])
        for name, doc in stream.collect_asset_docs()
        if name == "stream_datum"
    ]


def test_step_scan_describes_files_only(stream):
    assert list(stream.describe()) == ["files"]
    assert stream.describe()["files"]["external"] == "STREAM:"


def test_fly_scan_describes_counters_too(stream):
    assert stream.describe_collect() == {**stream.describe(), "dropped": DROPPED}


def test_counters_are_those_of_the_files(stream):
    for dropped in (0, 3):
        assert stream.append({"dropped": dropped}, time=dropped + 0.5) == (1 if dropped else 0)
    assert datums(stream) == [(0, 2)]
    stream.append({"dropped": 9}, time=9.5)  # finished between the two calls
    assert list(stream.collect_pages()) == [
        {
            "time": [0.5, 3.5],
            "data": {"dropped": [0, 3]},
            "timestamps": {"dropped": [0.5, 3.5]},
        }
    ]
    assert datums(stream) == [(2, 3)]
    (page,) = stream.collect_pages()
    assert page["data"] == {"dropped": [9]}
    assert datums(stream) == [] and list(stream.collect_pages()) == []
    assert stream.finished == 3


def test_step_scan_never_asks_for_pages(stream):
    for index in range(3):
        stream.append({"dropped": index})
        assert datums(stream) == [(index, index + 1)]
    stream.append({"dropped": 3})
    assert datums(stream) == [(3, 4)]
    (page,) = stream.collect_pages()
    assert page["data"] == {"dropped": [3]}


def test_discarded_files_have_no_row(stream):
    stream.append({"dropped": 0})
    assert datums(stream) == [(0, 1)]
    stream.append({"dropped": 1})
    stream.discard()
    stream.append({"dropped": 2})
    assert datums(stream) == [(2, 3)]
    assert list(stream.collect_pages())[0]["data"] == {"dropped": [2]}


def test_a_fly_scan_names_its_directory_before_a_file_is_complete(stream):
    stream.append({"dropped": 0})
    datums(stream)
    stream.announce()
    ((name, resource),) = stream.collect_asset_docs()
    assert (name, resource["parameters"]["first_number"]) == ("stream_resource", 1)
    assert list(stream.collect_asset_docs()) == []
    stream.append({"dropped": 1})
    ((name, datum),) = stream.collect_asset_docs()
    assert (name, datum["stream_resource"]) == ("stream_datum", resource["uid"])
    stream.append({"dropped": 2})
    assert [name for name, _ in stream.collect_asset_docs()] == ["stream_resource", "stream_datum"]


def test_a_new_run_begins_at_nought(stream):
    stream.append({"dropped": 0})
    datums(stream)
    (sequence,) = stream.begin("/data/next", "other")
    assert stream.finished == 0
    assert str(sequence.path(0)) == "/data/next/other_000000.pcap"
    assert stream.append({"dropped": 0}) == 0
    assert [name for name, _ in stream.collect_asset_docs()] == ["stream_resource", "stream_datum"]


def test_stream_without_counters_is_refused():
    with pytest.raises(ValueError, match="'files' needs at least one counter"):
        CaptureStream({"files": "daqiri://port0"}, {})


def test_counters_have_to_be_those_declared(stream):
    with pytest.raises(ValueError, match=r"Counters \['lost'\] .* declared are \['dropped'\]"):
        stream.append({"lost": 1})
    assert stream.finished == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.append({"dropped": 0}),
        lambda s: s.discard(),
        lambda s: list(s.collect_asset_docs()),
    ],
)
def test_before_the_first_run(use):
    with pytest.raises(RuntimeError, match="'files' has no run; stage its device"):
        use(CaptureStream({"files": "daqiri://port0"}, {"dropped": DROPPED}))


def test_rows_from_another_thread(stream):
    total = 2000
    writer = threading.Thread(
        target=lambda: [stream.append({"dropped": i}) for i in range(total)], name="recorder"
    )
    writer.start()
    seen: list[int] = []
    stop = 0
    while len(seen) < total:
        for start, end in datums(stream):
            assert start == stop
            stop = end
        for page in stream.collect_pages():
            seen += page["data"]["dropped"]
        assert len(seen) == stop
    writer.join()
    assert seen == list(range(total))
