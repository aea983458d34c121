"""Send packets on a schedule."""

from collections.abc import Mapping
from typing import Any

from bluesky.utils import MsgGenerator

from daqiri_ophyd.devices import TxQueue
from daqiri_ophyd.replay import Packets

from ._fly import fly, prepare_to_send, source_for
from ._settings import with_settings

__all__ = ["timed_tx"]


def timed_tx(
    tx: TxQueue,
    packets: Packets,
    start_delay: float = 0.1,
    flush_period: float = 0.5,
    *,
    md: Mapping[str, Any] | None = None,
) -> MsgGenerator[str]:
    """Send packets, each at its time.

    Parameters
    ----------
    tx : TxQueue
        Transmit queue.
    packets : dict, path, sequence of paths, ndarray, engine.Packets or PacketSource
        Packets to send. A dict such as ``{"count": 1000, "size": 256, "interval": 1e-4}`` describes
        numbered packets (``rate`` in packets/s may replace ``interval`` in s). Strings are paths of
        pcap files, sent with their original gaps; ``{"files": [...], "speed": 2.0, "max_gap":
        1.0}`` changes the gaps. See `packet_source`.
    start_delay : float
        Time until the first packet, s.
    flush_period : float
        Time between collections of rows, s.
    md : dict, optional
        Metadata of the run.

    Returns
    -------
    str
        uid of the run, whose row has the number of packets sent and their lateness.
    """
    source = source_for(tx, packets)

    def send() -> MsgGenerator[str]:
        yield from prepare_to_send(tx, source)
        metadata = {"plan_name": "timed_tx", **(md or {})}
        return (yield from fly(None, tx, flush_period=flush_period, md=metadata))

    return (yield from with_settings({tx.start_delay: start_delay}, send()))
