"""The shippers of this process, which all devices share."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from ._shipment import Shipment, pending_shipments
from ._shipper import Shipper
from ._store import StoreError, split_address

__all__ = ["resume", "resume_later", "shipper_of", "shippers"]

_log = logging.getLogger(__name__)

# At exit, after this waiting time, s, the reason is logged.
_SILENT_S = 3.0
# And after this one without any progress, the process ends.
_STALLED_S = 30.0

_lock = threading.Lock()
_shippers: dict[str, Shipper] = {}
_resumed: set[Path] = set()


def shipper_of(address: str) -> Shipper:
    """Return the shipper of this process for an address; all devices share it.

    At exit, the process waits until its files are in the store; Ctrl-C, or a store that is away,
    leaves them to the next one.

    Raises
    ------
    ValueError, StoreError
        As `split_address` and `open_store`.
    """
    bucket, _ = split_address(address)
    with _lock:
        if bucket not in _shippers or _shippers[bucket].is_closed:
            _shippers[bucket] = Shipper(bucket)
        return _shippers[bucket]


def resume(
    folder: Path, shipper: Callable[[str], Shipper] = shipper_of
) -> tuple[list[Shipment], list[str]]:
    """Continue the orders that other processes left below a folder.

    Parameters
    ----------
    folder : Path
        The folder.
    shipper : callable
        Returns the shipper for an address.

    Returns
    -------
    tuple of list of Shipment, list of str
        Those that this process continues; and why others are not continued: they cannot be read, or
        their store cannot be opened.
    """
    found: list[Shipment] = []
    problems: list[str] = []
    for path in pending_shipments(folder):
        try:
            shipment = Shipment.take(path)
            if shipment is None:
                continue
            try:
                shipper(shipment.ship_to).take(shipment)
            except BaseException:
                shipment.release(done=False)
                raise
        except (OSError, StoreError, ValueError) as error:
            problems.append(str(error) if str(path) in str(error) else f"{path}: {error}")
        else:
            found.append(shipment)
    return found, problems


def resume_later(folder: Path) -> None:
    """Do so on a thread, once for each folder: it may have many folders below."""
    with _lock:
        if folder in _resumed:
            return
        _resumed.add(folder)

    def run() -> None:
        for problem in resume(folder)[1]:
            _log.warning("%s", problem)

    threading.Thread(target=run, name="ship-resume", daemon=True).start()


def shippers() -> list[Shipper]:
    """Return the shippers of this process."""
    with _lock:
        return [each for each in _shippers.values() if not each.is_closed]


def _finish() -> None:
    for shipper in shippers():
        try:
            is_done = shipper.wait_unless_failing(_SILENT_S)
            if not is_done and not shipper.state.error:
                _log.warning(
                    "Waiting for %d files to be in %s; Ctrl-C leaves them in their folder.",
                    shipper.state.unsent,
                    shipper.bucket,
                )
                is_done = _wait_while_sending(shipper)
        except KeyboardInterrupt:
            is_done = False
        if not is_done:
            state = shipper.state
            _log.warning(
                "%d files (%d bytes) are not in %s%s. They stay in their folder; "
                "`daqiri-ophyd catalog ship` uploads them.",
                state.unsent,
                state.unsent_bytes,
                shipper.bucket,
                f" ({state.error})" if state.error else "",
            )


def _wait_while_sending(shipper: Shipper) -> bool:
    state = shipper.state
    while not (is_done := shipper.wait_unless_failing(_STALLED_S)):
        before, state = state, shipper.state
        sent = state.shipped_bytes + state.sending_bytes
        if state.error or sent == before.shipped_bytes + before.sending_bytes:
            break
    return is_done


def _forget() -> None:
    """Leave all to the parent process: a forked child has none of its threads."""
    global _lock
    _lock = threading.Lock()
    _shippers.clear()
    _resumed.clear()


atexit.register(_finish)
os.register_at_fork(after_in_child=_forget)
