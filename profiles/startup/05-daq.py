"""The acquisition engine, opened by the first plan that uses it, and the host check."""

# ruff: noqa: F821
# pyright: reportUndefinedVariable=false
import os

from daqiri_ophyd import profiles
from daqiri_ophyd.devices import Daq, HostReadiness, make_daq

if isinstance(globals().get("daq"), Daq):  # this file is run again
    daq.close()  # it has the sockets
    RE.unsubscribe(run_started)

config = os.environ.get("DAQIRI_CONFIG") or profiles.path("loopback")
daq = make_daq(config, "daq", directory=data / "captures")
# Also runs that are opened before the engine is staged are known, for paths with {scan_id}.
run_started = RE.subscribe(daq.run_started, "start")
# Whether the host is ready for the configuration; for a baseline, or count([readiness]).
readiness = HostReadiness(name="readiness", config=config, folder=data / "captures")
