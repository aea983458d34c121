"""The column of files in the formats that users export a run to."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray
from bluesky import plans as bp
from event_model import DocumentNames, schema_validators

from daqiri_ophyd.catalog import capture_files
from daqiri_ophyd.documents import SUMMARY_DTYPE

OLD_KEY = {"dtype": "array", "dtype_numpy": [list(field) for field in SUMMARY_DTYPE.descr]}


@pytest.fixture
def stream(catalog, device, run_engine):
    run_engine.subscribe(catalog.writer())
    (uid,) = run_engine(bp.count([device], 3))
    return catalog.client[uid]["primary"]


def test_csv(stream, device, tmp_path):
    stream.read().to_dataframe().to_csv(tmp_path / "run.csv")
    table = pd.read_csv(tmp_path / "run.csv")
    assert table["soft_files"].tolist() == [path.name for path in device.written]
    assert table["soft_packets"].tolist() == [2, 3, 4]


@pytest.mark.parametrize("engine", ["h5netcdf"])
def test_netcdf(stream, device, tmp_path, engine):
    pytest.importorskip(engine)
    stream.read().to_netcdf(tmp_path / "run.nc", engine=engine)
    with xarray.open_dataset(tmp_path / "run.nc", engine=engine) as data:
        assert data["soft_files"].values.tolist() == [path.name for path in device.written]
        assert data["soft_packets"].values.tolist() == [2, 3, 4]


def test_json_and_csv_of_the_server(catalog, stream, device):
    client, api = catalog.client.context.http_client, catalog.client.context.api_uri
    path = stream.base["soft_files"].uri.partition("/metadata/")[2]
    names = [path.name for path in device.written]
    found = client.get(f"{api}array/full/{path}?format=application/json")
    assert found.json() == names
    assert client.get(f"{api}array/full/{path}?format=text/csv").text.split() == names


def test_databroker_on_mongodb(device, run_engine):
    """Documents come back from it with lists for tuples, and `numpy.dtype` rejects lists."""
    pytest.importorskip("mongomock")
    from databroker.mongo_normalized import MongoAdapter

    stored = MongoAdapter.from_mongomock()
    run_engine.subscribe(stored.get_serializer())
    (uid,) = run_engine(bp.count([device], 3))
    # `Broker.table` reads the columns that are not in files.
    columns = stored[uid]["primary"]["data"].read(fields=["soft_packets", "time"])
    assert columns["soft_packets"].read().tolist() == [2, 3, 4]


def test_files_that_were_moved_away_still_have_a_name(stream, device):
    names = [path.name for path in device.written]
    for path in device.written:
        path.unlink()
    assert stream.read()["soft_files"].values.tolist() == names


def test_a_run_of_an_earlier_version(catalog, captures, tmp_path, stored_capture, pcap):
    for number in range(3):
        (captures / f"c_{number}.pcap").write_bytes(pcap([bytes(60)] * number))
    where = (f"file://localhost{captures}/", "c_{:d}.pcap")
    uid = stored_capture(catalog, tmp_path, *where, files=3, **OLD_KEY)
    run = catalog.client[uid]
    node = run["primary"].base["files"]
    # As that version has stored it.
    (source,) = node.include_data_sources().data_sources()
    assert source.parameters.keys() == {"template", "parts"}
    records = node.read()
    assert records.dtype == SUMMARY_DTYPE and records["packets"].tolist() == [0, 1, 2]
    assert node[2]["bytes"] == 120
    np.testing.assert_array_equal(run["primary"].base["files", "summaries"].read(), records)
    assert len(run["primary"].base["files", "packets"].read()) == 3
    assert [path.name for path in capture_files(run)] == [f"c_{n}.pcap" for n in range(3)]
    assert run["primary"].read()["files"].values["packets"].tolist() == [0, 1, 2]
    assert run.validate(raise_on_error=True) is True
    assert "notes" not in run.metadata
    exported = [(name, doc) for name, doc in run.documents()]
    for name, doc in exported:
        schema_validators[DocumentNames[name]].validate(doc)
    # Stored again, its descriptor is the same.
    catalog.client.delete_contents(uid, recursive=True, external_only=False)
    writer = catalog.writer()
    for name, doc in exported:
        writer(name, json.loads(json.dumps(doc)))
    again = catalog.client[uid]["primary"].base["files"].read()
    np.testing.assert_array_equal(again, records)
