import subprocess
import sys

import numpy as np
import pytest
from bluesky_tiled_plugins.writing.consolidators import consolidator_factory
from tiled.media_type_registration import default_serialization_registry
from tiled.mimetypes import DEFAULT_ADAPTERS_BY_MIMETYPE

import daqiri_ophyd.catalog
from daqiri_ophyd.catalog import CaptureConsolidator, CaptureSequenceAdapter, register
from daqiri_ophyd.documents import PCAP_MIMETYPE, CaptureSequence, capture_data_key

DESCRIPTOR = {"data_keys": {"files": capture_data_key("daqiri://port0")}}


def consolidated(resource: dict, *indices: tuple[int, int]) -> CaptureConsolidator:
    register()
    consolidator = consolidator_factory(resource, DESCRIPTOR)
    assert isinstance(consolidator, CaptureConsolidator)
    for start, stop in indices:
        consolidator.consume_stream_datum(
            {
                "indices": {"start": start, "stop": stop},
                "seq_nums": {"start": start + 1, "stop": stop + 1},
            }
        )
    return consolidator


def resource(**parameters) -> dict:
    sequence = CaptureSequence("files", "/data/run", "scan")
    doc = dict(next(iter(sequence.emit(1)))[1])
    doc["parameters"] = {**doc["parameters"], **parameters}
    return doc


def uris(consolidator: CaptureConsolidator) -> list[str]:
    return [asset.data_uri for asset in consolidator.get_data_source().assets]


def file(number: int) -> str:
    return f"file://localhost/data/run/scan_{number:06d}.pcap"


def test_registering_twice_changes_nothing():
    register()
    adapter = DEFAULT_ADAPTERS_BY_MIMETYPE[PCAP_MIMETYPE]
    exporter = default_serialization_registry.dispatch("BlueskyRun", "application/json-seq")
    register()
    assert DEFAULT_ADAPTERS_BY_MIMETYPE[PCAP_MIMETYPE] is adapter is CaptureSequenceAdapter
    again = default_serialization_registry.dispatch("BlueskyRun", "application/json-seq")
    assert again is exporter


def test_files_in_a_row():
    consolidator = consolidated(resource(), (0, 1), (1, 4))
    assert uris(consolidator) == [file(i) for i in range(4)]
    assert consolidator.shape == (4,) and consolidator.chunks == ((1, 1, 1, 1),)
    assert consolidator.get_data_source().parameters == {
        "template": "scan_{:06d}.pcap",
        "parts": [[".", "scan_{:06d}.pcap", 0, 4]],
        "value": "name",
    }
    source = consolidator.get_data_source()
    adapter = CaptureSequenceAdapter.from_uris(*uris(consolidator), **source.parameters)
    assert source.structure == adapter.structure()
    assert source.structure.data_type.to_numpy_dtype() == np.dtype("<U255")


def test_gap_is_noted_for_the_export_and_understood_again():
    consolidator = consolidated(resource(), (1, 2), (3, 5))
    assert uris(consolidator) == [file(1), file(3), file(4)]
    noted = consolidator.get_data_source().parameters
    assert noted["parts"] == [[".", "scan_{:06d}.pcap", 1, 2], [".", "scan_{:06d}.pcap", 3, 5]]
    exported = resource() | {"uri": file(1), "parameters": noted | {"join_method": "stack"}}
    again = consolidated(exported, (0, 3))
    assert uris(again) == uris(consolidator)
    assert again.get_data_source().parameters == noted


def test_files_of_several_resources_and_directories():
    consolidator = consolidated(resource(), (4, 6))
    for documents, indices in (
        (resource(), (6, 7)),
        (resource() | {"uri": "file://localhost/data/next/"}, (0, 2)),
    ):
        consolidator.update_from_stream_resource(documents)
        start, stop = indices
        consolidator.consume_stream_datum(
            {
                "indices": {"start": start, "stop": stop},
                "seq_nums": {"start": 9, "stop": 9 + stop - start},
            }
        )
    following = [f"file://localhost/data/next/scan_{number:06d}.pcap" for number in (0, 1)]
    assert uris(consolidator) == [file(4), file(5), file(6), *following]
    noted = consolidator.get_data_source().parameters
    assert noted["parts"] == [
        [".", "scan_{:06d}.pcap", 4, 7],
        ["../next", "scan_{:06d}.pcap", 0, 2],
    ]
    exported = resource() | {"uri": file(4), "parameters": noted | {"join_method": "stack"}}
    assert uris(consolidated(exported, (0, 5))) == uris(consolidator)


def test_single_file_is_exported_without_a_template():
    exported = resource() | {"uri": file(0), "parameters": {"join_method": "stack"}}
    assert uris(consolidated(exported, (0, 1))) == [file(0)]


def test_unknown_name():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        daqiri_ophyd.catalog.nonsense  # noqa: B018


def test_clients_do_without_the_server(tmp_path):
    """What reads and writes a remote catalog imports no part of the Tiled server."""
    script = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith(('tiled.server', 'tiled.catalog', 'sqlalchemy', 'uvicorn')):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import daqiri_ophyd.catalog as c\n"
        "c.register()\n"
        "try:\n"
        "    c.Catalog.open(sys.argv[1])\n"
        "except c.CatalogError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'tiled[server]' 'databroker[server]'" in done.stdout
