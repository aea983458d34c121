"""Send the packets of a stored run again."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import Msg, MsgGenerator
from bluesky_tiled_plugins import BlueskyRun

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import Capture, TxQueue, Verification
from daqiri_ophyd.replay import Comparison, FrameReplay, Replay

from ._arrival import are_peers, bytes_on_the_way, until_arrived, until_taken
from ._fly import fly, prepare_to_send
from ._replay_source import open_source, plain_options
from ._settings import OnDrop, detector_settings, with_settings

__all__ = ["VerificationError", "replay", "verify_replay"]

_POLL_S = 0.05
_T = TypeVar("_T")


class VerificationError(RuntimeError):
    """The captured packets differ from the packets sent."""


def replay(
    tx: TxQueue,
    run: str | int | BlueskyRun,
    catalog: Catalog | Callable[[], Catalog] | None = None,
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
    between: Sequence[float | None] | None = None,
    packet_range: Sequence[int | None] | None = None,
    select: Mapping[str, Any] | None = None,
    loops: int = 1,
    loop_gap: float | None = None,
    rewrite: Mapping[str, Any] | None = None,
    md: Mapping[str, Any] | None = None,
) -> MsgGenerator[str]:
    """Send the captured packets of a stored run with their original gaps, and capture them again.

    Of a run without captured packets, or with the data key of frames as ``key``, frames are sent as
    packets of their reorder plan (`daqiri_ophyd.replay.FrameReplay`), by the configuration in the
    start document.

    Parameters
    ----------
    tx : TxQueue
        Transmit queue of a port of the same kind as the captured port.
    run : str, int or BlueskyRun
        A run; or, to look up in ``catalog``, a scan id, -1 for the latest run, a uid or its first
        characters.
    catalog : Catalog or callable, optional
        Catalog to look up the run in, or a function that returns it.
    speed : float
        Factor on time: 2.0 halves the gaps.
    max_gap : float, optional
        Longest gap, s of the original time; longer gaps are shortened to it.
    stream, key : str, optional
        Stream and data key of the capture, if the run has several.
    detector : Capture, optional
        Capture for the replayed packets: one file, complete when all have arrived. On a TCP port,
        bytes from other clients are counted too.
    on_drop, timeout
        As for `capture`.
    start_delay : float
        Time until the first packet, s.
    flush_period : float
        Time between collections of rows, s.
    between : pair of float, optional
        Send only packets in this time range, from the first to before the second time, s after the
        first packet of the capture. The second may be None: to the end.
    packet_range : pair of int, optional
        Send only packets in this range of numbers, from the first to before the second; the
        capture's first packet is 0. The second may be None: to the end.
    select : dict, optional
        Send only packets with these header fields, as in `PcapFile.select`:
        ``{"udp_dst": 5000, "ipv4_src": "10.0.0.1"}``.
    loops : int
        How many times to send the packets.
    loop_gap : float, optional
        Gap from the last packet to the first of the next loop, s of the original time. Default:
        the mean gap.
    rewrite : dict, optional
        Addresses and ports to put into Ethernet frames: ``mac_src``, ``mac_dst``, ``ip_src``,
        ``ip_dst``, ``udp_src``, ``udp_dst``.
    md : dict, optional
        Metadata of the new run. It also has ``replay_of``, the uid of the old run, and ``replay``,
        the parameters of the replay.

    Returns
    -------
    str
        uid of the new run.

    Raises
    ------
    ValueError
        If ``run`` is to be looked up and there is no catalog.
    daqiri_ophyd.catalog.RunNotFoundError
        If there is no such run in the catalog.
    daqiri_ophyd.catalog.CaptureNotFoundError
        If the run has no capture, or several.
    daqiri_ophyd.replay.ReplayError
        If its packets cannot be sent on this port, or none is selected.
    """
    options = plain_options(
        speed=speed,
        max_gap=max_gap,
        between=between,
        packet_range=packet_range,
        select=select,
        loops=loops,
        loop_gap=loop_gap,
        rewrite=rewrite,
    )
    opened = yield from open_source(tx, run, catalog, stream, key, options)
    if opened is None:
        return ""
    source, metadata = opened
    metadata = {"plan_name": "replay", **metadata, **(md or {})}
    settings = _settings(tx, source, detector, on_drop, timeout, start_delay)
    flight = _fly(tx, source, detector, timeout, flush_period, metadata)
    return (yield from with_settings(settings, flight))


def verify_replay(
    tx: TxQueue,
    run: str | int | BlueskyRun,
    detector: Capture,
    catalog: Catalog | Callable[[], Catalog] | None = None,
    speed: float = 1.0,
    max_gap: float | None = None,
    stream: str | None = None,
    key: str | None = None,
    timeout: float = 10.0,
    start_delay: float = 0.1,
    flush_period: float = 0.5,
    *,
    between: Sequence[float | None] | None = None,
    packet_range: Sequence[int | None] | None = None,
    select: Mapping[str, Any] | None = None,
    loops: int = 1,
    loop_gap: float | None = None,
    rewrite: Mapping[str, Any] | None = None,
    md: Mapping[str, Any] | None = None,
) -> MsgGenerator[Comparison]:
    """Replay a stored run, capture the packets, and compare them one by one.

    The result is also the only event of the run's stream ``verification``, with the device
    `Verification`.

    Parameters
    ----------
    tx, run
        As for `replay`.
    detector : Capture
        Capture for the replayed packets.
    catalog, speed, max_gap, stream, key, timeout, start_delay, flush_period, between
        As for `replay`.
    packet_range, select, loops, loop_gap, rewrite, md
        As for `replay`.

    Returns
    -------
    Comparison
        Number of packets, and the deviation of their gaps from the intended gaps. On a TCP port,
        the number of bytes.

    Raises
    ------
    daqiri_ophyd.replay.ReplayError
        If the run has no packets, or they cannot be sent on this port.
    VerificationError
        If not all packets that were sent were captured unchanged and in order. The message names
        the first difference, and the run fails. If the run fails earlier, such as because packets
        are missing, that error is raised, and the reason of the RunStop has the difference.
    ValueError, LookupError
        As for `replay`.
    """
    options = plain_options(
        speed=speed,
        max_gap=max_gap,
        between=between,
        packet_range=packet_range,
        select=select,
        loops=loops,
        loop_gap=loop_gap,
        rewrite=rewrite,
    )
    opened = yield from open_source(tx, run, catalog, stream, key, options, compared=True)
    if opened is None:
        return None  # pyright: ignore[reportReturnType] - in a simulation
    source, metadata = opened
    metadata = {"plan_name": "verify_replay", **metadata, **(md or {})}
    settings = _settings(tx, source, detector, "fail", timeout, start_delay)
    verification = Verification(name="verification", tx=tx, source=source, capture=detector)
    flight = _fly(tx, source, detector, timeout, flush_period, metadata)
    yield from with_settings(settings, _verified(flight, verification))
    return verification.result  # pyright: ignore[reportReturnType] - otherwise it has raised


def with_catalog(
    plan: Callable[..., MsgGenerator[_T]], catalog: Catalog | Callable[[], Catalog]
) -> Callable[..., MsgGenerator[_T]]:
    """Return a plan that looks runs up in this catalog, for a queue server or blueapi.

    Clients of such a server pass a scan id, -1, or a uid, and no catalog.

    Parameters
    ----------
    plan : callable
        `replay` or `verify_replay`.
    catalog : Catalog or callable
        The catalog, or a function that returns it on demand.

    Returns
    -------
    callable
        The plan without parameter ``catalog``.
    """
    signature = inspect.signature(plan)
    run = signature.parameters["run"].replace(annotation=str | int)
    parameters = {name: p for name, p in signature.parameters.items() if name != "catalog"}
    offered = signature.replace(parameters=list((parameters | {"run": run}).values()))

    @functools.wraps(plan)
    def bound(*args: Any, **kwargs: Any) -> MsgGenerator[_T]:
        given = offered.bind(*args, **kwargs).arguments
        return (yield from plan(**given, catalog=catalog))

    # Servers read the signature to check parameters and to draw forms.
    del bound.__wrapped__  # pyright: ignore[reportAttributeAccessIssue]
    bound.__signature__ = offered  # pyright: ignore[reportAttributeAccessIssue]
    bound.__annotations__ = {
        **{name: p.annotation for name, p in offered.parameters.items()},
        "return": offered.return_annotation,
    }
    return bound


def _settings(
    tx: TxQueue,
    source: Replay | FrameReplay,
    detector: Capture | None,
    on_drop: OnDrop,
    timeout: float,
    start_delay: float,
) -> dict[Any, Any]:
    settings: dict[Any, Any] = {tx.start_delay: start_delay}
    if detector is not None:
        settings |= detector_settings(
            detector,
            Capture,
            # A TCP stream arrives in other packets.
            num_packets=source.packets if source.stream_bytes is None else 0,
            acquire_time=0.0,
            roll_packets=0,
            roll_bytes=0,
            roll_seconds=0.0,
            on_drop=on_drop,
            timeout=timeout,
        )
    return settings


def _fly(
    tx: TxQueue,
    source: Replay | FrameReplay,
    detector: Capture | None,
    timeout: float,
    flush_period: float,
    metadata: Mapping[str, Any],
) -> MsgGenerator[str]:
    yield from prepare_to_send(tx, source)
    flight = fly(detector, tx, flush_period=flush_period, md=metadata)
    if detector is not None and source.stream_bytes is not None:
        flight = _when_arrived(flight, tx, detector, source.stream_bytes, timeout)
    return (yield from flight)


def _when_arrived(
    plan: MsgGenerator[str], tx: TxQueue, detector: Capture, size: int, timeout: float
) -> MsgGenerator[Any]:
    """Complete a capture of a TCP port, which has no limit, when all bytes have arrived."""
    before = rest = 0

    def received() -> int:
        port = detector.daq.port(detector.port_name)
        queues = [port.rx_queue(name) for name in detector.selected_queues]
        return sum(queue.counters().received_bytes for queue in queues)

    def complete(message: Msg) -> MsgGenerator[Any]:
        yield from until_arrived(detector, size, lambda: received() - before, timeout, size - rest)
        yield from until_taken(detector, timeout)
        return (yield message)

    def insert(message: Msg) -> tuple[Any, None]:
        nonlocal before, rest
        if message.command == "kickoff" and message.obj is tx:
            # Packets sent earlier that are still in transit are not part of this replay.
            rest = max(0, bytes_on_the_way(tx, detector)) if are_peers(tx, detector) else 0
            before = received() + rest
        if message.command == "complete" and message.obj is detector:
            return complete(message), None
        return None, None

    return (yield from bpp.plan_mutator(plan, insert))


def _verified(plan: MsgGenerator[str], verification: Verification) -> MsgGenerator[Any]:
    """Compare before the run is closed, and fail it if there is a difference."""

    def close(message: Msg) -> MsgGenerator[Any]:
        status: Any = yield from bps.trigger(verification)
        while not status.done:
            yield from bps.checkpoint()
            yield from bps.sleep(_POLL_S)
        failure = message.kwargs.get("reason") or ""
        if (error := status.exception()) is not None:
            if not failure:
                raise error
            return (yield from _fail(failure, f"the replay cannot be compared: {error}"))
        yield from bps.create(name="verification")
        yield from bps.read(verification)
        yield from bps.save()
        result = verification.result
        if result is None or not result.difference:
            return (yield message)
        if failure:
            return (yield from _fail(failure, _sentence(result)))
        reason = _sentence(result)
        yield from bps.close_run(exit_status="fail", reason=reason)
        raise VerificationError(reason)

    def insert(message: Msg) -> tuple[Any, None]:
        # If there is a result, `close` itself has sent the message.
        closing = message.command == "close_run" and verification.result is None
        return (close(message), None) if closing else (None, None)

    return (yield from bpp.plan_mutator(plan, insert))


def _fail(failure: str, consequence: str) -> MsgGenerator[Any]:
    """Close a run that has already failed; the plan raises the first failure."""
    return (yield from bps.close_run(exit_status="fail", reason=f"{failure}; {consequence}"))


def _sentence(result: Comparison) -> str:
    return (
        f"the replay differs: {result.difference}; {result.identical} of {result.sent} "
        f"{result.unit} are identical from the first one on, and {result.captured} were captured"
    )
