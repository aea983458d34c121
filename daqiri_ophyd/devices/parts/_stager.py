"""Which RunEngine has staged a device."""

import asyncio
import weakref
from collections.abc import Callable
from typing import Any

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
        task = _calling_task()
        self._task = _no_task if task is None else weakref.ref(task)

    def is_another(self) -> bool:
        """Return whether another RunEngine has staged, and its plan has not ended.

        False in a script.
        """
        task, caller = self._task(), _calling_task()
        return not (task is None or caller is None or task is caller or task.done())


def _calling_task() -> _Task | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs: a script
        return None


def _no_task() -> None:
    return None
