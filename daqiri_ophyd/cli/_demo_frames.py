"""``daqiri-ophyd demo`` with ``frames`` and ``gpu``: images of a detector in a motor scan."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from bluesky import plans as bp
from numpy.typing import NDArray
from ophyd.sim import SynAxis

import daqiri_ophyd.profiles as profiles

from ..catalog import frames_dataset
from ..devices import Gpu, reductions
from ..documents import sidecar_path
from ..engine import Engine, Frame, NetworkConfig, load_config
from ..host import FactError
from ..simulate import INSTRUMENTS, Traffic
from ._data_directory import captures_of
from ._frames_picture import ScannedFrames, draw_frames
from ._output import print_facts, print_json, print_message
from ._workspace import open_workspace

INSTRUMENT = "jungfrau"
PROFILES = {"frames": INSTRUMENT, "gpu": f"{INSTRUMENT}-gpu"}
DESTINATION = "127.0.0.1:50001"
# A slit of the detector follows the motor: pixels from the left.
BEGIN, END, HALF_WIDTH = 60, 960, 15
POINTS, FRAMES = 16, 5
# Frames per second; total frames of the sender if it is not stopped.
RATE, MOST = 25, 2_000
DISTURBANCE = {"loss": 0.002, "duplicates": 0.001, "shuffle": 128}
# Longest time for the other process to start and send, s.
SENDER_TIMEOUT = 60.0


@contextmanager
def _sender() -> Iterator[None]:
    """Send frames from another process."""
    command = [sys.executable, "-m", "daqiri_ophyd", "simulate", INSTRUMENT, DESTINATION]
    command += ["--frames", str(MOST), "--rate", str(RATE), "--json"]
    for name, value in DISTURBANCE.items():
        command += [f"--{name}", str(value)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as sender:
        try:
            yield
        finally:
            sender.kill()


def _try(config: NetworkConfig, writer: Any, output: Path) -> None:
    """Raise early if there is no GPU or no such writer: creating a catalog takes long."""
    captures = captures_of(output)
    captures.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=captures) as folder,
        Engine.open(config) as engine,
        engine.port("receiver").reorder["images"].record(folder, writer=writer),
    ):
        pass


def demo_frames(profile: str, writer: str, output: Path, as_json: bool) -> None:
    """Record frames of a simulated detector at each position of a motor, and check them."""
    say = (lambda _: None) if as_json else print_message
    config = load_config(profiles.path(PROFILES[profile]))
    _try(config, writer, output)
    with open_workspace(config, output) as workspace:
        port = workspace.daq.port_device("receiver")
        detector, plan = port.frames.images, port.reorder.images
        detector.num_frames.put(FRAMES)
        detector.writer.put(writer)
        detector.timeout.put(SENDER_TIMEOUT)
        # A busy host loses packets, at times all of an image.
        detector.on_drop.put("flag")
        motor = SynAxis(name="slit", labels={"motors"})

        if profile != "gpu" or find_spec("cupy") is not None:
            # The GPU computes it, with CuPy, if the frames are in its memory.
            detector.reductions = {"slit": lambda frame: _through_slit(frame, motor.position)}
        say(f"scanning a motor: {FRAMES} images at each of {POINTS} positions")
        with _sender():
            uid = workspace.run(
                bp.scan([detector], motor, BEGIN, END, POINTS, md={"purpose": "demonstration"})
            )
        counters = plan.read()
        say(f"stored as run {uid}; comparing each image with the image sent")
        run = workspace.catalog.client[uid]
        files = [str(path) for path in detector.files]
        data = frames_dataset(run).compute()
        start = run.metadata["start"]
        parts = workspace.daq.walk_subdevices()
        gpus = [_name_of(part) for _, part in parts if isinstance(part, Gpu)]
    images, lacking = data["frames"].to_numpy(), data["missing"].to_numpy()
    arrived = _compare(images, data["batch"].to_numpy(), lacking)
    shown = int(np.argmax(lacking > 0))
    picture = output.resolve() / "frames.png"
    instrument = INSTRUMENTS[INSTRUMENT]
    positions = data["slit"].to_numpy()
    if detector.reductions:
        numbers = data[f"{detector.name}_slit"].to_numpy()
    else:
        slits = map(_columns, positions)
        numbers = np.array(
            [image[:, slice(*x)].mean() for image, x in zip(images, slits, strict=True)]
        )
    scanned = ScannedFrames(
        frame=images[shown],
        valid=arrived[shown],
        typical=np.median(images, axis=0),
        number=numbers,
        position=positions,
        arrived=1 - lacking / instrument.packets_per_frame,
    )
    where = f", assembled by {gpus[0]} in its memory" if gpus else ""
    begun = datetime.fromtimestamp(start["time"])
    draw_frames(
        picture,
        scanned,
        number="mean in the slit",
        position="slit (pixel)",
        unit="counts",
        title=f"Run {start['scan_id']}: {start['plan_name']} of slit, detector images",
        computed=gpus[0] if gpus and detector.reductions else "",
        subtitle=f"simulated {INSTRUMENT}{where}, {begun:%Y-%m-%d %H:%M}",
    )
    names = (
        *("packets", "placed", "duplicate", "late", "early"),
        *("malformed", "left_out", "no_buffer"),
    )
    told = json.loads(sidecar_path(files[0]).read_bytes())
    result = {
        "frames": len(images),
        "complete": int(np.count_nonzero(lacking == 0)),
        "missing_packets": int(lacking.sum()),
        "without_packets": int(np.count_nonzero(lacking == instrument.packets_per_frame)),
        "positions": np.unique(data["slit"].to_numpy()).tolist(),
        "plan": {name: counters[f"{plan.name}_{name}"]["value"] for name in names},
        "run": uid,
        "files": files,
        **{key: told[key] for key in ("writer", "cufile") if key in told},
        "picture": str(picture),
    }
    if as_json:
        print_json(result)
    else:
        _print_summary(result)


def _name_of(gpu: Gpu) -> str:
    """Return the name of a GPU, as the driver's library tells it."""
    try:
        return gpu.gpu_name.get()
    except FactError:
        return "a GPU"


def _columns(position: float) -> tuple[int, int]:
    return round(position) - HALF_WIDTH, round(position) + HALF_WIDTH


def _through_slit(frame: Frame, position: float) -> float:
    """Return the mean of the columns of a frame around a position."""
    rows, _ = frame.data.shape
    region = reductions.roi((0, rows), _columns(position))
    return region.function(frame) / (rows * 2 * HALF_WIDTH)


def _compare(
    images: NDArray[Any], batches: NDArray[Any], lacking: NDArray[Any]
) -> NDArray[np.bool_]:
    """Return a mask of the received pixels; raise unless they are as sent and the others 0."""
    instrument = INSTRUMENTS[INSTRUMENT]
    traffic = Traffic(instrument, MOST)
    arrived = np.empty(images.shape, bool)
    for i, batch in enumerate(batches):
        # The first frame of the instrument has number 1. None of its pixels is 0.
        sent = traffic.frame(int(batch) - 1)
        arrived[i] = images[i] != 0
        pixels = lacking[i] * (sent.size // instrument.packets_per_frame)
        if np.any((images[i] != sent) & arrived[i]) or np.count_nonzero(~arrived[i]) != pixels:
            raise RuntimeError(f"frame {batch} differs from what was sent")
    return arrived


def _print_summary(result: dict[str, Any]) -> None:
    mode = f" ({result['cufile']})" if "cufile" in result else ""
    empty = result["without_packets"]
    missing = f"{result['missing_packets']:,} packets"
    print_facts(
        [
            ("frames", f"{result['frames']:,}, {result['complete']:,} of them complete"),
            ("missing", f"{missing}; of {empty} frames, all" if empty else missing),
            ("packets", ", ".join(f"{n:,} {name}" for name, n in result["plan"].items())),
            ("run", result["run"]),
            (
                "files",
                f"{len(result['files'])} in {Path(result['files'][0]).parent}, "
                f"writer {result['writer']}{mode}",
            ),
            ("picture", result["picture"]),
        ]
    )
