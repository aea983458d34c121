"""The packets of a stored run, to be sent again."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bluesky.utils import MsgGenerator

from daqiri_ophyd.catalog import Catalog, find_run, stored_files
from daqiri_ophyd.devices import TxQueue
from daqiri_ophyd.replay import (
    FrameReplay,
    Replay,
    ReplayError,
    frame_plan,
    frame_source,
    replay_source,
)
from daqiri_ophyd.ship import StoredObject

from ._threads import on_thread

__all__ = ["open_source", "plain_options"]

# Options of captured packets that frames do not have.
_OF_PACKETS = ("between", "packet_range", "select", "rewrite")


def plain_options(**options: Any) -> dict[str, Any]:
    """Return the parameters of a replay for the start document, as lists and dicts."""
    plain = {
        name: list(value) if isinstance(value, tuple) else value for name, value in options.items()
    }
    return plain | {name: dict(v) for name, v in plain.items() if isinstance(v, Mapping)}


def open_source(
    tx: TxQueue,
    run: Any,
    catalog: Catalog | Callable[[], Catalog] | None,
    stream: str | None,
    key: str | None,
    options: Mapping[str, Any],
    *,
    compared: bool = False,
) -> MsgGenerator[tuple[Replay | FrameReplay, dict[str, Any]] | None]:
    """Return the packets of a run, and metadata for the run that sends them.

    None in a simulation, which opens no catalog and no file.
    """
    if isinstance(run, str | int) and catalog is None:
        raise ValueError(f"run is {run!r}; give the catalog to look it up in, or the run itself.")

    def open_run() -> tuple[Replay | FrameReplay, str]:
        opened = catalog() if callable(catalog) else catalog
        found: Any = run
        if opened and isinstance(run, str | int):
            found = find_run(opened.client, run)
        if not hasattr(found, "metadata"):
            raise TypeError(
                f"run is a {type(run).__name__}; accepted are a scan id, -1, a uid, and a run from "
                "catalog.client."
            )
        files = stored_files(found, stream=stream, key=key)
        start = found.metadata["start"]
        source: Replay | FrameReplay
        if files[0].suffix == ".h5":
            source = _frames_of(start, files, tx, options)
        else:
            source = replay_source(files, tx.link_type, tx.segment_size, **options)
        if compared and not source.packets:
            raise ReplayError(f"Run {start['uid']} has no packets; there is nothing to compare.")
        return source, start["uid"]

    opened = yield from on_thread(open_run)
    if opened is None:
        return None
    source, uid = opened
    part = {"stream": stream, "key": key, **options, "packets": source.packets}
    return source, {"replay_of": uid, "replay": part}


def _frames_of(
    start: Mapping[str, Any],
    files: Sequence[Path | StoredObject],
    tx: TxQueue,
    options: Mapping[str, Any],
) -> FrameReplay:
    """Return the packets of a run's frames, made by the configuration in its start document."""
    given = dict(options)
    of_packets = [name for name in _OF_PACKETS if given.pop(name) is not None]
    if of_packets:
        raise ReplayError(
            f"{', '.join(of_packets)} is for captured packets; this run has frames, which are sent "
            "whole."
        )
    if tx.segment_size is not None:
        raise ReplayError("Frames are packets of a UDP or an Ethernet port; this port is TCP.")
    plan = frame_plan(files[0])
    for engine in start.get("daqiri", {}).values():
        if plan in _plans_of(config := engine.get("config", {})):
            return frame_source(files, config, tx.link_type, **given)
    raise ReplayError(
        f"The start document of run {start['uid']} has no configuration with reorder plan "
        f"{plan!r}, which makes packets of frames. Plans of this package store it; for others, use "
        "RE.preprocessors.append(engine_metadata_wrapper). Otherwise give it to "
        "daqiri_ophyd.replay.FrameReplay, and send that."
    )


def _plans_of(config: Mapping[str, Any]) -> set[str]:
    """Return the reorder plans of a configuration, as metadata files name them."""
    return {
        f"{interface['name']}/{plan['name']}"
        for interface in config.get("interfaces", ())
        for plan in (interface.get("rx") or {}).get("reorder_configs", ())
    } | {plan["name"] for plan in config.get("reorder_configs", ())}
