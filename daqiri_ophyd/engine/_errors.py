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
    """What the engine could not do.

    The text says what was asked, what was found, and what to do.

    Attributes
    ----------
    status : Status
        The engine's result code.
    """

    status: Status = Status.GENERIC_FAILURE


class NullPointerError(DaqiriError):
    """Nothing was there where something had to be."""

    status = Status.NULL_PTR


class NoFreeBurstBuffersError(DaqiriError):
    """All bursts are in use."""

    status = Status.NO_FREE_BURST_BUFFERS


class NoFreePacketBuffersError(DaqiriError):
    """All packet buffers are in use, or there is no memory for them."""

    status = Status.NO_FREE_PACKET_BUFFERS


class NotReadyError(DaqiriError):
    """The engine, queue or file is closed, or somebody else has it."""

    status = Status.NOT_READY


class InvalidParameterError(DaqiriError):
    """A value is outside of what is accepted."""

    status = Status.INVALID_PARAMETER


class NoSpaceAvailableError(DaqiriError):
    """There was no room in time.

    Attributes
    ----------
    submitted : int
        Packets that were taken before.
    """

    status = Status.NO_SPACE_AVAILABLE

    def __init__(self, message: str, submitted: int = 0) -> None:
        super().__init__(message)
        self.submitted = submitted


class NotSupportedError(DaqiriError):
    """The build or the engine cannot do it; the text says what is missing."""

    status = Status.NOT_SUPPORTED


class GenericFailureError(DaqiriError):
    """The system refused, for example a file or a socket."""

    status = Status.GENERIC_FAILURE


class ConnectFailureError(DaqiriError):
    """No connection could be made."""

    status = Status.CONNECT_FAILURE


class InternalEngineError(DaqiriError):
    """The engine is at fault."""

    status = Status.INTERNAL_ERROR


class ConfigError(InvalidParameterError):
    """A configuration with errors.

    Parameters
    ----------
    report : ConfigReport
        All problems; its text is the text of the error.
    """

    def __init__(self, report: ConfigReport) -> None:
        super().__init__(report.text())
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.report,)


# In the order of Status: what the extension raises.
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
