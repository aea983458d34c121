"""Wait until the bytes of a stream have arrived."""

from collections.abc import Callable

from bluesky import plan_stubs as bps
from bluesky.utils import MsgGenerator

from daqiri_ophyd.devices import Capture, TxQueue

__all__ = ["are_peers", "until_arrived"]

_POLL_S = 0.05


def are_peers(tx: TxQueue, detector: Capture) -> bool:
    """Return whether a transmit queue sends to the port of a capture, over TCP."""
    sender, receiver = tx.interface.socket_config, detector.interface.socket_config
    if tx.daq is not detector.daq or sender is None or receiver is None:
        return False
    pairs = (
        (sender.remote_addr, receiver.local_addr),
        (receiver.remote_addr, sender.local_addr),
    )
    return any(a == b and (a or "").startswith("tcp://") for a, b in pairs)


def until_arrived(
    detector: Capture, size: int, arrived: Callable[[], int], timeout: float
) -> MsgGenerator[None]:
    """Let the RunEngine go on until so many bytes have arrived.

    Parameters
    ----------
    detector : Capture
        The capture, for the text of the error.
    size : int
        Bytes that were sent.
    arrived : callable
        Returns how many have arrived so far.
    timeout : float
        Longest time without progress, s.

    Raises
    ------
    TimeoutError
        If there is none for longer.
    """
    quiet, before = 0.0, arrived()
    while before < size:
        if quiet > timeout:
            raise TimeoutError(
                f"{detector.name}: no progress for {timeout:g} s: {before} of {size} bytes"
            )
        yield from bps.checkpoint()
        yield from bps.sleep(_POLL_S)
        now = arrived()
        quiet = quiet + _POLL_S if now == before else 0.0
        before = now
