"""Calls that take time, beside the RunEngine."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from bluesky import plan_stubs as bps
from bluesky.utils import MsgGenerator

__all__ = ["on_thread"]

_T = TypeVar("_T")


def on_thread(function: Callable[[], _T]) -> MsgGenerator[_T]:
    """Call a function that takes time on a thread; the RunEngine goes on meanwhile.

    After a pause it is called again.
    """

    async def call() -> _T:
        return await asyncio.to_thread(function)

    (done,) = yield from bps.wait_for([call])
    return done.result()
