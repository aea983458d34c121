"""Plans by name, as a queue server lists them."""

# ruff: noqa: F821
# pyright: reportUndefinedVariable=false
from bluesky.plan_stubs import mv  # noqa: F401
from bluesky.plans import count, rel_scan, scan  # noqa: F401

from daqiri_ophyd import plans

configure = plans.configure
configure_flows = plans.configure_flows
timed_tx = plans.timed_tx
capture = plans.capture
capture_scan = plans.capture_scan
record = plans.record
fly_scan = plans.fly_scan
# Runs by scan id, -1 or uid, from the catalog of this collection.
replay = plans.with_catalog(plans.replay, catalog)
verify_replay = plans.with_catalog(plans.verify_replay, catalog)

try:
    from bluesky_queueserver import parameter_annotation_decorator  # pyright: ignore[reportMissingImports]
except ImportError:
    pass
else:
    # Devices that a form offers for these parameters.
    _port = ":-^daq$:-^(?!regions$)"
    _capture, _frames, _tx = f"{_port}:^capture$", f"{_port}:-^frames$:.*", f"{_port}:-^tx$:.*"
    captures = {"annotation": "Captures", "devices": {"Captures": (_capture,)}}
    frames = {"annotation": "Frames", "devices": {"Frames": (_frames,)}}
    detectors = {"annotation": "Detectors", "devices": {"Detectors": (_capture, _frames)}}
    queues = {"annotation": "Queues", "devices": {"Queues": (_tx,)}}
    optional = {
        "detector": {**captures, "annotation": "typing.Optional[Captures]"},
        "tx": {**queues, "annotation": "typing.Optional[Queues]"},
    }

    def _offer(**parameters):
        return parameter_annotation_decorator({"parameters": parameters})

    timed_tx = _offer(tx=queues)(timed_tx)
    capture = _offer(detector=detectors, tx=optional["tx"])(capture)
    record = _offer(detector=frames, tx=optional["tx"])(record)
    fly_scan = _offer(detector=detectors)(fly_scan)
    capture_scan = _offer(detector=captures, tx=optional["tx"])(capture_scan)
    replay = _offer(tx=queues, detector=optional["detector"])(replay)
    verify_replay = _offer(tx=queues, detector=captures)(verify_replay)
