"""RunEngine, data folder and environment.

A startup collection for IPython (copy the files into the startup folder of a profile), for the
queue server, and for blueapi (``daqiri_ophyd.profiles.blueapi``). The how-to guide "Run from a
queue" has the commands.

Environment:

    DAQIRI_CONFIG    configuration of the engine; default: the loopback profile
    DAQIRI_DATA      folder for captures, catalog and metadata; default: ~/daqiri
    DAQIRI_CATALOG   address of a Tiled server; default: the catalog in the data folder

Metadata in ``RE.md`` is kept in the data folder, and scan ids continue from the last session. This
works for one session at a time; give each other session its own data folder.

Files can be run again in a session, such as ``%run -i 05-daq.py`` after a change. The RunEngine and
the catalog are kept then, and the engine is replaced.
"""

import os
from pathlib import Path

from bluesky import RunEngine

from daqiri_ophyd.plans import WaitForPlan

data = Path(os.environ.get("DAQIRI_DATA", "~/daqiri")).expanduser()

if not isinstance(globals().get("RE"), RunEngine):
    RE = RunEngine(during_task=WaitForPlan())
