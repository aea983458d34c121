"""Packet acquisition for Bluesky."""

from importlib.metadata import PackageNotFoundError as _PackageNotFoundError
from importlib.metadata import version as _version

try:
    __version__ = _version("daqiri-ophyd")
except _PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0"
