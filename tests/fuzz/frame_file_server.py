"""Runs the process in which HDF5 reads a file, once for each line of arguments, as a fork.

A line is a JSON list of arguments; the answer is one of exit code, stdout, stderr.
"""

import json
import os
import signal
import sys
import tempfile
import traceback

from daqiri_ophyd.engine import _frame_process

# So that inputs which lead HDF5 round in circles do not take long.
_frame_process._PROCESSOR_SECONDS = 5
WALL_SECONDS = 30


def answer(arguments: list[str]) -> tuple[int, str, str]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            signal.alarm(WALL_SECONDS)
            sys.argv[1:] = arguments
            code = 1
            try:
                _frame_process.main()
                sys.stdout.flush()
                code = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        return code, out.read().decode(), err.read().decode()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()
