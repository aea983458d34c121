"""Kernels that process frames, as settings of devices in scans."""

import json
from pathlib import Path

import h5py
import numpy as np

from .conftest import Run
from .test_frame_kernels import ADD, filled
from .test_gpu_reorder import with_plan

SCAN = """
import json
import threading
import time
from pathlib import Path
import numpy as np
from bluesky import RunEngine, plan_stubs as bps, plans as bp
from daqiri_ophyd.devices import make_daq
from daqiri_ophyd.engine import ethernet
folder = Path(FOLDER)
(folder / "add.cu").write_text(ADD)
(folder / "wrong.cu").write_text("nonsense")
for name in ("one", "two"):
    np.save(folder / f"{name}.npy", np.full(7, {"one": 1, "two": 2}[name], np.uint8))
daq = make_daq(CONFIG, "daq", directory=folder)
plan, detector = daq.camera.reorder.images, daq.camera.frames.images
said = []
def refused(signal, value):
    try:
        signal.set(value).wait(1)
    except Exception as error:
        said.append(f"{type(error).__name__}: {error}".replace(FOLDER, "~"))
refused(plan.kernel, f"{folder}/none.cu")
refused(plan.kernel_arrays, f"{folder}/one.npy, {folder}/add.cu")
documents = []
RE = RunEngine({}, context_managers=[])
RE.subscribe(lambda name, doc: documents.append((name, doc)))
def send():
    data = np.zeros((16, 1008), np.uint8)
    for at in range(8):
        data[:, at] = np.arange(16) >> 8 * (3 - at % 4) if at >= 4 else 0
    batch = 0
    while not ended.is_set():
        data[:, 3], data[:, 2] = batch % 256, batch // 256
        daq.engine.port("camera").tx[0].send(ethernet.udp_frames(
            data, src_mac="02:00:00:00:00:01", dst_mac="02:00:00:00:00:02",
            src_ip="192.0.2.1", dst_ip="192.0.2.2", src_port=4000, dst_port=5000,
        ))
        batch += 1
        time.sleep(0.01)
def use(kernel, arrays):
    yield from bps.mv(plan.kernel_arrays, arrays, plan.kernel, kernel)
    yield from bp.count([detector, plan])
def refuse_while_staged():
    yield from bps.stage(detector, wait=True)
    refused(plan.kernel, "")
    yield from bps.unstage(detector, wait=True)
RE(bps.mv(plan.kernel_arrays, f"{folder}/one.npy", plan.kernel, f"{folder}/add.cu"))
daq.open()
ended = threading.Event()
sender = threading.Thread(target=send)
sender.start()
RE(bp.count([detector, plan]))
RE(use(f"{folder}/add.cu", f"{folder}/two.npy"))
refused(plan.kernel, f"{folder}/wrong.cu")
RE(refuse_while_staged())
RE(use("", f"{folder}/two.npy"))
ended.set()
sender.join()
refused(plan.kernel_arrays, "")
plan.kernel.put("")
daq.close()
plan.kernel.put(f"{folder}/add.cu")
(folder / "add.cu").unlink()
(folder / "empty.npy").touch()
np.savez(folder / "several.npz", np.zeros(7), np.zeros(7))
refused(plan.kernel_arrays, f"{folder}/empty.npy")
refused(plan.kernel_arrays, f"{folder}/several.npz")
(folder / "nothing.cu").touch()
refused(plan.kernel, f"{folder}/nothing.cu")
refused(plan.kernel, "~nobody-of-that-name/add.cu")
plan.kernel.put("")
(folder / "add.cu").write_text(ADD)
plan.kernel_arrays.put(f"{folder}/one.npy")
plan.kernel.put(f"{folder}/add.cu")
# What was set holds, whatever becomes of the files.
(folder / "add.cu").unlink()
(folder / "one.npy").unlink()
with daq:
    ended = threading.Event()
    sender = threading.Thread(target=send)
    sender.start()
    RE(bp.count([detector, plan]))
    ended.set()
    sender.join()
used = [
    doc["configuration"]["daq_camera_frames_images"]["data"][f"daq_camera_frames_images_{key}"]
    for name, doc in documents if name == "descriptor" for key in ("kernel", "kernel_arrays")
]
again = [
    doc["configuration"]["daq_camera_reorder_images"]["data"][f"daq_camera_reorder_images_{key}"]
    for name, doc in documents if name == "descriptor" for key in ("kernel", "kernel_arrays")
]
assert used == again
files = [doc["uri"].removeprefix("file://localhost") for name, doc in documents
         if name == "stream_resource" and doc["data_key"] == "daq_camera_frames_images"]
print(json.dumps({"used": used, "said": said, "files": files}))
"""


def test_scans_set_the_kernel_and_record_it(with_driver: Run, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    config = with_plan(frames="host_pinned")
    config["interfaces"][0]["name"] = "camera"
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    plan["frame"] = {"shape": [16, 1000]}
    said, _ = with_driver(filled(SCAN, CONFIG=config, FOLDER=f"{folder}", ADD=ADD), ON_HOST=1)
    found = json.loads(said)
    assert found["used"] == [
        f"{folder}/add.cu",
        f"{folder}/one.npy",
        f"{folder}/add.cu",
        f"{folder}/two.npy",
        "",
        f"{folder}/two.npy",
        f"{folder}/add.cu",
        f"{folder}/one.npy",
    ]
    values = []
    for file in found["files"]:
        with h5py.File(file) as opened:
            values.append(np.unique(opened["entry/data/data"][:]).tolist())
    assert values == [[1], [2], [0], [1]]
    said = found["said"]
    kernel, arrays = "daq_camera_reorder_images_kernel", "daq_camera_reorder_images_kernel_arrays"
    assert said[0].startswith(f"ValueError: {kernel} is '~/none.cu': [Errno 2] No such file")
    assert said[1].startswith(
        f"ValueError: {arrays} is '~/one.npy, ~/add.cu': '~/add.cu' is not a file of numpy.save ("
    )
    assert said[2].startswith("InvalidParameterError: reorder config 'images': kernel 'frame': NV")
    assert said[3] == (
        f"CaptureError: {kernel} cannot be changed while daq_camera_frames_images is staged."
    )
    assert said[4:] == [
        f"ValueError: {arrays} is '~/empty.npy': '~/empty.npy' is not a file of numpy.save (No "
        "data left in file)",
        f"ValueError: {arrays} is '~/several.npz': '~/several.npz' has several arrays; save each "
        "with numpy.save",
        f"ValueError: {kernel} is '~/nothing.cu': the file is empty",
        f"ValueError: {kernel} is '~nobody-of-that-name/add.cu': Could not determine home "
        "directory.",
    ]
