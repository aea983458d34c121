"""The fix script as printed by the command: it runs as root, with untrusted text from a host."""

import pytest

from daqiri_ophyd.cli import _main
from daqiri_ophyd.host import Facts, Finding, Remedy, Report, Result, Status, fix_script


@pytest.fixture
def printed(capsys):
    """Return what a command about a host prints: on stdout, and on stderr."""

    def printed(*arguments):
        _main._run(["host", *map(str, arguments)])
        return capsys.readouterr()

    return printed


@pytest.mark.parametrize("bus", ["ab", "cd", "a", "b1"])
@pytest.mark.parametrize("arguments", [["--fix-script"], ["--details"]])
def test_a_pci_address_is_no_emoji(make_host, printed, bus, arguments):
    address = f"0000:{bus:0>2}:00.0"
    nic = {"path": f"pci0000:00/{address}", "ids": "15b3:1021", "kind": "0200"}
    root = make_host({"pci": [nic]})
    shown = printed("check", "--root", root, "--only", "pcie-read-request", *arguments)
    assert f"setpci -s {address} CAP_EXP+8.w=5000:f000" in shown.out
    assert (shown.out + shown.err).isascii()


def test_messages_have_no_emoji_either(printed, tmp_path):
    shown = printed("check", "--root", tmp_path, "--only", "0000:ab:00.0")
    assert "0000:ab:00.0" in shown.err


def test_names_do_not_speak_to_the_terminal():
    script = fix_script(Report("generic", {"name": "a\x1b[2Jb\nreboot"}, []))
    assert "# Fixes for a\\x1b[2Jb reboot, from" in script


EVIL = [
    'x:y:z", RUN+="reboot',
    "a:b:c\nEND_OF_FILE\ntouch /tmp/x\ncat <<END_OF_FILE",
    "0000:01:00.0\n",
    "0000:01:00.0;reboot",
    "$(reboot)::",
    "٠٠٠٠:٠١:٠٠.٠",
]


@pytest.mark.parametrize("name", EVIL)
def test_only_an_address_is_taken_for_one(make_host, name):
    folder = f"/sys/devices/{name}"
    root = make_host(
        {
            "files": {f"{folder}/each/model": "drive", "/sys/class/net/eth0/mtu": "1500"},
            "links": {
                "/sys/class/net/eth0/device": f"{folder}/each",
                "/sys/class/infiniband/mlx5_0": f"{folder}/each",
                "/sys/class/nvme/nvme0": f"{folder}/each",
                f"/sys/bus/pci/devices/{name}": folder,
            },
        }
    )
    facts = Facts(root)
    assert facts.interfaces["eth0"].pci_address == ""
    assert [device.pci_address for device in facts.rdma] == [""]
    assert list(facts.drives) == [""]
    assert not facts.pci


@pytest.mark.parametrize("text", ["a\nEND_OF_FILE\nreboot\n", "END_OF_FILE\n", "no line end"])
def test_a_file_that_would_end_early_is_refused(text):
    finding = Finding(Status.WARN, "wrong", "", Remedy(files=(("/etc/a", text),)))
    report = Report("generic", {}, [Result("try", "a try", "right", "Why.", (finding,))])
    with pytest.raises(ValueError, match="/etc/a: the script cannot hold"):
        fix_script(report)
