"""Uploads to object stores, with their progress."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._output import messages, print_error, print_line

if TYPE_CHECKING:
    from ..ship import Shipper

__all__ = ["ship_orders", "wait_for_uploads"]

# Without an upload for this time, s, while the store fails, a command ends.
_PATIENCE_S = 30.0


def ship_orders(folder: Path, *, as_json: bool) -> dict[str, Any]:
    """
    Upload what is left below a folder; print a line for each store, unless ``as_json`` is set.

    Returns
    -------
    dict
        ``stores``: ``shipped``, ``shipped_bytes``, ``unsent``, ``unsent_bytes`` by address;
        ``problems``: why files are not in a store.
    """
    stores: dict[str, dict[str, Any]] = {}
    if not folder.is_dir():
        return {"stores": stores, "problems": []}
    from ..ship import Shipper, resume

    own: dict[str, Shipper] = {}

    def shipper_for(address: str) -> Shipper:
        from ..ship import split_address

        bucket, _ = split_address(address)
        if bucket not in own:
            own[bucket] = Shipper(bucket)
        return own[bucket]

    shipments, problems = resume(folder, shipper_for)
    result: dict[str, Any] = {"stores": stores, "problems": problems}
    try:
        with show_uploads(lambda: list(own.values())):
            for shipper in own.values():
                _wait(shipper)
    finally:
        for shipper in own.values():
            shipper.close()
    for bucket, shipper in own.items():
        state = shipper.state
        names = ("shipped", "shipped_bytes", "unsent", "unsent_bytes")
        stores[bucket] = {name: getattr(state, name) for name in names}
        if state.unsent:
            problems.append(_left(shipper))
        if not as_json:
            files = "1 file" if state.shipped == 1 else f"{state.shipped:,} files"
            print_line(f"{bucket}: {files}, {size_text(state.shipped_bytes)}")
    for shipment in shipments:
        problems += [
            f"{file} is not complete, and not uploaded; `daqiri-ophyd catalog recover` completes it"
            for file in shipment.incomplete
        ]
    if not own and not problems and not as_json:
        print_line("no file waits for an object store")
    for problem in problems:
        print_error(problem)
    return result


def _wait(shipper: "Shipper") -> None:
    """Wait for the uploads; return when the store has failed for long."""
    last, since = -1, time.monotonic()
    while not shipper.wait(0.2):
        state = shipper.state
        sent = state.shipped_bytes + state.sending_bytes
        if sent != last or not state.error:
            last, since = sent, time.monotonic()
        elif time.monotonic() - since > _PATIENCE_S:
            return


def wait_for_uploads() -> list[str]:
    """Wait for the uploads of this process; return why files are not in a store."""
    if "daqiri_ophyd.ship" not in sys.modules:
        return []
    from ..ship import shippers

    found = shippers()
    problems = []
    try:
        with show_uploads(shippers):
            for shipper in found:
                _wait(shipper)
    finally:
        for shipper in found:
            shipper.close()
    for shipper in found:
        if shipper.state.unsent:
            problems.append(f"{_left(shipper)}; `daqiri-ophyd catalog ship` uploads them")
    return problems


def _left(shipper: "Shipper") -> str:
    state = shipper.state
    files = "1 file is" if state.unsent == 1 else f"{state.unsent:,} files are"
    reason = f" ({state.error.rstrip('.')})" if state.error else ""
    return f"{files} not in {shipper.bucket}, {size_text(state.unsent_bytes)}{reason}"


@contextmanager
def show_uploads(shippers: Callable[[], list["Shipper"]]) -> Iterator[None]:
    """Show a bar for each store on stderr if it is a terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from ._capture_progress import shown_live

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("{task.fields[files]} {task.fields[error]}"),
        console=messages,
        auto_refresh=False,
    )
    tasks: dict[str, Any] = {}

    def bars() -> Progress:
        for shipper in shippers():
            state = shipper.state
            if shipper.bucket not in tasks:
                tasks[shipper.bucket] = bar.add_task(shipper.bucket, files="", error="")
            bar.update(
                tasks[shipper.bucket],
                total=state.shipped_bytes + state.unsent_bytes,
                completed=state.shipped_bytes + state.sending_bytes,
                files=f"{state.shipped} of {state.shipped + state.unsent} files",
                error=state.error,
            )
        return bar

    with shown_live(bars):
        yield


def size_text(size: int) -> str:
    """Return a number of bytes with three digits and its unit."""
    value, units = float(size), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"
