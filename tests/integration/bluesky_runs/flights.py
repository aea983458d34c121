"""Parts of fly scans, in which the instrument sends a number of times."""

from collections.abc import Sequence
from typing import Any

from bluesky import plan_stubs as bps
from bluesky.utils import MsgGenerator
from run_documents import until

from daqiri_ophyd.devices import Capture

from .benches import PACKETS, Bench

COUNT = 6
EACH = 2  # triggers in each file, if they are rolled


def roll(b: Bench, each: int) -> None:
    b.capture.roll_packets.put(each * PACKETS)
    if b.frames is not None:
        b.frames.roll_frames.put(each)


def no_limit(b: Bench) -> None:
    b.capture.num_packets.put(0)
    if b.frames is not None:
        b.frames.num_frames.put(0)


def arrived(b: Bench, devices: Sequence[Any], count: int) -> bool:
    """Whether devices have recorded what belongs to so many triggers."""
    for device in devices:
        progress = device.progress
        if progress is None:
            return False
        if isinstance(device, Capture):
            if progress.packets < count * PACKETS:
                return False
        elif progress.frames < count:
            return False
    return True


def sent(b: Bench, devices: Sequence[Any], count: int = COUNT) -> MsgGenerator[None]:
    """Send, and wait until all of it is recorded."""
    for number in range(1, count + 1):
        yield from bps.checkpoint()
        b.instrument.send()
        yield from until(lambda n=number: arrived(b, devices, n))


def by_stream(b: Bench) -> dict[str, Any]:
    return {"packets": b.capture} | ({} if b.frames is None else {"images": b.frames})
