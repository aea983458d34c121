"""What the library advises, for users of commands."""

import logging
import shlex
from pathlib import Path

import pytest

from daqiri_ophyd.catalog import _confine
from daqiri_ophyd.cli import _output
from daqiri_ophyd.cli._advice import as_options
from daqiri_ophyd.cli._output import LogMessages, print_error


def test_paths_are_those_of_a_shell(tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    gone = _confine.whereabouts(folder / "a.pcap")
    assert f"NEW: --moved '{tmp_path}/it'\"'\"'s here'=NEW." in as_options(gone)
    folder.mkdir()
    (folder / "a.pcap").touch()
    there = _confine.whereabouts(folder / "a.pcap")
    assert there != as_options(there)
    assert as_options(there).endswith(f"--readable '{tmp_path}/it'\"'\"'s here'.")


def test_a_path_with_both_quotes_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / """it's a "folder\""""
    folder.mkdir()
    (folder / "a.pcap").touch()
    there = as_options(_confine.whereabouts(folder / "a.pcap"))
    assert there.endswith(f"--readable {shlex.quote(str(folder))}.")


def test_errors_advise_options(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("No key is given: Catalog.connect(uri, api_key), or set TILED_API_KEY.")
    assert capsys.readouterr().err == "error: No key is given: set TILED_API_KEY.\n"


def test_what_is_logged_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("of a test")
    log.addHandler(LogMessages(logging.WARNING))
    try:
        raise ValueError("it is 3")
    except ValueError:
        log.exception("The run is not stored.")
    log.warning("Open it with Catalog.open(..., readable=[%r]).", "/data")
    log.info("unseen")
    assert capsys.readouterr().err == (
        "error: The run is not stored (it is 3)\nCommands read it with --readable /data.\n"
    )


def test_who_logs_does_not_fail_with_a_closed_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(text: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(_output, "print_error", fail)
    log = logging.Logger("of a test")
    log.addHandler(LogMessages(logging.WARNING))
    log.error("The run is not stored.")
    assert "BrokenPipeError" in capsys.readouterr().err
