"""Wait until the bytes of a stream have arrived."""

from collections.abc import Callable

from bluesky import plan_stubs as bps
from bluesky.utils import MsgGenerator

from daqiri_ophyd.devices import Capture, TxQueue

__all__ = ["are_peers", "bytes_on_the_way", "until_arrived", "until_taken"]

_POLL_S = 0.05
_QUIET_S = 1.0


def are_peers(tx: TxQueue, detector: Capture) -> bool:
    """Return whether a transmit queue sends to the port of a capture, over TCP."""
    sender, receiver = tx.interface.socket_config, detector.interface.socket_config
    if sender is None or receiver is None:
        return False
    pairs = (
        (sender.remote_addr, receiver.local_addr),
        (receiver.remote_addr, sender.local_addr),
    )
    return any(a == b and (a or "").startswith("tcp://") for a, b in pairs)


def bytes_on_the_way(tx: TxQueue, detector: Capture) -> int:
    """Return the bytes that a queue has sent and the port of a capture has not received yet."""
    port = detector.daq.port(detector.port_name)
    arrived = sum(queue.counters().received_bytes for queue in port.rx)
    return tx.daq.tx_queue(tx.port_name, tx.member_name).counters().sent_bytes - arrived


def until_arrived(
    detector: Capture,
    size: int,
    arrived: Callable[[], int],
    timeout: float,
    least: int | None = None,
) -> MsgGenerator[None]:
    """Wait until a number of bytes has arrived, while the RunEngine continues.

    Parameters
    ----------
    detector : Capture
        The capture, for the text of the error.
    size : int
        Bytes that were sent.
    arrived : callable
        Returns the number of bytes that have arrived so far.
    timeout : float
        Longest time without progress, s.
    least : int, optional
        Number of bytes that is enough if no more arrive for 1 s: the others may be lost.

    Raises
    ------
    TimeoutError
        If there is no progress for longer.
    """
    quiet, before = 0.0, arrived()
    while before < size:
        if least is not None and before >= least and quiet > _QUIET_S:
            return
        if quiet > timeout:
            raise TimeoutError(
                f"{detector.name}: no progress for {timeout:g} s: {before} of {size} bytes"
            )
        yield from bps.checkpoint()
        yield from bps.sleep(_POLL_S)
        now = arrived()
        quiet = quiet + _POLL_S if now == before else 0.0
        before = now


def until_taken(detector: Capture, timeout: float) -> MsgGenerator[None]:
    """Wait until a capture has read what its queues have received so far.

    The RunEngine continues meanwhile. Packets are received before their burst is complete.

    Parameters
    ----------
    detector : Capture
        The capture.
    timeout : float
        Longest time, s.

    Raises
    ------
    TimeoutError
        If it takes longer.
    """
    port = detector.daq.port(detector.port_name)
    queues = [port.rx_queue(name) for name in detector.selected_queues]
    received = [queue.counters().received for queue in queues]

    def missing() -> int:
        counts = [queue.counters() for queue in queues]
        taken = [now.received - now.held for now in counts]
        return sum(max(0, a - b) for a, b in zip(received, taken, strict=True))

    waited = 0.0
    while missing() and detector.is_recording:
        if waited > timeout:
            raise TimeoutError(
                f"{detector.name}: {missing()} packets are still in the queues after {timeout:g} s"
            )
        yield from bps.checkpoint()
        yield from bps.sleep(_POLL_S)
        waited += _POLL_S
