"""The results of all checks together, for described hosts."""

import re
import subprocess
import sys

import pytest

from daqiri_ophyd.host import CHECKS, Status, check_host


def test_every_check_answers_on_every_host(make_host, host_name):
    report = check_host(root=make_host(host_name))
    assert [result.check for result in report.results] == list(CHECKS)
    for result in report.results:
        assert "at fault" not in result.found, result
        assert result.found and result.wanted and result.why and result.title
        if result.status in (Status.WARN, Status.FAIL):
            assert result.remedies, f"{result.check} says no remedy for {result.found}"


@pytest.mark.parametrize(("name", "platform"), [("igx", "igx")])
def test_platform_is_detected(make_host, name, platform):
    assert check_host(root=make_host(name)).platform == platform


def test_empty_folders_are_a_host_of_which_nothing_is_known(tmp_path):
    (tmp_path / "proc").mkdir()
    report = check_host(root=tmp_path)
    assert report.platform == "generic"
    assert {result.status for result in report.results} == {Status.SKIP}


def test_checks_are_chosen_by_name(make_host):
    report = check_host(root=make_host("igx"), only=["hugepages"])
    assert [result.check for result in report.results] == ["hugepages"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"only": ["hugepage"]}, "no check is called 'hugepage'; there are: "),
        ({"platform": "jetson"}, "platform is 'jetson'; accepted are auto, generic"),
        ({"root": "/nowhere"}, "root is '/nowhere', which is not a folder"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        check_host(**arguments)


def test_a_folder_that_is_no_host_is_refused(tmp_path):
    expected = f"root is '{tmp_path}', a folder without proc and sys; give / or a recorded host"
    with pytest.raises(ValueError, match=re.escape(expected)):
        check_host(root=tmp_path)


# The results of the checks and the behaviour of the engine, for every profile.
VERDICTS = """
from daqiri_ophyd import profiles
from daqiri_ophyd.engine import DaqiriError, Engine, load_config
from daqiri_ophyd.host import Status, check_host
for name in profiles.names():
    config = load_config(profiles.path(name))
    failed = [r.check for r in check_host(config.to_dict()).results if r.status is Status.FAIL]
    try:
        Engine.open(config).close()
        print(name, "opened", bool(failed), failed)
    except DaqiriError as error:
        print(name, "refused", bool(failed), failed, error)
"""


@pytest.mark.root
def test_of_every_profile_the_engine_opens_what_no_check_fails():
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
        + [sys.executable, "-c", VERDICTS],
        capture_output=True,
        text=True,
        timeout=200,
    )
    lines = [line for line in done.stdout.splitlines() if " opened " in line or " refused " in line]
    assert len(lines) >= 10, done.stderr
    for line in lines:
        _, verdict, failed = line.split()[:3]
        assert (verdict == "refused") == (failed == "True"), line
