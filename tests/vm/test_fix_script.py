"""The fix script on a machine that boots by GRUB and systemd: what it says, and what holds."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.vm, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent
CONFIG = HERE / "host.yaml"
# Up and with an address, as the settings of a network service say: no fix script does that.
NETWORK = """\
[Match]
Name=enp0s5

[Network]
Address=192.168.10.1/24
ConfigureWithoutCarrier=yes
"""


def verdict(name: str) -> str:
    """Return the command that writes what checks and engine say."""
    return shlex.join([sys.executable, str(HERE / "host_verdict.py"), name])


def step(*names: str) -> str:
    """Return commands that run steps and write what they print, and their exit status."""
    output = f"fix-{'-'.join(names)}"
    return f'bash /root/fix.sh {" ".join(names)} >{output} 2>&1 || echo "exit status $?" >>{output}'


FIRST = f"""
cat >/etc/systemd/network/10-detector.network <<'END'
{NETWORK}END
systemctl enable --quiet systemd-networkd
{verdict("before")}
daqiri-ophyd host check {CONFIG} --fix-script >/root/fix.sh || true
cp /root/fix.sh .
{step()}
{step("packages")}
{step("now")}
{verdict("after-now")}
{step("lasting")}
{step("boot-line")}
"""

SECOND = f"""
systemctl --failed --no-legend >failed
systemctl show -p ActiveState,Result daqiri-host >unit
journalctl -b --no-pager | grep -i -e 'ordering cycle' -e daqiri >journal || true
cp /proc/cmdline .
{verdict("booted")}
{step("now", "lasting", "boot-line")}
{verdict("again")}
ls /etc/daqiri-host.d >files
"""


def lines_of(text: str, beginning: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(beginning)]


@pytest.fixture(scope="module")
def said(disk_guest) -> dict[str, Any]:
    """What was found: as installed, after `now`, and after the boot that follows."""
    disk_guest.boot(FIRST)
    names = ["fix.sh", "fix-", "fix-packages", "fix-now", "fix-lasting", "fix-boot-line"]
    found: dict[str, Any] = {name: disk_guest.read(name) for name in names}
    found |= {name: json.loads(disk_guest.read(name)) for name in ("before", "after-now")}
    disk_guest.boot(SECOND)
    names = ["failed", "unit", "journal", "cmdline", "files", "fix-now-lasting-boot-line"]
    found |= {name: disk_guest.read(name) for name in names}
    found |= {name: json.loads(disk_guest.read(name)) for name in ("booted", "again")}
    return found


def test_everything(said):
    for name, text in said.items():
        print(f"==== {name}\n{text if isinstance(text, str) else json.dumps(text, indent=1)}")
