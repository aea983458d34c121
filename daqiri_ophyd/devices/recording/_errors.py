"""Errors of devices that record."""

__all__ = ["CaptureError", "CaptureStoppedError"]


class CaptureError(RuntimeError):
    """A capture failed or could not start."""


class CaptureStoppedError(CaptureError):
    """A capture was stopped before its end."""
