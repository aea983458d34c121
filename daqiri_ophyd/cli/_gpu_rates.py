"""Rates of the kernel of plans on a GPU, as a program of the wheel measures them."""

import json
import statistics
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PAYLOADS = (8192, 1024)
TYPES = {
    "same": "as they are",
    "int16": "int16, big-endian, to fp32",
    "int4": "int4 to fp32",
}
OFFSET = 42


def _program() -> Path:
    # Beside the extension, which is elsewhere than this package in an editable installation.
    extension = find_spec("daqiri_ophyd._native")
    if extension is None or extension.origin is None:
        raise RuntimeError("the extension of daqiri_ophyd is not installed")
    return Path(extension.origin).with_name("bench_gpu")


def _answers(lines: list[str]) -> list[dict[str, Any]]:
    """Return what the program says when it is ready, and its answer to each line.

    Raises
    ------
    RuntimeError
        If there is no GPU, or what the program says when it fails.
    """
    done = subprocess.run(
        [_program()], input="".join(f"{line}\n" for line in lines), capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"bench_gpu ended with {done.returncode}")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if "missing" in answers[0]:
        raise RuntimeError(answers[0]["missing"])
    return answers


def find_gpu() -> dict[str, str]:
    """Return name and CUDA version of the GPU; `RuntimeError` says why there is none."""
    return _answers([])[0]


def measured(seconds: float, size: float, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the rate of each conversion and length, and its share of a copy of as many bytes.

    Rates count bytes that are read and written, GB/s; `RuntimeError` tells of a wrong frame, too.
    """
    for types, name in TYPES.items():
        for payload in PAYLOADS:
            packets = max(1, int(size) // payload // (4 if types == "int4" else 1))
            setup = f"{types} {payload} {packets} {OFFSET} device {seconds}"
            _, *answers = _answers([f"ours {setup}", f"copy {setup}"] * rounds)
            rates = [each["bytes"] / each["ns"] for each in answers]
            shares = [ours / copy for ours, copy in zip(rates[::2], rates[1::2], strict=True)]
            yield {
                "conversion": name,
                "payload": payload,
                "GB/s": statistics.median(rates[::2]),
                "copy, GB/s": statistics.median(rates[1::2]),
                "share": statistics.median(shares),
                "least": min(shares),
                "most": max(shares),
            }
