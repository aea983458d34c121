"""Runs as arguments of ``daqiri-ophyd replay``."""

import shutil

import pytest

from daqiri_ophyd.cli import _main


@pytest.mark.parametrize(
    ("run", "code", "said"),
    [
        ("3", 1, "Run '3' is not in the catalog, which has 0 runs"),
        ("-1", 1, "Run '-1' is not in the catalog, which has 0 runs"),
        ("-12345", 1, "Run '-12345' is not in the catalog, which has 0 runs"),
        ("nosuchrun", 1, "Run 'nosuchrun' is not in the catalog, which has 0 runs"),
        ("²", 1, "Run '²' is not in the catalog, which has 0 runs"),
        ("-x", 2, "Invalid value for 'RUN': no such option: -x"),
        ("--speeed", 2, "Invalid value for 'RUN': no such option: --speeed"),
    ],
)
def test_runs_that_are_not_there_are_named(tmp_path, empty_catalog, capsys, run, code, said):
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    assert _main._run(["replay", run, "--data", str(tmp_path)]) == code
    line, *more = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {said}")
    assert more == ["See daqiri-ophyd replay --help."] * (code == 2)
