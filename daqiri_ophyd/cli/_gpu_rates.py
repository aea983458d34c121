"""Rates of the kernel of plans on a GPU, measured by a program in the wheel."""

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
    # Next to the extension, which is outside this package in an editable installation.
    extension = find_spec("daqiri_ophyd._native")
    if extension is None or extension.origin is None:
        raise RuntimeError("the extension of daqiri_ophyd is not installed")
    return Path(extension.origin).with_name("bench_gpu")


def _answers(lines: list[str]) -> list[dict[str, Any]]:
    """Return the program's first output, when it is ready, and its answer to each line.

    Raises
    ------
    RuntimeError
        If there is no GPU or the program fails; the message is the program's.
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
    """Return name and CUDA version of the GPU; `RuntimeError` has the reason if there is none."""
    return _answers([])[0]


def measured(seconds: float, size: float, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the rate of each conversion and length, and its ratio to a copy of the same size.

    Rates count bytes read and written, GB/s. A wrong frame raises `RuntimeError`, too.
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
