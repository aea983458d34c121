"""Files of remedies, read by the programs that they are for."""

import shutil
import subprocess

import pytest

from daqiri_ophyd.host.checks._files import at_every_boot, grub_words, module_at_boot


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_takes_a_unit(tmp_path):
    commands = ("true --with a=1:f000", "true")
    remedy = at_every_boot("try", "A try", *commands, folder="/bin")
    assert (remedy.now, remedy.note) == (commands, "")
    assert remedy.lasting == ("systemctl enable --now daqiri-try.service",)
    [(path, text)] = remedy.files
    assert path == "/etc/systemd/system/daqiri-try.service"
    unit = tmp_path / "daqiri-try.service"
    unit.write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert "daqiri-try" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


def test_words_for_the_kernel_follow_those_that_are_there(tmp_path):
    path, text = grub_words("try", "isolcpus=2 iommu=pt")
    assert path == "/etc/default/grub.d/daqiri-try.cfg"
    file = tmp_path / "daqiri-try.cfg"
    file.write_text(text)
    script = 'GRUB_CMDLINE_LINUX="quiet splash"; . "$1"; printf %s "$GRUB_CMDLINE_LINUX"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", file], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "quiet splash isolcpus=2 iommu=pt"


def test_a_module_stands_alone_in_its_file():
    assert module_at_boot("nvidia-peermem") == (
        "/etc/modules-load.d/daqiri-nvidia-peermem.conf",
        "nvidia-peermem\n",
    )
