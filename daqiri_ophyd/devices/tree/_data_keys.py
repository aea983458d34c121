"""Data keys of a device tree: what they belong to, and names that are shortened in them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from daqiri_ophyd.documents import files_column

from ..daq._daq import Daq
from ..parts._base import EngineDevice
from ..recording.packets._columns import CaptureColumns
from ._naming import attribute_name, column_names, require_column, require_own_column

__all__ = ["require_data_keys", "shortened_names"]


@dataclass(frozen=True)
class _Stem:
    """The beginning of data keys."""

    name: str
    complete: str  # with no name shortened
    origin: str  # what has the data keys, such as a queue and its port
    keys: list[str]


def shortened_names(daq: Daq) -> dict[str, str]:
    """Return the beginnings of data keys in which names of the configuration are shortened.

    Parameters
    ----------
    daq : Daq
        Device tree of the configuration; it need not be open.

    Returns
    -------
    dict of str to str
        The beginning in data keys by the complete one, which nothing has.
    """
    return {stem.complete: stem.name for stem in _stems(daq) if stem.name != stem.complete}


def require_data_keys(daq: Daq) -> None:
    """Raise if no catalog can store the data keys of a device tree.

    Raises
    ------
    ValueError
        If a data key is too long, although names in it are shortened, or if two devices have the
        same data key.
    """
    stems = list(_stems(daq))
    longest, origin = max(
        ((key, stem.origin) for stem in stems for key in stem.keys),
        key=lambda column: len(column[0].encode()),
    )
    require_column(
        longest,
        origin,
        "Use shorter names in the configuration, or a shorter name of the device than "
        f"{daq.name!r}.",
    )
    owners: dict[str, str] = {}
    for stem in stems:
        for key in stem.keys:
            require_own_column(key, stem.origin, owners)


def _stems(daq: Daq) -> Iterator[_Stem]:
    """Yield the beginnings of data keys that columns of events may have."""
    for part in (daq, *(part for _, part in daq.walk_subdevices(include_lazy=True))):
        complete = "_".join(filter(None, [daq.name, part.dotted_name.replace(".", "_")]))
        keys = [getattr(part, name).name for name in column_names(type(part))]
        if keys:
            yield _Stem(part.name, complete, _origin(part), keys)
    for port in daq.config.interfaces:
        queues = [queue.name for queue in port.rx.queues]
        if len(queues) > 1:
            yield from _stems_of_queues(daq.port_device(port.name).capture, queues)


def _stems_of_queues(capture: Any, queues: list[str]) -> Iterator[_Stem]:
    """Yield the beginnings of the data keys that a capture of several queues has of each."""
    columns = CaptureColumns(capture.name, capture.port_name, queues, {})
    counters = columns.counter_keys(capture.describe()).keys() - capture.describe().keys()
    complete = "_".join([capture.root.name, capture.dotted_name.replace(".", "_")])
    for queue, name in zip(queues, columns.stems, strict=True):
        yield _Stem(
            name,
            f"{complete}_{attribute_name(queue, 'queue', frozenset())}",
            f"{_origin(capture)}, queue {queue!r} of several",
            [files_column(name), *(key for key in counters if key.startswith(f"{name}_"))],
        )


def _origin(part: Any) -> str:
    """Return what a device represents in the configuration, such as a queue and its port."""
    kinds = {"rx": "queue", "tx": "queue", "flows": "flow", "reorder": "plan", "frames": "plan"}
    kinds |= {"regions": "region", "gpus": "gpu"}
    named, owner = [], part
    while isinstance(owner, EngineDevice):
        if owner.member_name:
            named.append(f"{kinds[owner.parent.attr_name]} {owner.member_name!r}")
        owner = owner.parent
    if part is not owner and part.port_name:
        named.append(f"port {part.port_name!r}")
    return ", ".join(reversed(named)) or part.name
