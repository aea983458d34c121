"""Files of remedies, read by the programs that they are for; and the script that writes them."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from daqiri_ophyd.host import Remedy, Report, Result, Status, Step, fix_script
from daqiri_ophyd.host._finding import Finding
from daqiri_ophyd.host.checks._files import at_every_boot, module_at_boot


def report(*remedies, check="try"):
    """Return a report with a warning for each remedy."""
    findings = tuple(Finding(Status.WARN, "wrong", f"no. {n}", r) for n, r in enumerate(remedies))
    return Report("generic", {"name": "host"}, [Result(check, "a try", "right", "Why.", findings)])


AS_ROOT = "id() { echo 0; }\n"


def run(script, *steps, path="/usr/sbin:/usr/bin:/sbin:/bin", root=None, head=""):
    """Run a script as if by root; `root`: a folder in place of /etc and /boot."""
    for folder in ("/etc/", "/boot/") if root else ():
        script = re.sub(rf"(?<![\w$]){folder}", f"{root}{folder}", script)
    return subprocess.run(
        ["/bin/bash", "-c", AS_ROOT + head + script, "fix.sh", *steps],
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=50,
    )


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path):
    unit = tmp_path / "daqiri-host.service"
    unit.write_text(
        dict(at_every_boot(10, "try", "true").files)[f"/etc/systemd/system/{unit.name}"]
    )
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert "daqiri-host" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


# The program that receives; at boot it is to start on a host that is ready.
CAPTURE = """\
[Unit]
After=daqiri-host.service
[Service]
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
"""


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_services_of_the_boot_can_be_ordered_after_the_unit(tmp_path):
    path = "/etc/systemd/system/daqiri-host.service"
    units = {
        "daqiri-host.service": dict(at_every_boot(10, "try", "true").files)[path],
        "capture.service": CAPTURE,
    }
    wants = tmp_path / "multi-user.target.wants"
    wants.mkdir()
    for name, text in units.items():
        assert "WantedBy=multi-user.target" in text
        (tmp_path / name).write_text(text)
        (wants / name).symlink_to(f"../{name}")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "multi-user.target"],
        # The colon adds systemd's own folders.
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert "cycle" not in done.stderr, done.stderr


@pytest.fixture
def at_boot(tmp_path):
    """Return a function that does what the unit does after a boot, with some files."""

    def at_boot(*remedies):
        folder = tmp_path / "daqiri-host.d"
        folder.mkdir()
        for remedy in remedies:
            path, text = remedy.files[0]
            (folder / os.path.basename(path)).write_text(text)
        unit = dict(remedies[0].files)["/etc/systemd/system/daqiri-host.service"]
        [command] = re.findall(r"^ExecStart=/bin/sh -c '(.+)'$", unit, re.MULTILINE)
        command = command.replace("$$", "$").replace("/etc/daqiri-host.d", str(folder))
        return subprocess.run(
            ["/bin/sh", "-c", command], capture_output=True, text=True, timeout=50
        )

    return at_boot


def test_one_unit_runs_all_in_order(at_boot):
    last, first = at_every_boot(31, "b", "echo clocks"), at_every_boot(30, "a", "echo persistence")
    assert last.files[1:] == first.files[1:]
    done = at_boot(last, first)
    assert (done.returncode, done.stdout) == (0, "persistence\nclocks\n")


@pytest.mark.parametrize("commands", [("false",), ("false", "echo not here")])
def test_what_fails_at_boot_fails_the_unit_and_not_the_rest(at_boot, commands):
    done = at_boot(at_every_boot(10, "a", *commands), at_every_boot(20, "b", "echo rest"))
    assert (done.returncode, done.stdout) == (1, "rest\n")


def test_the_unit_fails_where_a_setting_did_not_hold(at_boot):
    done = at_boot(at_every_boot(10, "a", "true", verify=("! true",)))
    assert done.returncode == 1


def test_a_module_stands_alone_in_its_file():
    assert module_at_boot("nvidia-peermem") == (
        "/etc/modules-load.d/daqiri-nvidia-peermem.conf",
        "nvidia-peermem\n",
    )


# The script

BOOT_LINE = Remedy(step=Step.BOOT_LINE, kernel_line="isolcpus=2 nohz_full=2")
ALL = (
    Remedy(now=("echo at once",), verify=("true",)),
    Remedy(files=(("/etc/daqiri.conf", "a setting\n"),), lasting=("echo for ever",)),
    BOOT_LINE,
    Remedy(step=Step.IOMMU, kernel_line="iommu=pt"),
    Remedy(step=Step.FIRMWARE, lasting=("echo firmware",), verify_lasting=("false",)),
    Remedy(step=Step.DPU_MODE, lasting=("echo mode",)),
)


def test_each_step_does_what_it_announces_and_no_more(tmp_path):
    (tmp_path / "etc").mkdir()
    script = fix_script(report(*ALL))
    for step, said in {
        "now": "at once\nfixed: try: no. 0: wrong\n",
        "lasting": "for ever\nfixed: try: no. 1: wrong\n",
        "dpu-mode": "mode\n",
    }.items():
        done = run(script, step, root=tmp_path)
        assert (done.returncode, done.stdout) == (0, said), done.stderr
        assert (tmp_path / "etc/daqiri.conf").exists() is (step != "now")
    assert not (tmp_path / "etc/default").exists()


def test_a_step_that_did_not_work_is_reported(tmp_path):
    done = run(fix_script(report(*ALL)), "firmware", root=tmp_path)
    assert (done.returncode, done.stdout) == (1, "firmware\n")
    assert "not fixed: try: no. 4: wrong (false)" in done.stderr


def test_several_steps_may_be_named(tmp_path):
    done = run(fix_script(report(*ALL)), "now", "dpu-mode", root=tmp_path)
    assert done.stdout == "at once\nfixed: try: no. 0: wrong\nmode\n"
    done = run(fix_script(report(*ALL)), "now", "everything", root=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "steps: now lasting boot-line iommu firmware dpu-mode" in done.stderr


def test_users_other_than_root_are_told_before_anything_runs(tmp_path):
    head = "id() { echo 1000; }\n"
    done = run(fix_script(report(*ALL)), "now", "lasting", root=tmp_path, head=head)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "not run as root: sudo bash fix.sh now lasting\n"
    assert not list(tmp_path.iterdir())


def test_steps_without_content_are_not_offered():
    script = fix_script(report(Remedy(now=("true",))))
    assert "firmware" not in script and "iommu" not in script and "kernel" not in script
    assert run(script, "firmware").returncode == 2


def test_notes_are_given_once():
    note = "Mind the gap."
    script = fix_script(report(*(Remedy(now=(f"echo {n}",), note=note) for n in range(3))))
    assert script.count(note) == 1


def test_the_script_is_sound(tmp_path):
    file = tmp_path / "fix.sh"
    file.write_text(fix_script(report(*ALL)))
    subprocess.run(["bash", "-n", file], check=True, timeout=20)
    subprocess.run(["shellcheck", "--severity=warning", file], check=True, timeout=200)


UPDATE_GRUB = """
update-grub() {
  GRUB_CMDLINE_LINUX="rootwait" GRUB_CMDLINE_LINUX_DEFAULT="quiet splash"
  for file in ROOT/etc/default/grub.d/*.cfg; do . "$file"; done
  mkdir -p ROOT/boot/grub
  printf '%s\\n' "linux $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT" \\
    "recovery $GRUB_CMDLINE_LINUX" >ROOT/boot/grub/grub.cfg
}
"""


def test_words_for_the_kernel_follow_those_that_are_there(tmp_path):
    script = fix_script(report(BOOT_LINE))
    # Running it again changes nothing.
    for _ in range(2):
        head = UPDATE_GRUB.replace("ROOT", str(tmp_path))
        done = run(script, "boot-line", root=tmp_path, head=head)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "fixed: kernel command line: try\n"
        lines = (tmp_path / "boot/grub/grub.cfg").read_text().splitlines()
        # A host that does not boot with them boots in recovery mode.
        assert lines == ["linux rootwait quiet splash isolcpus=2 nohz_full=2", "recovery rootwait"]


def test_a_boot_loader_that_did_not_take_the_words_is_reported(tmp_path):
    done = run(
        fix_script(report(BOOT_LINE)), "boot-line", root=tmp_path, head="update-grub() { :; }\n"
    )
    assert done.returncode == 1
    assert "not fixed: kernel command line: try" in done.stderr


@pytest.mark.parametrize(("took", "code"), [("isolcpus=2 nohz_full=2", 0), ("isolcpus=2", 1)])
def test_red_hat_has_grubby(tmp_path, took, code):
    grubby = tmp_path / "grubby"
    grubby.write_text(
        f'#!/bin/sh\ncase "$1" in --info=*) echo "args=quiet {took}" ;; '
        f'*) echo "$@" >{tmp_path}/called ;; esac\n'
    )
    grubby.chmod(0o755)
    done = run(fix_script(report(BOOT_LINE)), "boot-line", path=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == code, done.stderr
    called = (tmp_path / "called").read_text()
    assert called == "--update-kernel=ALL --args=isolcpus=2 nohz_full=2\n"


def test_without_a_known_boot_loader_the_words_are_shown(tmp_path):
    bare = tmp_path / "bin"
    bare.mkdir()
    done = run(fix_script(report(BOOT_LINE)), "boot-line", path=str(bare))
    assert done.returncode == 1
    assert "add to the kernel command line: isolcpus=2 nohz_full=2" in done.stderr
    assert "systemd-boot: /etc/kernel/cmdline" in done.stderr


@pytest.mark.parametrize("manager", ["apt-get", "dnf"])
def test_packages_of_missing_programs_are_named(tmp_path, manager):
    script = fix_script(report(Remedy(now=("setpci -s 0 x", "mlxconfig q"))))
    for name in (manager, "mlxconfig"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "bash").symlink_to("/bin/bash")
    done = run(script, "packages", path=str(tmp_path))
    installed = {
        "apt-get": "apt-get update\napt-get install -y pciutils\n",
        "dnf": "dnf install -y pciutils\n",
    }
    assert done.stdout == installed[manager]
    # It looks whether that helped.
    assert done.returncode == 1 and "not fixed: setpci" in done.stderr


@pytest.mark.parametrize(
    ("has", "installed"),
    [
        ("linux-cpupower", ["linux-cpupower"]),
        ("linux-tools-6.1.0-9", ["linux-cpupower", "linux-tools-6.1.0-9"]),
        ("neither", ["linux-cpupower", "linux-tools-6.1.0-9"]),
    ],
)
def test_cpupower_is_in_one_package_of_debian_and_another_of_ubuntu(tmp_path, has, installed):
    programs = {
        "uname": "echo 6.1.0-9",
        # Installs its files.
        "apt-get": f'echo "$@" >>{tmp_path}/called; case "$*" in update) ;; '
        f'*" {has}") echo >{tmp_path}/cpupower; /bin/chmod +x {tmp_path}/cpupower ;; '
        "*) exit 100 ;; esac",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "bash").symlink_to("/bin/bash")
    script = fix_script(report(Remedy(now=("cpupower frequency-set",))))
    done = run(script, "packages", path=str(tmp_path))
    called = (tmp_path / "called").read_text().splitlines()
    assert called == ["update", *(f"install -y {name}" for name in installed)]
    assert done.returncode == (has == "neither")
    assert ("not fixed: cpupower" in done.stderr) is (has == "neither")


def test_a_program_that_does_not_run_is_installed(tmp_path):
    """Ubuntu's cpupower is there, and fails, without the package of the running kernel."""
    programs = {
        "uname": "echo 6.8.0-9",
        "cpupower": f"test -e {tmp_path}/6.8.0-9",
        "apt-get": f'case "$*" in *" linux-tools-6.8.0-9") echo >{tmp_path}/6.8.0-9 ;; '
        "update) ;; *) exit 100 ;; esac",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "bash").symlink_to("/bin/bash")
    script = fix_script(report(Remedy(now=("cpupower frequency-set",))))
    done = run(script, "packages", path=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "fixed: cpupower\n"), done.stderr


def test_the_package_of_mlxconfig_is_named_and_not_installed():
    script = fix_script(report(Remedy(lasting=("mlxconfig -y set A=1",), step=Step.FIRMWARE)))
    assert "install package mft of NVIDIA's repository" in script
    assert "install_program" not in script
    assert "mft" not in fix_script(report(Remedy(now=("setpci x",))))


@pytest.mark.parametrize(
    "arguments",
    [["now lasting"], ["lasting dpu-mode"], ["now", "now lasting"], [""], [" "], ["*"], ["no?"]],
)
def test_steps_are_named_exactly(arguments, tmp_path):
    done = run(fix_script(report(*ALL)), *arguments, root=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "steps: now lasting boot-line iommu firmware dpu-mode" in done.stderr


def test_programs_that_are_there_need_no_package():
    assert run(fix_script(report(Remedy(now=("ip link",)))), "packages").stdout == ""


# On a real interface, in a namespace: a check, the script, the check again.
FIXED = """
import json, subprocess, sys
from daqiri_ophyd.host import check_host, fix_script
config = json.loads(sys.argv[1])
names = ["carrier", "mtu"]
before = check_host(config, only=names)
done = subprocess.run(
    ["bash", "-c", fix_script(before), "fix.sh", "now"], capture_output=True, text=True
)
after = check_host(config, only=names)
print(json.dumps({
    "before": {r.check: r.status for r in before.results},
    "after": {r.check: r.status for r in after.results},
    "code": done.returncode, "said": done.stdout, "errors": done.stderr,
}))
"""


@pytest.mark.root
@pytest.mark.skipif(not shutil.which("ip"), reason="needs iproute2")
def test_after_the_script_the_checks_are_content():
    queue = {"name": "q", "id": 0, "cpu_core": "any", "batch_size": 32, "memory_regions": ["m"]}
    config = {
        "version": 1,
        "stream_type": "raw",
        "engine": "packet",
        "master_core": 0,
        "memory_regions": [
            {"name": "m", "kind": "host", "affinity": 0, "num_bufs": 64, "buf_size": 9000}
        ],
        "interfaces": [{"name": "p", "address": "v0", "rx": {"queues": [queue]}}],
    }
    setup = 'ip link add v0 type veth peer name v1; ip link set v1 up; exec "$@"'
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", f"mount -t sysfs s /sys; {setup}", "sh"]
        + [sys.executable, "-c", FIXED, json.dumps(config)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["before"] == {"carrier": "warn", "mtu": "warn"}
    assert found["after"] == {"carrier": "ok", "mtu": "ok"}, found
    said = [
        "fixed: carrier: v0: switched off",
        "fixed: mtu: v0: 1500 B; the configuration's packets need 8978 B",
    ]
    assert (found["code"], found["said"].splitlines()) == (0, said), found
