"""Upload of a device's files to an object store, and the limits of what waits for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from daqiri_ophyd.ship import Shipment, Shipper, StoreError, resume_later, shipper_of

from ..parts._ticker import default_ticker
from ._errors import CaptureError
from ._paths import PathInfo

if TYPE_CHECKING:
    from ._settings import RecordingSettings

__all__ = ["Shipping", "object_folder"]

_log = logging.getLogger(__name__)


def object_folder(ship_to: str, folder: Path, root: str) -> str:
    """Return the address of the objects of files in a folder.

    Parameters
    ----------
    ship_to : str
        Address of the store.
    folder : Path
        Folder of the files, absolute.
    root : str
        Directory of captures, whose place in the store is `ship_to`; empty, or if the folder is not
        below it: the root directory.
    """
    place = folder.resolve()
    base = Path(root).resolve() if root else Path("/")
    below = place.relative_to(base if place.is_relative_to(base) else "/").as_posix()
    return ship_to.rstrip("/") + ("" if below == "." else f"/{below}")


class Shipping:
    """Uploads the files of a device, stage by stage.

    Parameters
    ----------
    device : RecordingSettings
        The device.
    """

    def __init__(self, device: RecordingSettings) -> None:
        self._device = device
        self._shipper: Shipper | None = None
        self._shipments: dict[tuple[Path, str], Shipment] = {}

    def begin(self, place: PathInfo, prefixes: Iterable[str], endings: Iterable[str]) -> None:
        """Write the order for files that are going to be written; again for the same: nothing.

        Parameters
        ----------
        place : PathInfo
            Where they are written.
        prefixes : iterable of str
            First parts of the names: of the files of each queue.
        endings : iterable of str
            Last parts of the names: what follows their numbers.

        Raises
        ------
        CaptureError
            If the store cannot be opened, the order cannot be written, or too much waits already.
        """
        device = self._device
        ship_to = device.ship_to.get()
        if not ship_to:
            return
        folder, prefix = Path(place.directory_path), place.filename
        root = "" if device.daq.path_provider else device.directory.get()
        try:
            shipper = shipper_of(ship_to)
            if self._shipper is not shipper:
                self._shipper = shipper
                if root:
                    resume_later(Path(root).resolve())
            if reason := self.full():
                raise CaptureError(f"{device.name}: {reason}")
            if (folder, prefix) not in self._shipments:
                self._shipments[folder, prefix] = shipper.begin(
                    folder,
                    prefix,
                    object_folder(ship_to, folder, root),
                    keep=device.keep_shipped.get(),
                    files=[f"{p}_{{:06d}}{ending}" for p in prefixes for ending in endings],
                )
        except (StoreError, ValueError, OSError) as error:
            raise CaptureError(f"{device.name}: {device.ship_to.name}: {error}") from error
        default_ticker().add(self._tell)

    def add(self, files: Iterable[Path]) -> None:
        """Upload complete files of places that `begin` was called with; no others."""
        if self._shipper is None:
            return
        shipments = list(self._shipments.values())
        for file in files:
            for shipment in (each for each in shipments if each.has(file)):
                try:
                    self._shipper.add(shipment, file)
                except OSError as error:  # `end` tries again
                    _log.warning("%s: %s is not uploaded yet: %s", self._device.name, file, error)

    def end(self) -> None:
        """Upload the rest; no more files come in this stage."""
        shipments, self._shipments = self._shipments, {}
        if self._shipper is None:
            return
        for shipment in shipments.values():
            try:
                self._shipper.end(shipment)
            except OSError as error:
                _log.warning(
                    "%s: files of %s are not uploaded: %s. `daqiri-ophyd catalog ship` does it.",
                    self._device.name,
                    shipment.path.parent,
                    error,
                )

    def full(self) -> str:
        """Return why no more may be recorded; empty: it may."""
        device = self._device
        if self._shipper is None:
            return ""
        state, why = self._shipper.state, ""
        most_bytes, longest = device.unsent_bytes_limit.get(), device.unsent_age_limit.get()
        if most_bytes and state.unsent_bytes > most_bytes:
            why = f"{state.unsent_bytes:,} bytes are not in {self._shipper.bucket} yet"
            limit = f"{device.unsent_bytes_limit.name} is {most_bytes:,}"
        elif longest and state.oldest_s > longest:
            why = f"a file has waited {state.oldest_s:.0f} s for {self._shipper.bucket}"
            limit = f"{device.unsent_age_limit.name} is {longest:g}"
        else:
            return ""
        return f"{why}, and {limit}{f'; {state.error}' if state.error else ''}"

    def _tell(self) -> None:
        """Update the signals until all is in the store."""
        device = self._device
        if self._shipper is None:
            return
        state, now = self._shipper.state, time.time()
        device.unsent_bytes.update(state.unsent_bytes, now)
        device.unsent_age.update(round(state.oldest_s, 1), now)
        if not state.unsent and not self._shipments:
            default_ticker().remove(self._tell)
            if self._shipments:  # since then
                default_ticker().add(self._tell)
