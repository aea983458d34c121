"""In the guest: what the checks find for host.yaml, and what the engine does with it, as JSON."""

import json
import sys
from pathlib import Path

from daqiri_ophyd.engine import DaqiriError, Engine, load_config
from daqiri_ophyd.host import check_host

config = load_config(Path(__file__).with_name("host.yaml"))
report = check_host(config.to_dict())
try:
    Engine.open(config).close()
    refused = ""
except DaqiriError as error:
    refused = str(error)
verdict = {
    "checks": {result.check: [str(result.status), result.found] for result in report.results},
    "refused": refused,
}
Path(sys.argv[1]).write_text(json.dumps(verdict))
