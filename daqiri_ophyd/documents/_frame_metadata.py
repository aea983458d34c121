"""Metadata of a file of frames."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daqiri_ophyd.engine import (
    FrameFile,
    ReorderConfig,
    cut_frames,
    examine_frames,
    find_plan,
    load_config,
)

from ._repair import is_written, logged, require_no_links
from ._sidecar import SidecarError, read_sidecar, sidecar_part, sidecar_path, write_sidecar

__all__ = ["frame_facts", "keep_frames", "recorded_plan"]


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


def recorded_plan(facts: Mapping[str, Any], path: Path) -> ReorderConfig | None:
    """Return the reorder plan that made a file's frames, in its mode; None: unknown.

    Raises ValueError if the mode is none of the plan.
    """
    if not (text := facts.get("configuration")):
        return None
    config, name = load_config(text), facts.get("reorder_plan", "")
    # Files that a killed recorder left have only the plan's own name.
    labels = [name, *(f"{interface.name}/{name}" for interface in config.interfaces)]
    found = next((plan for label in labels if (plan := find_plan(config, label))), None)
    if found is None:
        return None
    plan, mode = found[0], facts.get("mode", "")
    if mode and mode not in plan.modes:
        raise ValueError(
            f"{sidecar_path(path)}: its mode is {mode!r}, and plan {name!r} of its configuration "
            f"has {', '.join(map(repr, plan.modes)) or 'none'}."
        )
    return plan.modes[mode] if mode else plan


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
