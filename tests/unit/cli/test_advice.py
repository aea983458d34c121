"""What the library advises, for users of commands."""

from pathlib import Path

import pytest

from daqiri_ophyd.catalog import _confine
from daqiri_ophyd.cli._advice import as_options
from daqiri_ophyd.cli._output import print_error


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
