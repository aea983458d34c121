"""Files that a catalog must not serve, and captures outside their allowed folders."""

import shutil

import h5py
import numpy as np
import pytest
import tiled.client.utils
from bluesky import plans as bp
from tiled.structures.array import ArrayStructure, StructDtype
from tiled.structures.core import StructureFamily
from tiled.structures.data_source import Asset, DataSource, Management

from daqiri_ophyd.catalog import Catalog, UnreadableFileError, capture_files
from daqiri_ophyd.documents import PCAP_MIMETYPE, SUMMARY_DTYPE


@pytest.fixture(autouse=True)
def few_retries(monkeypatch):
    monkeypatch.setattr(tiled.client.utils, "TILED_RETRY_ATTEMPTS", 1)


def test_files_elsewhere_are_neither_served_nor_followed(
    catalog, captures, tmp_path, files_elsewhere, stored_capture, status_codes, pcap
):
    (captures / "own.pcap").write_bytes(pcap([b"own" * 20]))
    uid = stored_capture(catalog, tmp_path, f"file://localhost{captures}/", "own.pcap")
    assert status_codes(catalog, uid) == [200, 200, 200, 200]
    assert capture_files(catalog.client[uid]) == [captures / "own.pcap"]
    for what, (uri, template) in files_elsewhere(captures).items():
        uid = stored_capture(catalog, tmp_path, uri, template)
        codes = status_codes(catalog, uid)
        # Tiled itself rejects downloads that are not file addresses.
        assert set(codes) <= {400, 403} and codes[1:] == [403, 403, 403], (what, codes)
        with pytest.raises(UnreadableFileError, match=f"Run {uid}: "):
            capture_files(catalog.client[uid])


def test_a_directory_of_captures_may_be_a_link(tmp_path, empty_catalog, device, run_engine):
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    (tmp_path / "link").symlink_to(device.folder)
    device.folder = tmp_path / "link"
    with Catalog.open(tmp_path / "catalog", readable=[tmp_path / "link"]) as catalog:
        run_engine.subscribe(catalog.writer())
        (uid,) = run_engine(bp.count([device], 2))
        run = catalog.client[uid]
        assert capture_files(run) == device.written
        summaries = run["primary"].base["soft_files", "summaries"].read()
        np.testing.assert_array_equal(summaries["packets"], [2, 3])


def test_captures_of_a_server_are_read_where_the_user_says(catalog, device, captures, run_engine):
    run_engine.subscribe(catalog.writer())
    (uid,) = run_engine(bp.count([device], 1))
    with Catalog.connect(catalog.uri, catalog.api_key) as connected:
        with pytest.raises(UnreadableFileError, match="Catalog.connect.*readable="):
            capture_files(connected.client[uid])
        assert capture_files(connected.client[uid], readable=[captures]) == device.written
        with pytest.raises(UnreadableFileError, match="is not below a readable directory"):
            capture_files(connected.client[uid], readable=[captures / "other"])
    with Catalog.connect(catalog.uri, catalog.api_key, readable=[captures]) as connected:
        assert capture_files(connected.client[uid]) == device.written


def register_array(container, uri: str, mimetype: str, *, is_directory: bool = False) -> None:
    """Register a file as the array "files", as any client may."""
    structure = ArrayStructure(
        data_type=StructDtype.from_numpy_dtype(SUMMARY_DTYPE), shape=(1,), chunks=((1,),)
    )
    asset = Asset(data_uri=uri, is_directory=is_directory, parameter="data_uris", num=0)
    source = DataSource(
        structure_family=StructureFamily.array,
        structure=structure,
        mimetype=mimetype,
        management=Management.external,
        assets=[asset],
        parameters={},
    )
    container.new(
        key="files", structure_family=StructureFamily.array, data_sources=[source], metadata={}
    )


def test_a_directory_is_not_downloaded(catalog, captures):
    """Tiled would serve relative_path, even outside of the directory."""
    (captures / "folder").mkdir()
    (captures / "secret").write_text("secret")
    uri = f"file://localhost{captures}/folder"
    register_array(catalog.client, uri, "application/x-zarr", is_directory=True)
    api, client = catalog.client.context.api_uri, catalog.client.context.http_client
    found = client.get(f"{api}metadata/runs/files?include_data_sources=true").json()
    number = found["data"]["attributes"]["data_sources"][0]["assets"][0]["id"]
    answer = client.get(f"{api}asset/bytes/runs/files?id={number}&relative_path=../secret")
    assert answer.status_code == 403, answer.text


@pytest.mark.parametrize(("folder", "code"), [("captures", 200), ("captures/../outside", 403)])
def test_the_export_of_a_container_is_confined_too(catalog, tmp_path, pcap, folder, code):
    (tmp_path / "outside").mkdir()
    (tmp_path / folder / "a.pcap").write_bytes(pcap([b"packet" * 10]))
    container = catalog.client.create_container("plain", metadata={})
    register_array(container, f"file://localhost{tmp_path}/{folder}/a.pcap", PCAP_MIMETYPE)
    api, client = catalog.client.context.api_uri, catalog.client.context.http_client
    answer = client.get(f"{api}container/full/runs/plain?format=application/x-hdf5")
    assert answer.status_code == code, answer.text


def register_hdf5(container, path, key: str, parameter: str | None = "data_uris") -> None:
    """Register the dataset "data" of an HDF5 file, as any client may."""
    structure = ArrayStructure.from_array(np.arange(4))
    asset = Asset(f"file://localhost{path}", is_directory=False, parameter=parameter, num=0)
    source = DataSource(
        structure_family=StructureFamily.array,
        structure=structure,
        mimetype="application/x-hdf5",
        management=Management.external,
        assets=[asset],
        parameters={"dataset": "data"},
    )
    container.new(
        key=key, structure_family=StructureFamily.array, data_sources=[source], metadata={}
    )


def virtual_of(path) -> h5py.VirtualLayout:
    layout = h5py.VirtualLayout((4,), "i8")
    layout[:] = h5py.VirtualSource(str(path), "data", (4,))
    return layout


def test_hdf5_files_that_name_others(catalog, captures, tmp_path):
    for folder in (captures, tmp_path):
        with h5py.File(folder / "plain.h5", "w") as file:
            file["data"] = np.arange(4)
        with h5py.File(folder / "raw.h5", "w") as file:
            file.create_dataset("data", (4,), "i8", external=[(str(folder / "raw"), 0, 32)])
            file["data"][:] = np.arange(4)
    api, client = catalog.client.context.api_uri, catalog.client.context.http_client
    for folder, code in ((captures, 200), (tmp_path, 403)):
        with h5py.File(captures / f"link_{code}.h5", "w") as file:
            file["data"] = h5py.ExternalLink(str(folder / "plain.h5"), "data")
        with h5py.File(captures / f"virtual_{code}.h5", "w") as file:
            file.create_virtual_dataset("data", virtual_of(folder / "plain.h5"))
        shutil.copy(folder / "raw.h5", captures / f"storage_{code}.h5")
        for kind in ("link", "virtual", "storage"):
            register_hdf5(catalog.client, captures / f"{kind}_{code}.h5", f"{kind}_{code}")
            answer = client.get(f"{api}array/full/runs/{kind}_{code}?format=application/json")
            assert answer.status_code == code, (kind, answer.text)
            if code == 200:
                assert answer.json() == [0, 1, 2, 3]
            else:
                assert f"{kind}_{code}.h5 cannot be read: its object '/data' " in answer.text
                assert f"{tmp_path}/" in answer.text


def test_a_file_without_a_parameter_is_confined_too(catalog, captures, tmp_path):
    """Tiled 0.2.20 does not check such files, and reads them if they are the first."""
    for folder, code in ((captures, 200), (tmp_path, 403)):
        with h5py.File(folder / "plain.h5", "w") as file:
            file["data"] = np.arange(4)
        register_hdf5(catalog.client, folder / "plain.h5", f"plain_{code}", parameter=None)
        api, client = catalog.client.context.api_uri, catalog.client.context.http_client
        answer = client.get(f"{api}array/full/runs/plain_{code}?format=application/json")
        assert answer.status_code == code, answer.text
