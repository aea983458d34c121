"""Runs of a RunEngine, stored and read back."""

import gc
import io
import itertools
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from bluesky.utils import RunEngineInterrupted

from daqiri_ophyd.catalog import CaptureNotFoundError, Catalog, capture_files
from daqiri_ophyd.cli._workspace import latest_scan_id
from daqiri_ophyd.documents import PCAP_MIMETYPE, SUMMARY_DTYPE, sidecar_path


def expected(device) -> np.ndarray:
    """Summary records of the files that the device wrote."""
    rows = []
    for number in range(len(device.written)):
        sizes = [60 + i for i in range(number + 2)]
        first = (1_700_000_000 + number) * 10**9
        dropped = number if device.sidecars else 0
        rows.append((len(sizes), sum(sizes), first, first + len(sizes) - 1, dropped))
    return np.array(rows, SUMMARY_DTYPE)


def names(device) -> list[str]:
    """Names of the files that the device wrote."""
    return [path.name for path in device.written]


def downloaded(node) -> dict[str, bytes]:
    """Raw files of a node, by name."""
    files: dict[str, io.BytesIO] = {}
    node.raw_export(files)
    return {name.rpartition("/")[2]: file.getvalue() for name, file in files.items()}


def written(device) -> dict[str, bytes]:
    """The files that a device wrote: captures, and their metadata if there are any."""
    paths = [*device.written, *(map(sidecar_path, device.written) if device.sidecars else ())]
    return {path.name: path.read_bytes() for path in paths}


@pytest.mark.parametrize("kind", ["step", "fly"])
@pytest.mark.parametrize("sidecars", [True, False])
def test_run_is_read_back(catalog, device, run_engine, fly_plan, kind, sidecars):
    device.sidecars = sidecars
    run_engine.subscribe(catalog.writer())
    (uid,) = run_engine(bp.count([device], 3) if kind == "step" else fly_plan(device))
    stream_name = "primary" if kind == "step" else "files"

    run = catalog.client[uid]
    stream = run[stream_name]
    node = stream.base["soft_files"]
    assert node.include_data_sources().data_sources()[0].mimetype == PCAP_MIMETYPE
    assert node.read().tolist() == names(device)
    assert node[1] == names(device)[1]
    assert node[1:].tolist() == names(device)[1:]
    records = stream.base["soft_files", "summaries"]
    np.testing.assert_array_equal(records.read(), expected(device))
    assert records[1] == expected(device)[1]
    data = stream.read()
    assert data["soft_files"].values.tolist() == names(device)
    assert list(data["soft_packets"]) == [2, 3, 4]
    assert list(data["soft_dropped"]) == [0, 1, 2]
    assert downloaded(node) == written(device)
    assert capture_files(run) == device.written
    assert run.validate(raise_on_error=True) is True
    assert "notes" not in run.metadata


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("kind", ["step", "fly"])
def test_exported_documents_store_the_same_run(
    catalog, captures, tmp_path, empty_catalog, device, run_engine, fly_plan, kind, files
):
    device.files_in_flight = files
    run_engine.subscribe(catalog.writer())
    (uid,) = run_engine(bp.count([device], files) if kind == "step" else fly_plan(device))
    documents = list(catalog.client[uid].documents())
    assert [name for name, _ in documents][0] == "start"
    assert [name for name, _ in documents][-1] == "stop"

    shutil.copytree(empty_catalog, tmp_path / "second")
    with Catalog.open(tmp_path / "second", readable=[captures]) as second:
        writer = second.writer()
        for name, doc in documents:
            writer(name, dict(doc))
        assert writer.backups == []
        copy, run = second.client[uid], catalog.client[uid]
        (stream,) = run
        np.testing.assert_array_equal(
            copy[stream].base["soft_files"].read(), run[stream].base["soft_files"].read()
        )
        assert list(copy[stream].read()["soft_packets"]) == list(run[stream].read()["soft_packets"])
        assert capture_files(copy) == device.written
        assert copy.validate(raise_on_error=True) is True


def test_runs_are_found_by_number_and_by_uid(catalog, device, run_engine):
    run_engine.subscribe(catalog.writer())
    uids = [run_engine(bp.count([device]))[0] for _ in range(3)]
    client = catalog.client
    assert [client[-1].start["uid"], client[2].start["uid"]] == [uids[2], uids[1]]
    assert client[uids[0]].start["uid"] == client[uids[0][:8]].start["uid"] == uids[0]
    assert len(client) == 3


def test_each_run_of_a_device_has_its_own_files(catalog, device, run_engine, fly_plan):
    run_engine.subscribe(catalog.writer())
    (first,) = run_engine(bp.count([device], 2))
    (second,) = run_engine(fly_plan(device))
    assert capture_files(catalog.client[first]) == device.written[:2]
    assert capture_files(catalog.client[second]) == device.written[2:]


def test_run_is_read_through_databroker(catalog, device, run_engine):
    run_engine.subscribe(catalog.writer())
    (uid,) = run_engine(bp.count([device], 3))
    broker = catalog.databroker()
    for header in (broker[-1], broker[1], broker[uid]):
        assert header.start["uid"] == uid
    assert header.stop["exit_status"] == "success"
    assert list(header.table()["soft_packets"]) == [2, 3, 4]
    assert np.stack(list(header.data("soft_files"))).tolist() == names(device)
    assert {"start", "descriptor", "stop"} <= {name for name, _ in header.documents()}
    assert capture_files(broker.v2[uid]) == device.written


def test_runs_stay_in_the_directory(tmp_path, captures, device, run_engine):
    with Catalog.open(tmp_path / "catalog", readable=[captures]) as catalog:
        run_engine.subscribe(catalog.writer())
        (uid,) = run_engine(bp.count([device], 2))
    with Catalog.open(tmp_path / "catalog", readable=[captures]) as catalog:
        run = catalog.client[uid]
        assert run["primary"].base["soft_files"].read().tolist() == names(device)
        assert capture_files(run) == device.written


def test_rows_arrive_while_the_run_goes_on(catalog, device, run_engine):
    seen = []

    def look() -> None:
        if len(device.written) == 3:
            seen.append(catalog.client[-1]["primary"].base["soft_files"].read().tolist())

    device.before_read = look
    run_engine.subscribe(catalog.writer(batch_size=1))
    run_engine(bp.count([device], 3))
    assert seen == [names(device)[:2]]


def test_directory_with_a_space_and_other_letters(tmp_path, run_engine, device):
    device.folder = tmp_path / "Strahlzeit März %20"
    with Catalog.open(tmp_path / "catalog", readable=[device.folder]) as catalog:
        run_engine.subscribe(catalog.writer())
        (uid,) = run_engine(bp.count([device], 2))
        run = catalog.client[uid]
        records = run["primary"].base["soft_files", "summaries"].read()
        np.testing.assert_array_equal(records, expected(device))
        assert capture_files(run) == device.written
        assert downloaded(run["primary"].base["soft_files"]) == written(device)


@pytest.mark.parametrize("after", ["trigger", "read"])
@pytest.mark.parametrize("reading", [1, 2, 3])
def test_retaken_reading_keeps_rows_and_files_together(
    catalog, captures, tmp_path, empty_catalog, device, run_engine, reading, after
):
    """A pause before a reading is saved makes the RunEngine take it again."""

    def shot(detectors):
        def pause(here: str):
            if here == after and len(device.written) == reading:
                yield from bps.pause()

        yield from bps.checkpoint()
        yield from bps.trigger(device, wait=True)
        yield from bps.create()
        yield from pause("trigger")
        yield from bps.read(device)
        yield from pause("read")
        yield from bps.save()

    run_engine.subscribe(catalog.writer())
    with pytest.raises(RunEngineInterrupted):
        run_engine(bp.count([device], 3, per_shot=shot))
    (uid,) = run_engine.resume()

    kept = [path for i, path in enumerate(device.written, 1) if i != reading]
    assert len(device.written) == 4 and len(kept) == 3
    run = catalog.client[uid]
    assert run["primary"].base["soft_files"].read().tolist() == [path.name for path in kept]
    rows = run["primary"].base["soft_files", "summaries"].read()
    np.testing.assert_array_equal(rows, np.delete(expected(device), reading - 1))
    assert list(run["primary"].read()["soft_packets"]) == rows["packets"].tolist()
    assert capture_files(run) == kept
    assert run.validate(raise_on_error=True) is True

    shutil.copytree(empty_catalog, tmp_path / "second")
    with Catalog.open(tmp_path / "second", readable=[captures]) as second:
        writer = second.writer()
        for name, doc in run.documents():
            writer(name, dict(doc))
        assert capture_files(second.client[uid]) == kept
        assert second.client[uid].validate(raise_on_error=True) is True
        again = list(second.client[uid].documents())
        assert [name for name, _ in again] == [name for name, _ in run.documents()]


def test_captures_out_of_the_catalogs_reach_are_reported(
    tmp_path, captures, empty_catalog, device, run_engine, caplog
):
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    with Catalog.open(tmp_path / "catalog", readable=[tmp_path / "elsewhere"]) as catalog:
        run_engine.subscribe(catalog.writer())
        (uid,) = run_engine(bp.count([device]))
        assert catalog.client[uid].stop["exit_status"] == "success"
    assert f"stores run {uid} but cannot read its captures" in caplog.text
    assert f"readable=['{captures}/soft-1']" in caplog.text


@pytest.mark.parametrize("named", ["link", "target"])
def test_captures_below_a_symbolic_link(
    tmp_path, captures, empty_catalog, device, run_engine, caplog, named
):
    (tmp_path / "link").symlink_to(captures)
    readable = {"link": tmp_path / "link", "target": captures}[named]
    device.folder = {"link": tmp_path / "link", "target": captures}[named]
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    with Catalog.open(tmp_path / "catalog", readable=[readable]) as catalog:
        run_engine.subscribe(catalog.writer())
        (uid,) = run_engine(bp.count([device]))
        rows = catalog.client[uid]["primary"].base["soft_files", "summaries"].read()
        np.testing.assert_array_equal(rows, expected(device))
    assert "cannot read" not in caplog.text


def test_paused_and_aborted_runs_are_stored_and_readable(catalog, device, run_engine):
    def plan():
        yield from bps.open_run()
        for _ in range(2):
            yield from bps.checkpoint()
            yield from bps.trigger_and_read([device])
        yield from bps.pause()

    run_engine.subscribe(catalog.writer())
    with pytest.raises(RunEngineInterrupted):
        run_engine(bpp.stage_wrapper(plan(), [device]))
    run_engine.abort("beam lost")
    run = catalog.client[-1]
    assert run.stop["exit_status"] == "abort" and run.stop["reason"] == "beam lost"
    assert run["primary"].base["soft_files"].read().tolist() == names(device)
    assert capture_files(run) == device.written


def test_capture_that_is_not_there(catalog, device, run_engine):
    run_engine.subscribe(catalog.writer())
    (uid,) = run_engine(bp.count([device], 2))
    (without,) = run_engine(bp.count([device.packets]))
    with pytest.raises(CaptureNotFoundError, match=rf"Run {without}: no such capture.*'primary'"):
        capture_files(catalog.client[without])
    with pytest.raises(CaptureNotFoundError, match=r"stream 'x', key 'y'.*'soft_files' in stream"):
        capture_files(catalog.client[uid], stream="x", key="y")
    device.written[1].unlink()
    with pytest.raises(FileNotFoundError, match=rf"1 of 2 .* the first is {device.written[1]}"):
        capture_files(catalog.client[uid])


def test_several_captures_are_told_apart(catalog, captures, device, run_engine):
    other = type(device)("other", captures)
    run_engine.subscribe(catalog.writer())
    (uid,) = run_engine(bp.count([device, other], 2))
    run = catalog.client[uid]
    with pytest.raises(CaptureNotFoundError, match="several captures; name one"):
        capture_files(run)
    assert capture_files(run, key="other_files") == other.written
    assert capture_files(run, key="soft_files", stream="primary") == device.written
    rows = run["primary"].read()
    assert rows["other_files"].values.tolist() == [path.name for path in other.written]


def test_opening_again_and_again_leaks_no_thread_or_descriptor(empty_catalog):
    def count() -> tuple[int, int]:
        gc.collect()
        # Pools that zarr and asyncio keep for the process do not belong to the catalog.
        threads = [t for t in threading.enumerate() if t.name.startswith(("catalog-", "Thread-"))]
        return len(threads), len(os.listdir("/proc/self/fd"))

    with Catalog.open(empty_catalog) as catalog:
        list(catalog.client)
    before = count()
    for _ in range(5):
        with Catalog.open(empty_catalog) as catalog:
            list(catalog.client)
    assert count() == before
    handlers = logging.getLogger("uvicorn").handlers + logging.getLogger("tiled.server").handlers
    assert not handlers


def test_answers_do_not_wait_for_the_client_to_acknowledge_them(catalog):
    """Without this option, the end of each would come 40 ms later."""
    len(catalog.client)
    port = catalog.client.context.api_uri.port
    options = []
    for each in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{each}").startswith("socket:"):
                continue
            copy = os.dup(int(each))
        except OSError:  # closed meanwhile
            continue
        with socket.socket(fileno=copy) as end:
            listens = end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if end.family == socket.AF_INET and end.getsockname()[1] == port and not listens:
                options.append(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    assert set(options) == {1}


def test_interpreter_ends_with_a_catalog_left_open(empty_catalog):
    script = (
        "import sys; from daqiri_ophyd.catalog import Catalog;"
        "catalog = Catalog.open(sys.argv[1]); print(len(catalog.client))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(empty_catalog)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_rows_of_a_flight_are_numbered_without_gaps(device, run_engine, fly_plan):
    device.files_in_flight = 8
    documents = []
    run_engine.subscribe(lambda name, doc: documents.append((name, doc)))
    run_engine(fly_plan(device))
    numbers = [doc["seq_nums"] for name, doc in documents if name == "stream_datum"]
    assert numbers[0]["start"] == 1 and numbers[-1]["stop"] == 9
    assert all(a["stop"] == b["start"] for a, b in itertools.pairwise(numbers))
    pages = [doc["seq_num"] for name, doc in documents if name == "event_page"]
    assert [list(range(n["start"], n["stop"])) for n in numbers] == pages


def test_the_page_of_runs_has_what_the_command_lists(catalog, device, run_engine, capsys):
    run_engine.subscribe(catalog.writer())
    for sample in ("Si", {"sample_name": "Ge"}, {"mass": 3}):
        run_engine(bp.count([device], md={"sample": sample}))
    catalog.flush()
    client = catalog.client.context.http_client
    page = client.get(catalog.page()).text
    (shown,) = re.findall(r'"select_metadata": "(.*)"', page)
    answer = client.get(
        catalog.client.item["links"]["search"],
        params={"sort": "start.time", "fields": "metadata", "select_metadata": shown},
    )
    found = [run["attributes"]["metadata"]["selected"] for run in answer.json()["data"]]
    assert [run["sample"] for run in found] == ["Si", "Ge", {"mass": 3}]
    assert [(run["plan"], run["status"]) for run in found] == [("count", "success")] * 3
    assert all(run["detectors"] == ["soft"] and run["ended"] > run["started"] for run in found)


def test_the_latest_scan_id_is_one_request(catalog, device, run_engine):
    assert latest_scan_id(catalog) == 0
    run_engine.subscribe(catalog.writer())
    for number in (40, 6):
        run_engine.md["scan_id"] = number
        run_engine(bp.count([device]))
    catalog.flush()
    requests = []
    hooks = catalog.client.context.http_client.event_hooks
    hooks["request"].append(requests.append)
    catalog.client.context.http_client.event_hooks = hooks
    assert latest_scan_id(catalog) == 41
    assert len(requests) == 1
