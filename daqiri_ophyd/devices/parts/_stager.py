"""Which RunEngine has staged a device."""

import asyncio
import weakref
from collections.abc import Callable
from typing import Any

from ._run_engine import calling_task

__all__ = ["Stager"]

_Task = asyncio.Task[Any]


class Stager:
    """The RunEngine that staged a device last, known by the task of its plan.

    All RunEngines of a process may share one event loop, but each plan has its own task.
    """

    def __init__(self) -> None:
        self._task: Callable[[], _Task | None] = _no_task

    def become_caller(self) -> None:
        """Note that the caller stages."""
        task = calling_task()
        self._task = _no_task if task is None else weakref.ref(task)

    def is_another(self) -> bool:
        """Return whether another RunEngine has staged, and its plan has not ended.

        False in a script.
        """
        task, caller = self._task(), calling_task()
        return not (task is None or caller is None or task is caller or task.done())


def _no_task() -> None:
    return None
