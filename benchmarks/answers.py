"""The Python side of a program that communicates with the runner by lines."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping


def answer_lines(
    counters: Callable[[], Mapping[str, float]],
    commands: Mapping[str, Callable[[], None]] | None = None,
    **ready: object,
) -> None:
    """Print `ready`; then a thread answers each line of input with the counters.

    A line that is a command is carried out before. The end of the input, or an error, ends the
    program. What the answers take is no part of their processor time.
    """

    def serve() -> None:
        try:
            for line in sys.stdin:
                if commands and line.strip():
                    commands[line.strip()]()
                cpu = time.process_time() - time.thread_time()
                print(json.dumps({**counters(), "cpu": cpu}), flush=True)
        except Exception as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)

    threading.Thread(target=serve, daemon=True).start()
    print(json.dumps(ready), flush=True)
