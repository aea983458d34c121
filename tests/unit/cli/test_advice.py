"""What the library advises, for users of commands."""

import logging
from pathlib import Path

import pytest

from daqiri_ophyd.catalog import _confine
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
