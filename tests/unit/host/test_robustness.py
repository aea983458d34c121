"""Checks on hosts whose files hold anything: an answer always, and never the check's own fault."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from daqiri_ophyd import profiles
from daqiri_ophyd.engine import load_config
from daqiri_ophyd.host import (
    CHECKS,
    FactError,
    Facts,
    Platform,
    check_host,
    fix_script,
    pcie_picture,
)

CONFIGS = {name: load_config(profiles.path(name)).to_dict() for name in profiles.names()}
HOSTS = sorted(path.stem for path in (Path(__file__).parent / "hosts").glob("*.yaml"))

TEXTS = st.one_of(
    st.sampled_from(
        [
            *("", " ", "\n", "-1", "-", "0x", "1_0", "99999999999999999999999", "0x" + "f" * 9000),
            *("9" * 5000, "0-4294967295", "4294967295-0", "0-65535:1/1", "3-0,,-,0-", "nan", "\0"),
            *("[" * 5000, "[1]", "{}", '{"lo": 5}', '[{"index": "x"}]', '{"eth0": null}', "null"),
            *("Uid:", "CapEff:\tzz\nUid:\t0\t0\t0\t0", " x y z\n\n \n", "a b c d e", "\\040 / ro"),
        ]
    ).map(str.encode),
    st.integers(-(2**70), 2**70).map(lambda n: str(n).encode()),
    st.binary(max_size=300),
    st.text(max_size=60).map(lambda text: text.encode("utf-16", "surrogatepass")),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)
# What happens to one path of a host.
DAMAGES = st.one_of(
    st.tuples(st.just("write"), TEXTS),
    st.tuples(st.sampled_from(["remove", "folder", "circle", "outside", "pipe"]), st.just(b"")),
)
MANY = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def originals(tmp_path_factory, make_described) -> dict[str, Path]:
    """All described hosts, to be copied."""
    folder = tmp_path_factory.mktemp("originals")
    return {name: make_described(folder / name, name) for name in HOSTS}


@pytest.fixture
def damaged(originals) -> Callable[..., Any]:
    """Return the report and the picture of a host after some of its files were damaged."""

    def run(name: str, damages: list[tuple[str, str, bytes]], **asked: Any) -> None:
        root = originals[name]
        # A path may be chosen twice; the last damage counts.
        places = {root / path: (how, content) for path, how, content in damages}
        with tempfile.TemporaryDirectory(dir=root.parent) as kept:
            for number, (place, (how, content)) in enumerate(places.items()):
                if os.path.lexists(place):
                    place.rename(f"{kept}/{number}")
                damage(place, how, content)
            try:
                examine(root, **asked)
            finally:
                for number, place in enumerate(places):
                    if place.is_dir() and not place.is_symlink():
                        place.rmdir()
                    else:
                        place.unlink(missing_ok=True)
                    if os.path.lexists(f"{kept}/{number}"):
                        os.rename(f"{kept}/{number}", place)

    return run


def damage(place: Path, how: str, content: bytes = b"") -> None:
    match how:
        case "write":
            place.write_bytes(content)
        case "folder":
            place.mkdir()
        case "circle":
            place.symlink_to(place.name)
        case "outside":
            place.symlink_to("/proc/self")
        case "pipe":
            os.mkfifo(place)


def examine(root: Path, config: dict[str, Any] | None = None, platform: str = "auto") -> None:
    """Check a host, and everything that is made of its report."""
    report = check_host(config, root=root, platform=platform, folder="/data")
    assert [result.check for result in report.results] == list(CHECKS)
    for result in report.results:
        assert result.findings
        for finding in result.findings:
            assert "at fault" not in finding.found, f"{result.check}: {finding}"
    json.dumps(report.to_dict())
    fix_script(report).encode()
    try:
        drawn = pcie_picture(Facts(root))
    except FactError:
        return
    ElementTree.fromstring(drawn)


def paths_of(root: Path) -> list[str]:
    """Files, and links to folders, beneath a folder."""
    found = []
    for folder, folders, files in os.walk(root):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        found += [str((Path(folder) / name).relative_to(root)) for name in [*files, *links]]
    return sorted(found)


@given(data=st.data())
@MANY
def test_damaged_files_are_no_fault_of_a_check(originals, damaged, data):
    name = data.draw(st.sampled_from(HOSTS))
    paths = paths_of(originals[name])
    damages = data.draw(
        st.lists(st.tuples(st.sampled_from(paths), DAMAGES), min_size=1, max_size=12)
    )
    config = data.draw(st.sampled_from([None, *CONFIGS.values()]))
    platform = data.draw(st.sampled_from(["auto", *Platform]))
    chosen = [(path, how, content) for path, (how, content) in damages]
    damaged(name, chosen, config=config, platform=platform)


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("how", ["write", "remove", "folder", "circle", "outside", "pipe"])
def test_a_host_with_every_file_damaged(originals, damaged, name, how):
    paths = paths_of(originals[name])
    noise = random.Random(f"{name} {how}")
    for platform in Platform:
        damages = [(path, how, noise.randbytes(noise.randrange(64))) for path in paths]
        damaged(name, damages, platform=platform)


# A little noise in a sound file gets further than noise alone.
@given(data=st.data())
@MANY
def test_altered_files_are_no_fault_of_a_check(originals, damaged, data):
    name = data.draw(st.sampled_from(HOSTS))
    paths = [p for p in paths_of(originals[name]) if (originals[name] / p).is_file()]
    damages = []
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=12)):
        content = bytearray((originals[name] / path).read_bytes())
        if content:
            at = data.draw(st.integers(0, len(content) - 1))
            content[at : at + 1] = data.draw(st.binary(max_size=3))
        damages.append((path, "write", bytes(content)))
    damaged(name, damages, platform=data.draw(st.sampled_from(["auto", *Platform])))


@given(
    record=st.sampled_from(["addresses", "clock", "ethtool", "gpus", "leased", "pci-names"]),
    value=VALUES | st.lists(st.dictionaries(st.sampled_from(["index", "name", "cuda"]), VALUES)),
)
@example("gpus", [{"index": 0, "name": "\x1b[2J", "pci_address": "0000:01:00.0"}])
@example("gpus", [{"index": 0, "name": "A", "pci_address": "B", "bar1_total": 10**400}])
@example("clock", {"synchronized": True, "max_error": "soon"})
@example("addresses", {"lo": [None]})
@MANY
def test_recordings_of_any_json(damaged, record, value):
    text = json.dumps(value).encode()
    damaged("igx", [(f"recorded/{record}.json", "write", text)], platform="igx")


@given(space=st.binary(max_size=600), extend=st.booleans())
@example(bytes([0xFF] * 4096), False)
@example(bytes(4096), False)
@MANY
def test_configuration_spaces_of_any_bytes(originals, damaged, space, extend):
    # With the bit that announces a list of capabilities.
    if extend and len(space) > 6:
        space = space[:6] + bytes([space[6] | 0x10]) + space[7:]
    paths = [p for p in paths_of(originals["a100"]) if p.endswith("/config")]
    damaged("a100", [(path, "write", space) for path in paths])


def test_names_that_no_kernel_gives(originals, tmp_path):
    root = tmp_path / "host"
    shutil.copytree(originals["a100"], root, symlinks=True)
    hostile = [b"\xff\xfe", b"new\nline", b"\x1b[2J", b"a;b", b"$(reboot)", "ü".encode(), b" "]
    folders = [
        *("sys/class/net", "sys/bus/pci/devices", "sys/kernel/mm/hugepages", "sys/module"),
        *("sys/devices/system/node", "sys/devices/system/cpu", "proc", "sys/class/infiniband"),
    ]
    for folder in folders:
        for name in hostile:
            place = os.fsencode(root / folder) + b"/" + name
            os.makedirs(place, exist_ok=True)
            Path(os.fsdecode(place), "mtu").write_text("1500")
    for folder in ("hugepages-0kB", f"hugepages-{'9' * 200}kB", "hugepages--1kB"):
        place = root / "sys/kernel/mm/hugepages" / folder
        place.mkdir()
        for name in ("nr_hugepages", "free_hugepages"):
            (place / name).write_text("1")
    for node in ("node", "node-1", "node99999999999999999999", "node٣"):
        place = root / "sys/devices/system/node" / node
        place.mkdir(exist_ok=True)
        (place / "cpulist").write_text("0-4294967295")
    for config in (None, *CONFIGS.values()):
        examine(root, config)
    assert Facts(root).interfaces.keys() - Facts(originals["a100"]).interfaces.keys() == {"ü"}


def test_links_out_of_a_recorded_host_are_not_followed(make_host, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("not of this host")
    root = make_host("laptop")
    place = root / "sys/class/dmi/id/product_name"
    place.unlink()
    place.symlink_to(secret)
    facts = Facts(root)
    assert facts.product == ""
    with pytest.raises(FactError, match="leads out of"):
        facts.root.text("/sys/class/dmi/id/product_name")
    with pytest.raises(FactError, match="leads out of"):
        facts.root.text("/../secret")


# The second argument takes away what files, sockets and pipes need.
LIVE = """
import os, resource, sys
import pyroute2.ethtool  # by check_host, too late here: a process has its rights from its start
from daqiri_ophyd.host import check_host
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
if sys.argv[2] == "none":
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
report = check_host(platform=sys.argv[1])
print([f.found for r in report.results for f in r.findings if "at fault" in f.found])
"""


@pytest.mark.root
@pytest.mark.parametrize("descriptors", ["some", "none"])
@pytest.mark.parametrize("platform", list(Platform))
def test_this_host_without_rights(platform, descriptors):
    done = subprocess.run(
        [sys.executable, "-c", LIVE, platform, descriptors],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


UNPRIVILEGED = """
import json, os, sys
from daqiri_ophyd.host import check_host
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print(json.dumps(check_host(root=sys.argv[1], platform=sys.argv[2]).to_dict()))
"""


@pytest.mark.root
@pytest.mark.parametrize("name", HOSTS)
def test_files_that_may_not_be_read(originals, name):
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        root = Path(scratch) / "host"
        shutil.copytree(originals[name], root, symlinks=True)
        noise = random.Random(name)
        for folder, folders, files in os.walk(root, topdown=False):
            for entry in [*files, *folders]:
                place = Path(folder) / entry
                if not place.is_symlink() and noise.random() < 0.4:
                    place.chmod(0)
        done = subprocess.run(
            [sys.executable, "-c", UNPRIVILEGED, str(root), "auto"],
            capture_output=True,
            text=True,
            timeout=200,
        )
    assert done.returncode == 0, done.stderr
    found = [
        finding for check in json.loads(done.stdout)["checks"] for finding in check["findings"]
    ]
    assert found
    assert not [each for each in found if "at fault" in each["found"]]
