"""The Python side of a program that the runner speaks to by lines."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping


def answer_lines(counters: Callable[[], Mapping[str, float]], **ready: object) -> None:
    """Print `ready`; then answer each line of input with the counters, from a thread of its own.

    The end of the input ends the program.
    """

    def serve() -> None:
        for _ in sys.stdin:
            print(json.dumps({**counters(), "cpu": time.process_time()}), flush=True)
        os._exit(0)

    threading.Thread(target=serve, daemon=True).start()
    print(json.dumps(ready), flush=True)
