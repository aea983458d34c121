"""Errors of the engine: one class per status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daqiri_ophyd import _native
from daqiri_ophyd._native import Status

if TYPE_CHECKING:
    from ._config import ConfigReport

__all__ = [
    "ConfigError",
    "ConnectFailureError",
    "DaqiriError",
    "GenericFailureError",
    "InternalEngineError",
    "InvalidParameterError",
    "NoFreeBurstBuffersError",
    "NoFreePacketBuffersError",
    "NoSpaceAvailableError",
    "NotReadyError",
    "NotSupportedError",
    "NullPointerError",
    "Status",
]


class DaqiriError(Exception):
    """Base class of the engine's errors.

    The message names the request, the value found, and the fix.

    Attributes
    ----------
    status : Status
        The engine's result code.
    submitted : int
        For an error of `TxQueue.send`: packets that were accepted before it.
    """

    status: Status = Status.GENERIC_FAILURE
    submitted: int = 0


class NullPointerError(DaqiriError):
    """A required value is missing."""

    status = Status.NULL_PTR


class NoFreeBurstBuffersError(DaqiriError):
    """All bursts are in use."""

    status = Status.NO_FREE_BURST_BUFFERS


class NoFreePacketBuffersError(DaqiriError):
    """All packet buffers are in use, or there is no memory for them."""

    status = Status.NO_FREE_PACKET_BUFFERS


class NotReadyError(DaqiriError):
    """The engine, queue or file is closed, or is in use."""

    status = Status.NOT_READY


class InvalidParameterError(DaqiriError):
    """A value is not accepted."""

    status = Status.INVALID_PARAMETER


class NoSpaceAvailableError(DaqiriError):
    """No buffer, queue slot or table entry was free in time."""

    status = Status.NO_SPACE_AVAILABLE


class NotSupportedError(DaqiriError):
    """The build or the engine does not support it; the message names the missing part."""

    status = Status.NOT_SUPPORTED


class GenericFailureError(DaqiriError):
    """A system call failed, for example on a file or a socket."""

    status = Status.GENERIC_FAILURE


class ConnectFailureError(DaqiriError):
    """No connection could be made."""

    status = Status.CONNECT_FAILURE


class InternalEngineError(DaqiriError):
    """Internal error of the engine."""

    status = Status.INTERNAL_ERROR


class ConfigError(InvalidParameterError):
    """A configuration with errors.

    Parameters
    ----------
    report : ConfigReport
        All problems; its text is the message of the error.
    """

    def __init__(self, report: ConfigReport) -> None:
        super().__init__(report.text())
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.report,)


# Errors that the extension raises, in the order of Status.
BY_STATUS = (
    DaqiriError,
    NullPointerError,
    NoFreeBurstBuffersError,
    NoFreePacketBuffersError,
    NotReadyError,
    InvalidParameterError,
    NoSpaceAvailableError,
    NotSupportedError,
    GenericFailureError,
    ConnectFailureError,
    InternalEngineError,
)
_native.set_error_classes(BY_STATUS)
