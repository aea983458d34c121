"""``daqiri-ophyd frames correct``."""

from pathlib import Path

import typer

from ..documents import Correction, is_master, read_sidecar_content, write_corrected
from ..engine import DaqiriError
from ._frames_master import reason_of
from ._output import print_error, print_json, print_line

__all__ = ["correct_frames"]


def correct_frames(
    file: Path, output: Path | None, references: dict[str, str], fill: float, as_json: bool
) -> None:
    """Write a file of corrected frames, and print what was applied."""
    try:
        if references and not is_master(file):
            correction = Correction(**references, fill=fill)
        else:
            correction = Correction.of_master(file, replaced=references, fill=fill)
        path = write_corrected(file, correction, output)
    except (OSError, DaqiriError, ValueError, TypeError) as error:
        print_error(reason_of(error))
        raise typer.Exit(1) from None
    frames = read_sidecar_content(path)["frames"]
    masked = int(correction.masked.sum())
    if as_json:
        applied = list(correction.references)
        print_json({str(path): {"frames": frames, "applied": applied, "masked": masked}})
        return
    applied = ", ".join(correction.references)
    print_line(f"{path}: {frames:,} frames, {masked:,} pixels masked; applied: {applied}")
