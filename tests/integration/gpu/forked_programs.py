"""Runs Python programs, each in a process that is forked with the engine imported.

A line of standard input is one: its code, files for what it prints and for its errors, and
variables of its environment. The answer is its exit code.
"""

import json
import os
import sys

import numpy as np  # noqa: F401

import daqiri_ophyd.engine.frames  # noqa: F401


def run(program: str, printed: str, errors: str, environment: dict[str, str]) -> None:
    for number, path in enumerate((os.devnull, printed, errors)):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    os.environ.update(environment)
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})


for line in sys.stdin:
    child = os.fork()
    if child == 0:
        run(*json.loads(line))
        break  # and end as any interpreter does
    sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
    sys.stdout.flush()
