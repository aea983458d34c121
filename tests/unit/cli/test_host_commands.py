"""The commands about the host, on this machine and on recorded hosts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from daqiri_ophyd import profiles
from daqiri_ophyd.cli import _main
from daqiri_ophyd.host import CHECKS, MEASUREMENTS, Platform

SVG = "{http://www.w3.org/2000/svg}svg"
STATUSES = {"ok", "warn", "fail", "skip"}


def run(*arguments: object) -> int:
    """Run the command; returns its exit code."""
    return _main._run(["host", *map(str, arguments)])


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A host of which nothing is known."""
    folder = tmp_path / "bare"
    (folder / "proc").mkdir(parents=True)
    return folder


@pytest.fixture
def slow_clock(bare: Path) -> Path:
    """A host with a warning."""
    record(bare, "clock", {"synchronized": False, "max_error": 16_000_000})
    return bare


def record(root: Path, name: str, value: object) -> None:
    place = root / "recorded" / f"{name}.json"
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(value))


def write(root: Path, path: str, text: str) -> None:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def test_where_nothing_is_wrong_the_exit_code_is_0(bare, capsys):
    assert run("check", "--root", bare) == 0
    shown = capsys.readouterr()
    assert f"{len(CHECKS)} skip" in shown.out
    assert not shown.err


def test_warnings_are_exit_code_1(slow_clock, capsys):
    assert run("check", "--root", slow_clock) == 1
    shown = capsys.readouterr().out
    assert "warn  clocks" in shown and "system clock: not synchronized" in shown
    assert "--details" in shown and "--fix-script" in shown


def test_failures_are_exit_code_2(slow_clock, capsys):
    write(slow_clock, "proc/mounts", "/dev/a / ext4 ro 0 0\n")
    assert run("check", "--root", slow_clock) == 2
    assert "fail  storage" in capsys.readouterr().out


def test_checks_that_are_skipped_for_one_reason_share_a_line(bare, capsys):
    assert run("check", "--root", bare) == 0
    [found] = [each for each in capsys.readouterr().out.splitlines() if "pcie-payload" in each]
    assert found.endswith(": no ConnectX or BlueField on the PCI bus")
    assert "pcie-read-request" in found and found.startswith("skip  nic-driver, ")


def test_details_say_what_is_wanted_why_and_what_to_do(slow_clock, capsys):
    assert run("check", "--root", slow_clock, "--only", "clocks", "--details") == 1
    shown = capsys.readouterr().out
    clocks = CHECKS["clocks"]
    assert clocks.wanted in shown and clocks.why in shown
    assert "now: systemctl start chronyd" in shown and "lasting: systemctl enable chronyd" in shown
    assert "ptp4l" in shown


def test_json_holds_every_check(slow_clock, capsys):
    write(slow_clock, "proc/sys/kernel/hostname", "beamline\x1b[2J7")
    assert run("check", "udp", "--root", slow_clock, "--json") in (1, 2)
    text = capsys.readouterr().out
    report = json.loads(text)
    assert report.keys() == {"platform", "status", "host", "counts", "checks"}
    assert report["host"] == {"name": "beamline [2J7", "kernel": "", "product": ""}
    assert report["platform"] == "generic"
    assert report["counts"].keys() == STATUSES
    assert sum(report["counts"].values()) == len(CHECKS)
    assert [check["check"] for check in report["checks"]] == list(CHECKS)
    for check in report["checks"]:
        assert check.keys() == {"check", "title", "wanted", "why", "findings", "status", "found"}
        assert check["status"] in STATUSES
        for finding in check["findings"]:
            assert finding.keys() == {"status", "found", "subject", "remedy"}
            assert finding["remedy"].keys() == {
                *("now", "files", "lasting", "note", "step", "kernel_line"),
                *("verify", "verify_lasting"),
            }
    assert "\x1b" not in text


def test_only_the_checks_that_were_asked_for(slow_clock, capsys):
    asked = ["--only", "storage", "--only", "clocks"]
    assert run("check", "--root", slow_clock, "--json", *asked) == 1
    report = json.loads(capsys.readouterr().out)
    assert [check["check"] for check in report["checks"]] == ["clocks", "storage"]


@pytest.mark.parametrize("platform", list(Platform))
def test_platforms_by_name(bare, platform, capsys):
    assert run("check", "--root", bare, "--platform", platform) in (0, 2)
    assert f"(platform {platform})" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "--only", "hugepage"], "no check is called 'hugepage'; there are: engine, nic"),
        (["check", "--platform", "jetson"], "accepted are auto, generic, igx, spark, gpunetio"),
        (["check", "--root", "no/such/folder"], "'no/such/folder', which is not a folder"),
        (["check", "no-such.yaml"], "no configuration file 'no-such.yaml'"),
        (["check", "--json", "--fix-script"], "exclude each other"),
        (["picture", "x.svg", "--root", "no/such/folder"], "which is not a folder"),
        (["check", "--root", "."], "root is '.', a folder without proc and sys"),
        (["picture", "x.svg", "--root", "."], "root is '.', a folder without proc and sys"),
        (["picture"], "OUT.svg"),
        (["measure", "--only", "spins"], "no measurement is called 'spins'; there are: memory"),
        (["measure", "--seconds", "0"], "'--seconds': found '0'; accepts numbers from 0.1 to 60 s"),
        (
            ["measure", "--seconds", "nan"],
            "'--seconds': found 'nan'; accepts numbers from 0.1 to 60 s",
        ),
        (["tune"], "tune"),
    ],
)
def test_bad_usage_is_named_with_exit_code_2(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert not shown.out
    assert not list(tmp_path.iterdir())


def test_a_configuration_with_errors_is_exit_code_2(tmp_path, capsys):
    file = tmp_path / "wrong.yaml"
    file.write_text("daqiri: {cfg: {version: 1, stream_type: row}}\n")
    assert run("check", file) == 2
    assert "stream_type" in capsys.readouterr().err


# Fix script


@pytest.fixture
def scripts(slow_clock, capsys) -> tuple[str, str]:
    """The remedies of a host where much is wrong: for UDP, and as a whole."""
    write(slow_clock, "proc/cmdline", "quiet")
    write(slow_clock, "proc/mounts", "/dev/a /it's\\040$(reboot) ext4 ro 0 0\n")
    write(slow_clock, "proc/self/status", "Uid:\t1 1 1 1\nCapEff:\t0\n")
    write(slow_clock, "proc/sys/kernel/hostname", "beamline\n$(reboot)")
    cpu = slow_clock / "sys/devices/system/cpu"
    write(cpu, "online", "0-3\n")
    for number in range(4):
        write(cpu, f"cpu{number}/cpufreq/scaling_governor", "powersave")
    for name in ("rmem_max", "wmem_max", "netdev_max_backlog"):
        write(slow_clock, f"proc/sys/net/core/{name}", "1")
    arguments = ("--root", slow_clock, "--platform", "spark", "--folder", "/it's $(reboot)")
    assert run("check", "udp", *arguments, "--fix-script") == 2
    first = capsys.readouterr().out
    # Without a configuration, the kernel's command line matters on a host made for queues.
    assert run("check", *arguments, "--fix-script") == 2
    return first, capsys.readouterr().out


@pytest.fixture(params=[0, 1], ids=["configured", "whole host"])
def script(request, scripts) -> str:
    """One of these."""
    return scripts[request.param]


def test_the_fix_script_is_sound(script, tmp_path):
    file = tmp_path / "fix.sh"
    file.write_text(script)
    assert os.access(file, os.X_OK) is False
    subprocess.run(["bash", "-n", file], check=True, timeout=20)
    subprocess.run(["shellcheck", "--severity=warning", file], check=True, timeout=200)


@pytest.mark.parametrize("arguments", [[], ["later"]])
def test_the_fix_script_does_nothing_unless_told(script, arguments):
    # bash's own builtins are all it may use: nothing is on the path.
    done = subprocess.run(
        ["/bin/bash", "-s", *arguments],
        input=script,
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 2
    assert "usage: bash " in done.stderr and "STEP...; steps: " in done.stderr
    assert not done.stdout


# Every command that a remedy runs is a function that says how it was called; nothing is on the
# path, and what is redirected goes to a scratch folder in place of /etc and /sys.
RECORDER = """
id() { echo 0; }
command_not_found_handle() { printf '%s|' "$@" >&3; printf '\\n' >&3; }
"""


@pytest.mark.parametrize("when", ["now", "lasting", "boot-line"])
def test_what_the_fix_script_would_run(scripts, when, tmp_path):
    (tmp_path / "etc").mkdir()
    confined = scripts[when == "boot-line"].replace(" /etc/", f" {tmp_path}/etc/")
    confined = confined.replace('"/etc/', f'"{tmp_path}/etc/').replace(
        ">/etc/", f">{tmp_path}/etc/"
    )
    calls = tmp_path / "calls"
    folders = 'mkdir() { /bin/mkdir "$@"; }; cat() { /bin/cat "$@"; }; update-grub() { :; }\n'
    done = subprocess.run(
        ["/bin/bash", "-c", f"exec 3>{calls}\n{RECORDER}{folders}{confined}", "fix.sh", when],
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    called = [line.split("|")[:-1] for line in calls.read_text().splitlines()]
    written = {str(p.relative_to(tmp_path)) for p in (tmp_path / "etc").rglob("*") if p.is_file()}
    if when == "now":
        assert ["sysctl", "-w", "net.core.rmem_max=33554432"] in called
        assert ["cpupower", "frequency-set", "-g", "performance"] in called
        # What may harm is left to a person.
        assert not [call for call in called if call[0] == "mount"]
        assert not written
    elif when == "lasting":
        assert ["systemctl", "enable", "daqiri-host.service"] in called
        # Nothing takes effect immediately.
        assert {call[0] for call in called} == {"systemctl", "bash"}
        assert not [call for call in called if "start" in call or "--now" in call]
        assert written == {
            "etc/sysctl.d/90-daqiri-rmem_max.conf",
            "etc/daqiri-host.d/20-cpu-governor.sh",
            "etc/systemd/system/daqiri-host.service",
        }
    else:
        isolation = (tmp_path / "etc/default/grub.d/zz-daqiri-cpu-isolation.cfg").read_text()
        words = 'GRUB_CMDLINE_LINUX_DEFAULT="${GRUB_CMDLINE_LINUX_DEFAULT} isolcpus='
        assert isolation.startswith(words)
        assert written == {"etc/default/grub.d/zz-daqiri-cpu-isolation.cfg"}
    assert not [call for call in called if "reboot" in call[0]]


# Picture


def test_a_picture_is_written(tmp_path, bare, capsys):
    device = bare / "sys/devices/pci0000:00/0000:00:01.0"
    for name, text in {"class": "0x020000", "vendor": "0x8086", "device": "0x1592"}.items():
        write(device, name, text)
    write(bare, "sys/class/dmi/id/product_name", "Bücher & <Regale>\x01")
    buses = bare / "sys/bus/pci/devices"
    buses.mkdir(parents=True)
    (buses / "0000:00:01.0").symlink_to("../../../devices/pci0000:00/0000:00:01.0")
    file = tmp_path / "host.svg"
    assert run("picture", file, "--root", bare) == 0
    tree = ElementTree.parse(file)
    assert tree.getroot().tag == SVG
    texts = [each.text for each in tree.iter() if each.text]
    assert "Bücher & <Regale>" in texts
    assert str(file) in capsys.readouterr().err
    assert run("picture", tmp_path / "no" / "such.svg", "--root", bare) == 1
    assert "such.svg" in capsys.readouterr().err
    assert run("picture", tmp_path, "--root", bare) == 1
    assert str(tmp_path) in capsys.readouterr().err


def test_nothing_to_draw_is_exit_code_1(tmp_path, bare, capsys):
    assert run("picture", tmp_path / "host.svg", "--root", bare) == 1
    assert "nothing to draw" in capsys.readouterr().err
    assert not (tmp_path / "host.svg").exists()


# Measurements


def test_measurements_in_a_short_time(tmp_path, capsys):
    assert run("measure", "--seconds", 0.1, "--folder", tmp_path, "--json") == 0
    measured = json.loads(capsys.readouterr().out)
    assert list(measured) == list(MEASUREMENTS)
    for values in measured.values():
        assert values
        assert all(isinstance(value, float) for value in values.values())
    assert measured["memory-copy"]["best_GB_s"] >= measured["memory-copy"]["median_GB_s"] > 0
    assert measured["udp-loopback"]["Gb_s"] >= 0
    for name in ("sleep", "spin"):
        found = measured[name]
        assert found["p50_us"] <= found["p99_us"] <= found["p999_us"] <= found["max_us"]
    assert 0 <= measured["spin"]["lost_percent"] <= 100
    assert measured["disk-write"]["buffered_GB_s"] > 0
    assert not list(tmp_path.iterdir())


def test_one_measurement_as_a_line(capsys):
    assert run("measure", "--seconds", 0.1, "--only", "sleep", "--only", "sleep") == 0
    shown = capsys.readouterr().out
    assert MEASUREMENTS["sleep"][0] in shown and " us late" in shown
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize("folder", ["no/such/folder", "/proc", "/dev/null"])
def test_a_folder_that_cannot_be_written_to_is_exit_code_1(folder, capsys):
    arguments = ("--seconds", 0.1, "--only", "disk-write", "--only", "sleep", "--folder", folder)
    assert run("measure", *arguments, "--json") == 1
    measured = json.loads(capsys.readouterr().out)
    assert measured["sleep"]["p50_us"] > 0
    assert measured["disk-write"].keys() == {"failed"}
    assert measured["disk-write"]["failed"].startswith("failed: ")


UNPRIVILEGED = """
import os, sys
from daqiri_ophyd.host import measure_host
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
[found] = measure_host(["disk-write"], seconds=0.1, folder=sys.argv[1])
print(found.text)
"""


@pytest.mark.root
def test_a_folder_of_somebody_else(tmp_path):
    tmp_path.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert "Permission denied" in done.stdout


@pytest.mark.root
def test_udp_stays_on_loopback(tmp_path):
    """It needs no other network than lo."""
    code = (
        "from daqiri_ophyd.host import measure_host;"
        "[m] = measure_host(['udp-loopback'], seconds=0.6);"
        "print(m.values['packets_s'] >= 0, m.text)"
    )
    script = f'ip link set lo up && ip addr del ::1/128 dev lo && exec "$0" -c "{code}"'
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script, sys.executable],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True"), done.stdout


# Start


LOADED = """
import sys
from daqiri_ophyd.cli import _main
code = _main._run(["host", *sys.argv[1:]])
heavy = {"bluesky", "tiled", "ophyd", "matplotlib", "pandas", "databroker"} & set(sys.modules)
print(code, sorted(heavy), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [["check"], ["check", "udp", "--json"], ["measure", "--only", "sleep", "--seconds", "0.1"]],
)
def test_the_host_commands_start_light(arguments):
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, timeout=50
    )
    assert done.stderr.splitlines()[-1].endswith(" []"), done.stderr


def test_every_profile_can_be_asked_about(capsys):
    for name in profiles.names():
        assert run("check", name, "--json") in (0, 1, 2)
        found = json.loads(capsys.readouterr().out)["checks"]
        assert not [check for check in found if "at fault" in check["found"]]
