"""What recorded files report about their run and their detector."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ._sidecar import sidecar_path, write_sidecar

__all__ = ["SAMPLE_QUERY", "add_run", "run_metadata"]

_OF_DETECTOR = ("count_time", "x_pixel_size", "y_pixel_size", "distance")
# Names that facilities use for the same, in the order of precedence.
_EXPERIMENT = ("experiment_identifier", "proposal_id", "proposal")
_SAMPLE = ("sample", "sample_name")
_NAME = ("name", "sample_name", "sample_id")
SAMPLE_QUERY = " || ".join(
    f"start.{key}{part}" for key in _SAMPLE for part in (*(f".{name}" for name in _NAME), "")
)
"""JMESPath of the sample in the metadata of a stored run, as `run_metadata` has it."""


def run_metadata(start: Mapping[str, Any] | None, detector: str) -> dict[str, str | int | float]:
    """Return what the files of a detector report about a run.

    Parameters
    ----------
    start : mapping or None
        Start document of the run; None: not known.
    detector : str
        Name of the detector. ``start["detector_metadata"][detector]`` may have ``count_time`` (s),
        ``x_pixel_size``, ``y_pixel_size`` and ``distance`` (m).

    Returns
    -------
    dict
        Keys are those of `daqiri_ophyd.engine.Recorder.describe`.
    """
    found: dict[str, str | int | float] = {"detector": detector}
    if start is None:
        return found
    found["uid"] = str(start["uid"])
    scan_id, plan = start.get("scan_id"), str(start.get("plan_name", ""))
    name = plan if scan_id is None else f"scan {scan_id} {plan}".rstrip()
    if type(scan_id) is int and 0 <= scan_id < 2**63:
        found["scan_id"] = scan_id
    experiment = next((start[key] for key in _EXPERIMENT if start.get(key)), "")
    texts = {
        "plan_name": plan,
        "start_time": _iso(start.get("time")),
        "title": str(start.get("title") or name),
        "sample": _sample(next((start[key] for key in _SAMPLE if start.get(key)), None)),
        "experiment_identifier": _text(experiment),
    }
    found |= {key: text for key, text in texts.items() if text}
    described = start.get("detector_metadata")
    of_detector = described.get(detector) if isinstance(described, Mapping) else None
    if isinstance(of_detector, Mapping):
        found |= {
            key: float(of_detector[key]) for key in _OF_DETECTOR if _is_number(of_detector.get(key))
        }
    return found


def add_run(path: Path, metadata: Mapping[str, str | int | float]) -> None:
    """Add a run and a detector to the metadata file of a complete file, which has no run.

    Parameters
    ----------
    path : Path
        The file of packets or frames.
    metadata : mapping
        As `run_metadata` returns it.

    Raises
    ------
    OSError, ValueError
        If there is no valid metadata file, or it cannot be written.
    """
    content = json.loads(sidecar_path(path).read_bytes())
    detector = {key: metadata[key] for key in _OF_DETECTOR if key in metadata}
    run = {k: v for k, v in metadata.items() if k != "detector" and k not in detector}
    content |= {"run": run, "detector": {"name": metadata["detector"], **detector}}
    write_sidecar(path, content)


def _iso(time: Any) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat() if _is_number(time) else ""


def _sample(value: Any) -> str:
    if isinstance(value, Mapping):
        return _text(next((value[key] for key in _NAME if value.get(key)), value))
    return _text(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)
