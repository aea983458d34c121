"""In the guest: asks for changes of its hardware, at the monitor of QEMU."""

import json
import time
from pathlib import Path
from typing import Any

RESULTS = Path("/mnt")
TIMEOUT = 60


def monitor(command: str, **arguments: Any) -> dict[str, Any]:
    """Return the answer to a command of QMP, with ``return`` or ``error``."""
    answer = RESULTS / "monitor.answer"
    partial = RESULTS / "monitor.wish_partial"
    partial.write_text(json.dumps({"execute": command, "arguments": arguments}))
    partial.rename(RESULTS / "monitor.wish")
    end = time.monotonic() + TIMEOUT
    while not answer.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"no answer to {command}")
        time.sleep(0.05)
    said: dict[str, Any] = json.loads(answer.read_text())
    answer.unlink()
    return said
