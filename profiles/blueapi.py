"""The startup collection as a module for blueapi: its devices, and the plans it can offer.

    # config.yaml of blueapi
    env:
      sources:
        - kind: deviceManager
          module: daqiri_ophyd.profiles.blueapi
        - kind: planFunctions
          module: daqiri_ophyd.profiles.blueapi

For your own collection, copy this file and the folder ``startup`` next to it. blueapi has its own
RunEngine, whose metadata and scan ids are not kept; the plans store their runs in the catalog
themselves.
"""

import functools
import inspect
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_origin

from bluesky.protocols import Flyable, Movable, Readable
from bluesky.utils import Msg, MsgGenerator

_collection: dict[str, Any] = {}
for _script in sorted(Path(__file__).with_name("startup").glob("[0-9][0-9]-*.py")):
    exec(compile(_script.read_text(), _script, "exec"), _collection)
_writer = _collection["catalog"].writer()
_preprocessors = _collection["RE"].preprocessors


class _Devices:
    """A device manager, as blueapi calls it, for devices that already exist."""

    def build_and_connect(self, **_: Any) -> SimpleNamespace:
        found = {
            name: value
            for name, value in _collection.items()
            if isinstance(value, Readable | Movable | Flyable) and not inspect.isclass(value)
        }
        return SimpleNamespace(devices=found, build_errors={}, connection_errors={})


def _offers(plan: Any) -> bool:
    """Return whether it is a plan whose parameters all have names; blueapi passes names."""
    if not inspect.isfunction(plan) or plan.__name__.startswith("_"):
        return False
    signature = inspect.signature(plan)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    named = not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return named and get_origin(signature.return_annotation) is Generator


_in_plan = threading.Lock()  # held while a plan runs


def _stored(plan: Callable[..., MsgGenerator[Any]]) -> Callable[..., MsgGenerator[Any]]:
    """Return the plan with the additions of the collection's RunEngine, unless nested."""

    @functools.wraps(plan)
    def stored(*args: Any, **kwargs: Any) -> MsgGenerator[Any]:
        messages = plan(*args, **kwargs)
        if not _in_plan.acquire(blocking=False):
            return (yield from messages)
        try:
            for wrapper in _preprocessors:
                messages = wrapper(messages)
            # Until the RunEngine's next call: it closes an aborted run itself, after the plan.
            yield Msg("subscribe", None, _writer, "all")
            yield Msg("subscribe", None, _collection["daq"].run_started, "start")
            return (yield from messages)
        finally:
            _in_plan.release()

    return stored


devices = _Devices()
_plans = {name: _stored(plan) for name, plan in _collection.items() if _offers(plan)}
globals().update(_plans)
__all__ = list(_plans)  # pyright: ignore[reportUnsupportedDunderAll]
