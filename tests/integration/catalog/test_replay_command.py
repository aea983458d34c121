"""Runs as ``daqiri-ophyd replay`` takes them."""

import shutil

import pytest

from daqiri_ophyd.cli import _main


@pytest.mark.parametrize(
    ("run", "code", "said"),
    [
        ("3", 1, "{data} holds no run 3"),
        ("-1", 1, "{data} holds no run -1"),
        ("-12345", 1, "{data} holds no run -12345"),
        ("nosuchrun", 1, "{data} holds no run nosuchrun"),
        ("²", 1, "Partial uid '²' is too short. It must include at least 5 characters."),
        ("-x", 2, "Invalid value: no such option: -x"),
        ("--speeed", 2, "Invalid value: no such option: --speeed"),
    ],
)
def test_runs_that_are_not_there_are_named(tmp_path, empty_catalog, capsys, run, code, said):
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    assert _main._run(["replay", run, "--data", str(tmp_path)]) == code
    assert capsys.readouterr().err == said.format(data=tmp_path) + "\n"
