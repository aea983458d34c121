"""Check of the frames that a GPU assembles."""

import tempfile
from pathlib import Path
from typing import Any

import typer

from ..engine import DaqiriError
from ._gpu_frames import compared, written_by_cufile
from ._gpu_rates import find_gpu, measured
from ._output import print_error, print_facts, print_json, print_message, print_table

_ROUNDS = 5


def check_gpu(folder: Path, seconds: float, size: float, as_json: bool) -> None:
    """Compare, write and measure frames of the first GPU; exit with 1 if any of it fails."""
    try:
        gpu = find_gpu()
        say = (lambda _: None) if as_json else print_message
        say(f"assembling frames on {gpu['gpu']}, driver of CUDA {gpu['cuda']}")
        frames = [
            {"layout": layout, "memory": kind, "wrong": wrong} for layout, kind, wrong in compared()
        ]
        with tempfile.TemporaryDirectory(dir=folder) as place:
            mode, wrong = written_by_cufile(Path(place))
        cufile = {"mode": mode, "wrong" if mode else "missing": wrong}
    except DaqiriError as error:
        # The error has the exit code of a wrong configuration, but this configuration is ours.
        raise RuntimeError(f"{error}") from error
    say("measuring")
    rates, failed = [], ""
    try:
        rates.extend(measured(seconds, size, _ROUNDS))
    except RuntimeError as error:
        failed = str(error)
    if as_json:
        print_json({"gpu": gpu, "frames": frames, "cufile": cufile, "rates": rates})
    else:
        _print(frames, cufile, rates)
    if failed:
        print_error(failed)
    if failed or any(frame["wrong"] for frame in frames) or cufile.get("wrong"):
        raise typer.Exit(1)


def _print(frames: list[Any], cufile: dict[str, str], rates: list[Any]) -> None:
    print_table(
        ("packets", "frames in", "compared with numpy and the CPU"),
        [(each["layout"], each["memory"], each["wrong"] or "the same") for each in frames],
    )
    said = (
        cufile["wrong"] or f"{cufile['mode']}, read back the same"
        if cufile["mode"]
        else f"not here: {cufile['missing']}"
    )
    print_facts([("cuFile", said)])
    if rates:
        print_table(
            ("packets in the GPU's memory", "B", "GB/s", "copy, GB/s", "share of the copy"),
            [
                (
                    each["conversion"],
                    each["payload"],
                    f"{each['GB/s']:.1f}",
                    f"{each['copy, GB/s']:.1f}",
                    f"{each['share']:.2f} ({each['least']:.2f} to {each['most']:.2f})",
                )
                for each in rates
            ],
        )
