"""The acquisition engine; it is opened by the first plan that uses it."""

# ruff: noqa: F821
# pyright: reportUndefinedVariable=false
import os

from daqiri_ophyd import profiles
from daqiri_ophyd.devices import make_daq

daq = make_daq(
    os.environ.get("DAQIRI_CONFIG") or profiles.path("loopback"),
    "daq",
    directory=data / "captures",
)
