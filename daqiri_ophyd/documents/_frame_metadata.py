"""Metadata of a file of frames."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daqiri_ophyd.engine import (
    ConfigError,
    FrameFile,
    NetworkConfig,
    ReorderConfig,
    cut_frames,
    examine_frames,
    find_plan,
    load_config,
)

from ._repair import is_written, logged, require_no_links
from ._sidecar import SidecarError, read_sidecar, sidecar_part, sidecar_path, write_sidecar

_WAY = (
    "If it is a metadata file that was edited, correct or remove it: what it has to tell is read "
    "from the frames then."
)

__all__ = ["frame_facts", "keep_frames", "recorded_plan", "told_by_frames"]


def frame_facts(frames: FrameFile) -> dict[str, Any]:
    """Return the values that are in a file and in its metadata."""
    return {
        "frames": frames.frames,
        "packets": frames.packets,
        "missing": frames.missing,
        "bytes": frames.frames * frames.frame_bytes,
        "t_first_ns": frames.t_first_ns,
        "t_last_ns": frames.t_last_ns,
    }


def told_by_frames(path: Path) -> dict[str, Any]:
    """Return what a file has of its metadata, which a killed recorder does not write.

    Of the reorder plan, it has only the own name.
    """
    found = examine_frames(path)
    told: dict[str, Any] = {"run": found.run, "detector": found.detector}
    told["configuration"] = found.configuration
    if found.mode:
        told["mode"] = found.mode
    return {**told, **frame_facts(found)}


def recorded_plan(facts: Mapping[str, Any], path: Path, group: str) -> ReorderConfig | None:
    """Return the reorder plan that made a file's frames, in its mode; None: unknown.

    Parameters
    ----------
    facts : mapping
        What its metadata file has, or the file.
    path : Path
        The file.
    group : str
        Group of its frames, by which the plan is known if the facts do not name it.

    Raises
    ------
    SidecarError
        If what the metadata file has is no configuration, or there is no such mode.
    """
    where = _told_by(path)
    for key in ("configuration", "reorder_plan", "mode"):
        if not isinstance(facts.get(key, ""), str):
            raise SidecarError(
                f"{where}: its {key!r} is {facts[key]!r}; accepted are texts. {_WAY}"
            )
    if not (text := facts.get("configuration")):
        return None
    try:
        config = load_config(text if "\n" in text else f"{text}\n")  # never a path
    except (ConfigError, TypeError) as error:
        why = error if isinstance(error, ConfigError) else "it is no Unicode text"
        raise SidecarError(f"{where}: its configuration cannot be read: {why}. {_WAY}") from error
    plan = _plan_of(config, facts.get("reorder_plan"), group)
    mode = facts.get("mode", "")
    if plan is None or not mode:
        return plan
    if mode not in plan.modes:
        raise SidecarError(
            f"{where}: its mode is {mode!r}, and plan {plan.name!r} of its configuration has "
            f"{', '.join(map(repr, plan.modes)) or 'none'}. {_WAY}"
        )
    return plan.modes[mode]


def _plan_of(config: NetworkConfig, label: str | None, group: str) -> ReorderConfig | None:
    if label is not None:
        found = find_plan(config, label)
        return None if found is None else found[0]
    # Of several interfaces, each may have a plan of that name.
    plans = [plan for each in config.interfaces for plan in each.rx.reorder_configs]
    named = [p for p in (*plans, *config.reorder_configs) if p.name.replace("/", "_") == group]
    return named[0] if len(named) == 1 else None


def _told_by(path: Path) -> Path:
    """Return the file that has the facts: a killed recorder leaves no metadata file."""
    sidecar = sidecar_path(path)
    return sidecar if sidecar.exists() else path


def keep_frames(path: Path, frames: int, reason: str) -> int:
    """Cut a file to its first frames and correct its metadata, if it has more frames.

    The repair is logged in ``FILE.repair.jsonl``. If a part of it fails, nothing is changed.

    Parameters
    ----------
    path : Path
        The file; no process may be writing it.
    frames : int
        Frames to keep.
    reason : str
        Why the others are cut off, for the log.

    Returns
    -------
    int
        Frames that were cut off; the metadata counts them as left out.

    Raises
    ------
    daqiri_ophyd.engine.InvalidParameterError
        If it cannot be read or changed; the message names the file.
    OSError, ValueError
        If a recorder is writing it, or its metadata cannot be read or written.
    """
    if is_written(path):
        raise ValueError(f"{path} is being written by a recorder; stop the recorder first")
    surplus = examine_frames(path).frames - frames
    if surplus <= 0:
        return 0
    content = _metadata(path, surplus)
    require_no_links(path)
    if content is not None and (part := sidecar_part(path)).exists():
        raise ValueError(
            f"{part} exists: its recorder was killed, or another process is repairing {path}"
        )
    if is_written(path):
        raise ValueError(f"{path} is being written by a recorder; stop the recorder first")
    entry = {"file": str(path), "frames_kept": frames, "frames_cut": surplus, "reason": reason}
    with logged(path, entry):
        cut_frames(path, frames)
    if content is not None:
        write_sidecar(path, content | frame_facts(examine_frames(path)))
    return surplus


def _metadata(path: Path, surplus: int) -> dict[str, Any] | None:
    """Return the metadata of a file after ``surplus`` of its frames are left out."""
    if read_sidecar(path) is None:
        return None
    name = sidecar_path(path)
    content = json.loads(name.read_bytes())
    reasons = content.get("left_out_by_reason", {})
    counts = [content.get("left_out", 0), *(reasons.values() if isinstance(reasons, dict) else [])]
    if not isinstance(reasons, dict) or any(type(count) is not int for count in counts):
        raise SidecarError(f"{name}: left_out and left_out_by_reason are not counts")
    content["left_out"] = counts[0] + surplus
    content["left_out_by_reason"] = reasons | {"rewound": reasons.get("rewound", 0) + surplus}
    return content
