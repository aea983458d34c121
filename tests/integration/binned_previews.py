"""Previews of a plan's frames, and the means that numpy makes of the same frames.

For programs that pytest does not run, too.
"""

from typing import Any

import numpy as np

from daqiri_ophyd.engine import Engine, FramePreview, ethernet

Array = np.ndarray[Any, Any]
Config = dict[str, Any]

SLOTS, PAYLOAD = 16, 1000
IMAGES, ROWS = 2, 40
TYPES = [f"{kind}{bits}" for bits in (8, 16, 32, 64) for kind in ("int", "uint")]
TYPES += ["float16", "float32", "float64", "bf16"]


def columns_of(kind: str) -> int:
    """Return the columns of frames of so many bytes."""
    size = 2 if kind == "bf16" else np.dtype(kind).itemsize
    return SLOTS * PAYLOAD // size // IMAGES // ROWS


def binnings_of(kind: str) -> list[int]:
    """Return sizes of blocks: some fill frames, the largest is that of the shorter axis."""
    return [2, 3, 4, 7, min(ROWS, columns_of(kind))]


def plan_of(kind: str) -> Config:
    """Return a plan's keys for frames of this type."""
    shape = [IMAGES, ROWS, columns_of(kind)]
    if kind == "bf16":
        types = {"input_type": "uint16", "output_type": "bf16"}
        return {"frame": {"shape": shape}, "data_types": types}
    return {"frame": {"shape": shape, "dtype": kind}}


def with_frames_of(kind: str, config: Config) -> Config:
    """Return a configuration whose plan makes frames of this type, of 16 packets of 1000 bytes."""
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    for key in ("frame", "data_types"):
        plan.pop(key, None)
    plan |= plan_of(kind)
    return config


def means(pixels: Array, binning: int) -> Array:
    """Return the mean of each block: of integers exactly, of floats added in order, from 0.0 on."""
    *images, rows, columns = (*pixels.shape[:-2], *(n // binning for n in pixels.shape[-2:]))
    cut = pixels[..., : rows * binning, : columns * binning]
    blocks = cut.reshape(*images, rows, binning, columns, binning)
    blocks = np.moveaxis(blocks, -3, -2).reshape(*images, rows, columns, binning * binning)
    with np.errstate(over="ignore", invalid="ignore"):
        if pixels.dtype.kind == "f":
            total = np.add.accumulate(blocks.astype(np.float64), axis=-1)[..., -1] + 0.0
        else:
            total = blocks.astype(object).sum(axis=-1)
        return np.asarray(total / (binning * binning), np.float64).astype(np.float32)


def same_bits(made: Array, wanted: Array) -> bool:
    """Whether all bits are the same; what is not a number has those of numpy's NaN."""
    wanted = np.where(np.isnan(wanted), np.float32(np.nan), wanted)
    return bool(
        made.dtype == np.float32
        and made.shape == wanted.shape
        and np.array_equal(made.view(np.uint32), wanted.view(np.uint32))
    )


def send(engine: Engine, number: int) -> None:
    """Send the packets of a frame: of any bits, or of the ends of the types, or small numbers."""
    rng = np.random.default_rng(number)
    sent = rng.integers(0, 256, (SLOTS, PAYLOAD + 8), np.uint8)
    if number % 3 == 1:
        sent = rng.choice(np.array([0x00, 0x7F, 0x80, 0xFF], np.uint8), sent.shape)
    if number % 3 == 2:
        sent[:, 1::2] = rng.choice(np.array([0x3C, 0xBF], np.uint8), sent[:, 1::2].shape)
    for at in range(4):
        sent[:, at] = number >> 8 * (3 - at) & 255
        sent[:, 4 + at] = np.arange(SLOTS) >> 8 * (3 - at)
    packets = ethernet.udp_frames(
        sent,
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=4000,
        dst_port=5000,
    )
    assert engine.port("port").tx[0].send(packets, timeout=20) == len(packets)


def wrong_previews(kind: str, config: Config) -> list[str]:
    """Return what is wrong with previews of some frames of this type."""
    wrong = []
    with Engine.open(with_frames_of(kind, config)) as engine:
        plan = engine.port("port").reorder["images"]
        binnings = binnings_of(kind)

        def look(binning: int) -> FramePreview | None:
            return plan.preview(latest, binning=binning)

        latest = 0
        with plan.frames(timeout=20) as taken:
            for number in range(6):
                for binning in (1, *binnings):
                    look(binning)
                send(engine, number)
                frame = next(taken)
                pixels = frame.data.get() if hasattr(frame.data, "get") else frame.data
                found = {binning: look(binning) for binning in (1, *binnings)}
                for binning, preview in found.items():
                    if preview is None or preview.batch != number:
                        wrong.append(f"{kind}, {binning}: {preview}")
                    elif binning == 1:
                        assert np.array_equal(preview.data.view(np.uint8), pixels.view(np.uint8))
                    else:
                        values = pixels
                        if kind == "bf16":
                            values = (pixels.astype(np.uint32) << 16).view(np.float32)
                        if not same_bits(preview.data, means(values, binning)):
                            wrong.append(f"{kind}, {binning}: other means of frame {number}")
                latest = max(each.number for each in found.values() if each is not None)
                del frame
    return wrong
