"""The fix script on a machine that boots by GRUB and systemd: what it says, and what holds."""

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Two boots by emulation, and Python in them.
pytestmark = [pytest.mark.vm, pytest.mark.timeout(2400)]

HERE = Path(__file__).parent
CONFIG = HERE / "host.yaml"
# No fix script sets an address.
NETWORK = """\
[Match]
Name=enp0s5

[Network]
Address=192.168.10.1/24
"""
HUGEPAGES = "/sys/devices/system/node/node{}/hugepages/hugepages-2048kB/nr_hugepages"
WORDS = "isolcpus=2-3 nohz_full=2-3 rcu_nocbs=2-3 rcu_nocb_poll irqaffinity=0-1"
FIXED_NOW = [
    "carrier: enp0s5: switched off",
    "mtu: enp0s5: 1500 B; the configuration's packets need 9000 B",
    "nic-settings: enp0s5: receive ring 256 of 4096",
    "hugepages: NUMA node 0: 0 of 0 pages of 2 MiB free (need 1)",
    "hugepages: NUMA node 1: 0 of 0 pages of 2 MiB free (need 36)",
    "cpu-isolation: irqbalance moves interrupts to 2-3",
]
# What is wrong with the guest and no command of the script fixes.
LEFT = {"clocks", "storage"}


def verdict(name: str) -> str:
    """Return the command that writes what checks and engine say."""
    return shlex.join([sys.executable, str(HERE / "host_verdict.py"), name])


def step(*names: str) -> str:
    """Return the command that runs steps and writes what they print, and their exit status."""
    output = f"fix-{'-'.join(names)}"
    return f"s=0; bash fix.sh {' '.join(names)} >{output} 2>&1 || s=$?; echo $s >>{output}"


FIRST = f"""
cat >/etc/systemd/network/10-detector.network <<'END'
{NETWORK}END
systemctl enable --quiet systemd-networkd
# Enough, and on the wrong node.
echo 37 >{HUGEPAGES.format(0)}
{verdict("wrong-node")}
echo 0 >{HUGEPAGES.format(0)}
{verdict("before")}
daqiri-ophyd host check {CONFIG} --fix-script >fix.sh || test $? = 2
{step("packages")}
{step("now")}
{verdict("after-now")}
{step("lasting", "boot-line")}
"""

SECOND = f"""
systemctl --failed --no-legend --plain >failed
systemctl is-active daqiri-host >unit || true
journalctl -b --no-pager >journal
cp /proc/cmdline cmdline
{verdict("after-boot")}
cp ../boot1/fix.sh .
{step("now", "lasting", "boot-line")}
cp /boot/grub/grub.cfg .
# A setting that does not hold.
echo false >/etc/daqiri-host.d/60-false.sh
systemctl restart daqiri-host || true
systemctl is-active daqiri-host >broken-unit || true
rm /etc/daqiri-host.d/60-false.sh
systemctl restart daqiri-host
systemctl is-active daqiri-host >mended-unit
"""


@pytest.fixture(scope="module")
def said(disk_guest: Any) -> dict[str, str]:
    """What jobs of two boots wrote, by the names of the files."""
    return dict(files_of(disk_guest, FIRST)) | dict(files_of(disk_guest, SECOND))


def files_of(guest: Any, job: str) -> Iterator[tuple[str, str]]:
    for path in guest.boot(job).iterdir():
        yield path.name, path.read_text(errors="replace")


def checks_of(text: str) -> dict[str, list[str]]:
    """Return status and finding of the checks that warn or fail."""
    checks = json.loads(text)["checks"]
    return {name: found for name, found in checks.items() if found[0] in ("warn", "fail")}


def refused(text: str) -> str:
    return json.loads(text)["refused"]


@pytest.mark.parametrize("when", ["wrong-node", "before", "after-now", "after-boot"])
def test_the_engine_opens_what_no_check_fails(said: dict[str, str], when: str) -> None:
    failed = [name for name, (status, _) in checks_of(said[when]).items() if status == "fail"]
    assert bool(failed) == bool(refused(said[when])), (failed, refused(said[when]))


def test_the_engine_names_the_node_that_lacks_pages(said: dict[str, str]) -> None:
    assert checks_of(said["wrong-node"])["hugepages"] == [
        "fail",
        "NUMA node 1: 0 of 0 pages of 2 MiB free (need 36)",
    ]
    assert refused(said["wrong-node"]) == (
        "memory region 'frames': needs 36 hugepages of 2048 KiB on NUMA node 1, and 0 are free "
        f"there; reserve them: echo 36 | sudo tee {HUGEPAGES.format(1)}"
    )


def test_now_fixes_all_but_what_needs_a_boot(said: dict[str, str]) -> None:
    assert said["fix-packages"] == "0\n"
    assert said["fix-now"].splitlines() == [*(f"fixed: {name}" for name in FIXED_NOW), "0"]
    assert checks_of(said["after-now"]).keys() == LEFT | {"cpu-isolation"}


def test_after_the_boot_all_holds(said: dict[str, str]) -> None:
    *_, status = said["fix-lasting-boot-line"].splitlines()
    assert status == "0", said["fix-lasting-boot-line"]
    assert "not fixed" not in said["fix-lasting-boot-line"]
    assert WORDS in said["cmdline"]
    assert checks_of(said["after-boot"]).keys() == LEFT


def test_the_unit_is_one_of_a_sound_boot(said: dict[str, str]) -> None:
    assert said["failed"] == ""
    assert said["unit"] == "active\n"
    assert "ordering cycle" not in said["journal"]


def test_the_unit_fails_with_a_setting_that_does_not_hold(said: dict[str, str]) -> None:
    assert said["broken-unit"] == "failed\n"
    assert said["mended-unit"] == "active\n"


def test_a_second_run_changes_nothing(said: dict[str, str]) -> None:
    *_, status = said["fix-now-lasting-boot-line"].splitlines()
    assert status == "0", said["fix-now-lasting-boot-line"]
    for line in said["grub.cfg"].splitlines():
        words = line.split()
        if words[:1] == ["linux"]:
            assert words.count("isolcpus=2-3") == (0 if "single" in words else 1)
