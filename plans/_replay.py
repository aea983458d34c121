"""Send the packets of a stored run again."""

from collections.abc import Mapping
from typing import Any

from bluesky.utils import MsgGenerator

from daqiri_ophyd.catalog import Catalog, capture_files
from daqiri_ophyd.devices import Capture, TxQueue
from daqiri_ophyd.replay import Replay

from ._fly import OnDrop, capture_settings, fly, prepare_to_send, with_settings

__all__ = ["replay"]


def replay(
    tx: TxQueue,
    run: Any,
    catalog: Catalog | None = None,
    speed: float = 1.0,
    max_gap: float | None = None,
    stream: str | None = None,
    key: str | None = None,
    detector: Capture | None = None,
    on_drop: OnDrop = "fail",
    timeout: float = 10.0,
    start_delay: float = 0.1,
    flush_period: float = 0.5,
    *,
    md: Mapping[str, Any] | None = None,
) -> MsgGenerator[str]:
    """Send the captured packets of a stored run with their original gaps, and capture them again.

    Parameters
    ----------
    tx : TxQueue
        Transmit queue of a port of the same kind as the one that was captured on.
    run : str, int or BlueskyRun
        A run, or its uid or scan id in ``catalog``.
    catalog : Catalog, optional
        Catalog to look up the run in.
    speed : float
        Factor on time: 2.0 halves the gaps.
    max_gap : float, optional
        Longest gap, s of the original time; longer gaps are shortened to it.
    stream, key : str, optional
        Stream and data key of the capture, if the run has several.
    detector : Capture, optional
        Capture for the replayed packets: one file, complete when all have arrived.
    on_drop, timeout
        As for `capture`.
    start_delay : float
        Time until the first packet, s.
    flush_period : float
        Time between collections of rows, s.
    md : dict, optional
        Metadata of the new run; ``replay_of`` in it is the uid of the old one.

    Returns
    -------
    str
        uid of the new run.

    Raises
    ------
    ValueError
        If ``run`` is a uid or scan id and there is no catalog.
    daqiri_ophyd.catalog.CaptureNotFoundError
        If the run has no capture, or several.
    daqiri_ophyd.replay.ReplayError
        If its packets cannot be sent on this port.
    """
    if isinstance(run, str | int):
        if catalog is None:
            raise ValueError(
                f"run is {run!r}; give the catalog to look it up in, or the run itself."
            )
        run = catalog.client[run]
    source = Replay(
        capture_files(run, stream=stream, key=key),
        link_type=tx.link_type,
        speed=speed,
        max_gap_ns=None if max_gap is None else round(max_gap * 1e9),
    )
    settings: dict[Any, Any] = {tx.start_delay: start_delay}
    if detector is not None:
        settings |= capture_settings(
            detector,
            num_packets=source.packets,
            acquire_time=0.0,
            roll_packets=0,
            roll_bytes=0,
            roll_seconds=0.0,
            on_drop=on_drop,
            timeout=timeout,
        )
    metadata = {
        "plan_name": "replay",
        "replay_of": run.metadata["start"]["uid"],
        "speed": speed,
        "max_gap": max_gap,
        **(md or {}),
    }

    def send_again() -> MsgGenerator[str]:
        yield from prepare_to_send(tx, source)
        return (yield from fly(detector, tx, flush_period=flush_period, md=metadata))

    return (yield from with_settings(settings, send_again()))
