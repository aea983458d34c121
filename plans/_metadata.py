"""Add the engines that a run uses to its start document."""

from collections.abc import Mapping
from typing import Any

from bluesky import preprocessors as bpp
from bluesky.utils import Msg, MsgGenerator

from daqiri_ophyd.devices import Daq

__all__ = ["engine_metadata_wrapper"]

_KEY = "daqiri"


def engine_metadata_wrapper(plan: MsgGenerator[Any]) -> MsgGenerator[Any]:
    """Describe the engines of a plan in the start documents of its runs, under ``daqiri``.

    The entry has an item for each `Daq` that is staged, wholly or in part, when the run is opened:
    its `Daq.metadata`, under its name. Other runs are unchanged. The plans of this package do this
    themselves; for all others, use ``RE.preprocessors.append(engine_metadata_wrapper)``.

    Parameters
    ----------
    plan : generator
        Any plan.

    Returns
    -------
    Any
        Return value of the plan.

    Raises
    ------
    TypeError
        If the metadata of such a run has a ``daqiri`` that is not a mapping.
    """
    staged: dict[int, Daq] = {}

    def describe(msg: Msg) -> Msg:
        if msg.command == "stage" and isinstance(root := getattr(msg.obj, "root", None), Daq):
            staged[id(msg.obj)] = root
        elif msg.command == "unstage":
            staged.pop(id(msg.obj), None)
        elif msg.command == "open_run" and staged:
            given = msg.kwargs.get(_KEY, {})
            if not isinstance(given, Mapping):
                raise TypeError(
                    f"the metadata of the run have {_KEY!r}: {given!r}; that key is for the "
                    "engines of the run, so give yours another name"
                )
            engines = {daq.name: daq.metadata() for daq in staged.values()}
            return msg._replace(kwargs={**msg.kwargs, _KEY: {**given, **engines}})
        return msg

    return (yield from bpp.msg_mutator(plan, describe))
