"""Base class of receive and transmit queues."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Generic, TypeVar

from daqiri_ophyd._native import RxQueueConfig, TxQueueConfig

from ._errors import NotReadyError

if TYPE_CHECKING:
    from ._engine import Port

__all__ = ["Queue"]

Config = TypeVar("Config", RxQueueConfig, TxQueueConfig)
Native = TypeVar("Native")


class Queue(Generic[Config, Native]):
    """A queue of a port.

    Attributes
    ----------
    config : RxQueueConfig or TxQueueConfig
        Its part of the configuration.
    """

    def __init__(self, port: Port, config: Config, native: Native) -> None:
        # A weak reference, to avoid a cycle: the memory of an engine is freed with its last user.
        self._port = weakref.ref(port)
        self._port_name = port.name
        self.config = config
        self._native = native

    @property
    def port(self) -> Port:
        """Port of the queue.

        Raises
        ------
        NotReadyError
            If the engine was dropped.
        """
        port = self._port()
        if port is None:
            raise NotReadyError(
                f"the engine of {self!r} was dropped; keep it while queues are used"
            )
        return port

    @property
    def name(self) -> str:
        """Name of the queue."""
        return self.config.name

    @property
    def id(self) -> int:
        """Number of the queue at its port."""
        return self.config.id
