"""The acquisition engine, opened by the first plan that uses it, and the host check."""

# ruff: noqa: F821
# pyright: reportUndefinedVariable=false
import os

from daqiri_ophyd import profiles, setup
from daqiri_ophyd.devices import HostReadiness, make_daq

config = os.environ.get("DAQIRI_CONFIG") or profiles.path("loopback")
daq = make_daq(config, "daq", directory=data / "captures")
# Table, progress bars, metadata and wrappers for all plans. If this file is run again, the earlier
# engine is closed.
bec = setup(RE, daq, metadata=data / "metadata").live
# Whether the host is ready for the configuration; for a baseline, or count([readiness]).
readiness = HostReadiness(name="readiness", config=config, folder=data / "captures")
