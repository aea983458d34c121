"""Plans by name, as a queue server lists them."""

# ruff: noqa: F821
# pyright: reportUndefinedVariable=false
from bluesky.plan_stubs import mv  # noqa: F401
from bluesky.plans import count, rel_scan, scan  # noqa: F401

from daqiri_ophyd import plans

configure_flows = plans.configure_flows
timed_tx = plans.timed_tx
capture = plans.capture
capture_scan = plans.capture_scan


def replay(
    tx,
    run: str,
    speed: float = 1.0,
    max_gap: float | None = None,
    detector=None,
    start_delay: float = 0.1,
    *,
    md: dict | None = None,
):
    """Send the captured packets of a stored run with their original gaps.

    Parameters
    ----------
    tx
        Transmit queue.
    run
        uid of the run.
    speed
        Factor on time: 2.0 halves the gaps.
    max_gap
        Longest gap, s; longer gaps are shortened to it.
    detector
        Capture for the replayed packets.
    start_delay
        Time until the first packet, s.
    md
        Metadata of the new run.
    """
    return (
        yield from plans.replay(
            tx,
            run,
            catalog,
            speed=speed,
            max_gap=max_gap,
            detector=detector,
            start_delay=start_delay,
            md=md,
        )
    )


try:
    from bluesky_queueserver import parameter_annotation_decorator  # pyright: ignore[reportMissingImports]
except ImportError:
    pass
else:
    # Devices that a form offers for these parameters: captures, transmit queues.
    captures = {"annotation": "Captures", "devices": {"Captures": (":-^daq$:-.*:^capture$",)}}
    queues = {"annotation": "Queues", "devices": {"Queues": (":-^daq$:-.*:-^tx$:.*",)}}
    optional = {
        "detector": {**captures, "annotation": "typing.Optional[Captures]"},
        "tx": {**queues, "annotation": "typing.Optional[Queues]"},
    }

    def _offer(**parameters):
        return parameter_annotation_decorator({"parameters": parameters})

    timed_tx = _offer(tx=queues)(timed_tx)
    capture = _offer(detector=captures, tx=optional["tx"])(capture)
    capture_scan = _offer(detector=captures, tx=optional["tx"])(capture_scan)
    replay = _offer(tx=queues, detector=optional["detector"])(replay)
