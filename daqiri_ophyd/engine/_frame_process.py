"""A process in which HDF5 reads or cuts a file that may be broken, so that only it can crash.

``python _frame_process.py examine PATH live|dead FOLDER`` or ``... cut PATH FRAMES FOLDER``, with
the folder of HDF5's filters; prints one JSON object. It imports nothing but the extension, a
quarter of what the engine takes to start.
"""

import json
import resource
import sys

# The package that started it, which may be in no directory that Python searches by itself.
sys.path.insert(0, __file__.rpartition("/daqiri_ophyd/")[0])
from daqiri_ophyd import _native  # noqa: E402

# A broken file may request any amount of memory, or put HDF5 into an endless loop.
_MEMORY = 4 << 30
_PROCESSOR_SECONDS = 60


class RefusedError(Exception):
    """An error of the extension."""


def main() -> None:
    """Run the task of the arguments; report a rejected file with the key ``refused``."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR_SECONDS, resource.RLIM_INFINITY))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = _MEMORY if most == resource.RLIM_INFINITY else min(_MEMORY, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    _native.set_error_classes((RefusedError,) * len(_native.Status))
    task, path, value, folder = sys.argv[1:]
    try:
        if task == "examine":
            answer = _native.examine_frames(path, value == "live")
        else:
            _native.cut_frames(path, int(value), folder)
            answer = {}
    except RefusedError as error:
        answer = {"refused": str(error)}
    except MemoryError:
        answer = {"refused": f"{path} is damaged: reading it needs more than {_MEMORY >> 30} GiB"}
    except UnicodeError as error:
        answer = {"refused": f"{path} is damaged: a name in it is not text ({error})"}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
