"""Runs with frames, stored and read where this package is not installed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from bluesky import RunEngine
from bluesky import plans as bp
from run_documents import Documents

from daqiri_ophyd.catalog import Catalog, capture_files
from daqiri_ophyd.devices import FrameDetector

from .conftest import SHAPE, Source, images

KEY = "daq_port0_frames_images"

SCRIPT = """
import json, sys
from pathlib import Path

sys.modules["daqiri_ophyd"] = None  # it cannot be imported

import numpy as np
from bluesky_tiled_plugins import TiledWriter
from tiled.client import from_uri
from tiled.server.simple import SimpleTiledServer

server_folder, files, *folders = map(Path, sys.argv[1:])
with SimpleTiledServer(server_folder, readable_storage=[files]) as server:
    client = from_uri(server.uri)
    for folder in folders:
        writer = TiledWriter(client)
        documents = json.loads((folder / "documents.json").read_text())
        for name, doc in documents:
            writer(name, doc)
        run = client[documents[0][1]["uid"]]
        stream = run["primary"]
        for key in ("", "_batch", "_timestamp", "_missing"):
            np.save(folder / f"read{key}.npy", stream.base["KEY" + key].read())
        assert stream.read()["KEY"].shape == stream.base["KEY"].shape
""".replace("KEY", KEY)


def test_a_stock_server_stores_and_reads_images(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    tmp_path: Path,
    captures: Path,
) -> None:
    source.start()
    folders = {num_frames: tmp_path / f"{num_frames}" for num_frames in (1, 2)}
    for num_frames, folder in folders.items():
        documents.clear()
        detector.num_frames.put(num_frames)
        run_engine(bp.count([detector], 3))
        folder.mkdir()
        (folder / "documents.json").write_text(json.dumps(documents))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path / "server", captures, *folders.values()],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    for num_frames, folder in folders.items():
        read = {key: np.load(folder / f"read{key}.npy") for key in ("", "_batch", "_timestamp")}
        of_row = (num_frames,) if num_frames > 1 else ()
        assert read[""].shape == (3, *of_row, *SHAPE)
        assert (read[""].dtype, read["_batch"].dtype) == (np.uint16, np.uint64)
        np.testing.assert_array_equal(read[""], images(read["_batch"]))


def test_databroker_and_capture_files_find_frames(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog
) -> None:
    source.start()
    (uid,) = run_engine(bp.count([detector], 2))
    run = catalog.databroker().v2[uid]
    data = run["primary"].read()
    np.testing.assert_array_equal(data[KEY], images(data[f"{KEY}_batch"]))
    (file,) = capture_files(catalog.client[uid])
    assert file.name == "images_000000.h5"
    exported = list(catalog.client[uid].documents())
    assert [name for name, _ in exported].count("stream_resource") == 4
