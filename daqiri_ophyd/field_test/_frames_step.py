"""Step: frames of a reorder plan."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..engine import Frame, Port, gap_mask
from ..replay import FrameFormat, ReplayError
from ._bench import Bench
from ._step import StepFailedError, StepSkippedError

__all__ = ["check_frames"]

_MOST_FRAMES = 8
_RATE = 20_000
_TIMEOUT = 5.0
_LONGEST = 30.0
_LEAD_NS = 50_000_000


def check_frames(name: str, bench: Bench) -> tuple[str, dict[str, Any]]:
    """Make packets of frames, send them, and compare the frames that a plan assembles.

    Parameters
    ----------
    name : str
        Name of the plan, ``port0/images``.
    bench : Bench
        Engine and links.
    """
    bench.budget.require()
    sender, receiver = _ports(name, bench)
    plan = bench.engine.reorder_plan(name)
    try:
        made = FrameFormat(bench.config, name, sender.link_type)
    except ReplayError as error:
        raise StepSkippedError(f"no packets can be made of its frames: {error}") from None
    written = plan.config
    # All are sent before one is taken.
    count = min(_MOST_FRAMES, _buffers(bench, written.memory_region))
    images = _images(count, plan.shape, plan.dtype, written)
    batches = np.arange(1, count + 1)
    valid = np.ones((count, made.packets), np.bool_)
    try:
        rows = made.packets_of(images, batches, valid)
    except ReplayError as error:
        raise StepSkippedError(f"no packets can be made of its frames: {error}") from None
    queue = sender.tx[0]
    largest = min(queue.max_packet_size, *(q.max_packet_size for q in receiver.rx))
    if (mtu := sender.link().mtu) and receiver.config.socket_config is None:
        largest = min(largest, mtu + 14)
    if rows.shape[1] > largest:
        raise StepSkippedError(f"its packets have {rows.shape[1]:,} B; {largest:,} B fit")
    bench.budget.require_bytes(rows.nbytes)
    if receiver.config.socket_config is None:
        _address(rows, sender, receiver)
    for each in receiver.rx:
        each.flush()
    gaps = None
    if written.frame is not None and written.frame.modules is not None:
        gaps = gap_mask(written.frame)
    left = bench.budget.seconds_left
    with plan.frames(min(_TIMEOUT, left)) as frames:
        begin = sender.now() + _LEAD_NS
        times = begin + (np.arange(len(rows)) * (1e9 / _RATE)).astype(np.int64)
        accepted = queue.send(rows, launch_times=times, timeout=60.0, within=left)
        bench.budget.spend(accepted * rows.shape[1])
        if accepted < len(rows):
            queue.flush()
            bench.budget.require()
        seen, wrong, missing = _compare(frames, images, gaps, bench.budget.seconds_left)
    if seen < count:
        bench.budget.require()
    counters = plan.counters()
    figures = {
        "frames": seen,
        "packets": len(rows),
        "missing": missing,
        "wrong": wrong,
        "shape": list(plan.shape),
        "dtype": str(plan.dtype),
        "sent_bytes": int(rows.nbytes),
    }
    if seen < count or missing or wrong:
        raise StepFailedError(
            f"{seen} of {count} frames, {missing} packets missing, {wrong} frames with "
            f"other data ({counters})",
            figures,
        )
    return f"{count} frames of {len(rows) // count} packets, each pixel compared", figures


def _compare(
    frames: Iterable[Frame], images: Any, gaps: Any, longest: float = _LONGEST
) -> tuple[int, int, int]:
    """Return how many frames arrived, were other than sent, and how many packets they lack.

    Frames of other senders are not compared, and do not keep it from ending.
    """
    seen, wrong, missing = set[int](), 0, 0
    limit = time.monotonic() + min(_LONGEST, longest)
    for frame in frames:
        number = frame.batch - 1
        if 0 <= number < len(images):
            missing += frame.missing
            data = frame.data if isinstance(frame.data, np.ndarray) else frame.data.get()
            wrong += not _same(data, images[number], gaps)
            seen.add(number)
        if len(seen) == len(images) or time.monotonic() >= limit:
            break
    return len(seen), wrong, missing


def _ports(name: str, bench: Bench) -> tuple[Port, Port]:
    receiver = name.partition("/")[0] if "/" in name else ""
    if not receiver:
        raise StepSkippedError("its packets come from several ports, which one sender cannot reach")
    bench.require_heard(receiver)
    sender = next(sender for sender, heard in bench.links if heard == receiver)
    return bench.engine.port(sender), bench.engine.port(receiver)


def _buffers(bench: Bench, region: str) -> int:
    return next(each.num_bufs for each in bench.config.memory_regions if each.name == region)


def _images(
    count: int, shape: tuple[int, ...], dtype: np.dtype[Any], written: Any
) -> np.ndarray[Any, Any]:
    """Return frames whose pixels fit into any type of input."""
    places = np.arange(np.prod(shape)).reshape(shape)
    images = np.stack([(places * 3 + number * 5) % 7 for number in range(count)])
    images = images.astype(dtype)
    if written.frame is not None and written.frame.modules is not None:
        images[:, gap_mask(written.frame)] = 0
    return images


def _same(data: Any, wanted: Any, gaps: Any) -> bool:
    if gaps is not None:
        data, wanted = np.array(data), np.array(wanted)
        data[gaps] = wanted[gaps] = 0
    return np.array_equal(data, wanted)


def _address(rows: Any, sender: Port, receiver: Port) -> None:
    """Write the addresses of the ports into frames; those of the plan's headers are examples."""
    for at, address in ((0, receiver.mac_address), (6, sender.mac_address)):
        octets = bytes.fromhex(address.replace(":", ""))
        if any(octets):
            rows[:, at : at + 6] = np.frombuffer(octets, np.uint8)
