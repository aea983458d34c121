"""Calls that take time, outside the RunEngine's thread."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from bluesky import plan_stubs as bps
from bluesky.utils import MsgGenerator

__all__ = ["on_thread"]

_T = TypeVar("_T")


def on_thread(function: Callable[[], _T]) -> MsgGenerator[_T]:
    """Call a function that takes time on a thread, while the RunEngine continues.

    A pause does not interrupt it.
    """
    calls: list[asyncio.Task[_T]] = []

    async def wait() -> None:
        # The RunEngine calls this again after a pause.
        if not calls:
            calls.append(asyncio.create_task(asyncio.to_thread(function)))
        await asyncio.wait(calls)

    yield from bps.wait_for([wait])
    # The result of the message is lost in a pause.
    return calls[0].result()
