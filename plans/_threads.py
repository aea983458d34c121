"""Work that takes time, outside the RunEngine's thread."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from bluesky import plan_stubs as bps
from bluesky.utils import MsgGenerator

__all__ = ["begin", "on_thread"]

_T = TypeVar("_T")


def begin(work: Callable[[], "asyncio.Future[_T]"]) -> MsgGenerator[_T | None]:
    """Begin work on the RunEngine's loop, and wait for it while the RunEngine continues.

    A pause does not interrupt it.

    Parameters
    ----------
    work : callable
        Begins the work, and returns its future.

    Returns
    -------
    Any
        Result of the future. None in a simulation, such as ``summarize_plan``: nothing is begun.
    """
    begun: list[asyncio.Future[_T]] = []

    async def wait() -> None:
        # The RunEngine calls this again after a pause.
        if not begun:
            try:
                begun.append(work())
            except Exception as error:  # noqa: BLE001 - raised in the plan
                begun.append(asyncio.get_running_loop().create_future())
                begun[0].set_exception(error)
        await asyncio.wait(begun)

    yield from bps.wait_for([wait])
    # The result of the message is lost in a pause.
    return begun[0].result() if begun else None


def on_thread(function: Callable[[], _T]) -> MsgGenerator[_T | None]:
    """Call a function that takes time on a thread; see `begin`."""
    return (yield from begin(lambda: asyncio.create_task(asyncio.to_thread(function))))
