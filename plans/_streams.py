"""Tell frame detectors the stream of each reading."""

from functools import partial
from typing import Any

from bluesky import preprocessors as bpp
from bluesky.utils import Msg, MsgGenerator

from daqiri_ophyd.devices import FrameDetector

__all__ = ["reading_streams_wrapper"]


def reading_streams_wrapper(plan: MsgGenerator[Any]) -> MsgGenerator[Any]:
    """Tell frame detectors to which stream each of their readings belongs.

    A file of frames belongs to one stream of one run, and only the plan knows the stream of a
    reading. With this wrapper, readings of a stream that follow each other share a file also in
    runs with several streams, such as a dark frame before a scan. Without it, each reading of such
    a run has a file of its own. For all plans, use
    ``RE.preprocessors.append(reading_streams_wrapper)``.

    Parameters
    ----------
    plan : generator
        Any plan.

    Returns
    -------
    Any
        Return value of the plan.
    """
    runs: dict[Any, int] = {}  # number of the open run, by its key
    streams: dict[Any, str] = {}  # stream of the open reading, by the key of its run

    def insert(msg: Msg) -> tuple[MsgGenerator[Any] | None, None]:
        match msg.command:
            case "open_run":
                runs[msg.run] = runs.get(msg.run, 0) + 1
            case "create":
                streams[msg.run] = msg.kwargs.get("name", msg.args[0] if msg.args else "")
            case "save" | "drop":
                streams.pop(msg.run, None)
            case "read" if msg.run in streams and isinstance(msg.obj, FrameDetector):
                stream = (msg.run, runs.get(msg.run), streams[msg.run])
                return _told(msg, stream), None
        return None, None

    return (yield from bpp.plan_mutator(plan, insert))


def _told(msg: Msg, stream: tuple[Any, ...]) -> MsgGenerator[Any]:
    async def tell(detector: FrameDetector) -> None:
        detector.read_into(stream)

    # In a message: a plan that is only simulated changes nothing.
    tasks = yield Msg("wait_for", None, [partial(tell, msg.obj)])
    for task in tasks or ():
        task.result()  # raises what it has raised
    return (yield msg)
