"""A process that uploads what is left below a folder, until it is killed or done."""

import sys
from pathlib import Path

from daqiri_ophyd.ship import resume, shippers

problems = resume(Path(sys.argv[1]))[1]
assert not problems, problems
for shipper in shippers():
    shipper.wait()
