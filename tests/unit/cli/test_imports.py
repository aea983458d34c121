"""Commands import what they use: Bluesky and Tiled take seconds."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import typer.rich_utils

from daqiri_ophyd.cli import _main
from daqiri_ophyd.cli._stimulus import udp_stimulus
from daqiri_ophyd.engine import write_pcap

SLOW = {
    *("numpy", "pandas", "matplotlib", "xarray", "dask", "pyroute2", "event_model"),
    *("bluesky", "ophyd", "tiled", "databroker", "bluesky_tiled_plugins", "httpx", "sqlalchemy"),
    "daqiri_ophyd.engine",
}
OF_ENGINE = {"numpy", "daqiri_ophyd.engine"}
COMMANDS: list[tuple[Sequence[str], set[str]]] = [
    (["--help"], set()),
    (["nonsense"], set()),
    *(([name, "--help"], set()) for name in _main.COMMANDS),
    (["info"], OF_ENGINE),
    (["config", "check", "loopback"], OF_ENGINE),
    (["config", "show", "udp"], OF_ENGINE),
    (["config", "schema"], set()),
    (["config", "new", "camera", "--format", "{pcap}"], OF_ENGINE),
    (["pcap", "info", "{pcap}"], OF_ENGINE),
    (["pcap", "check", "{pcap}"], OF_ENGINE),
    (["frames", "check", "{pcap}"], OF_ENGINE),
    (["frames", "correct", "{pcap}"], OF_ENGINE),
    (["stats", "--count", "1"], OF_ENGINE),
    (["host", "check"], {"pyroute2"}),
    (["host", "check", "loopback"], {*OF_ENGINE, "pyroute2"}),
    (["field-test", "loopback", "--only", "host"], {*OF_ENGINE, "pyroute2"}),
    (["simulate", "nonsense"], set()),
    (["simulate", "jungfrau", "127.0.0.1:9", "--frames", "1"], OF_ENGINE),
    (["send", "loopback", "{pcap}"], OF_ENGINE),
    (["capture", "loopback", "--send", "nonsense"], set()),
    (["--version"], set()),
]
PROGRAM = """
import atexit, json, sys
from daqiri_ophyd.cli import main
atexit.register(lambda: print("\\n" + json.dumps(sorted(sys.modules)), file=sys.stderr))
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> list[set[str]]:
    """What each command imports of the slow packages."""
    folder = tmp_path_factory.mktemp("imports")
    pcap = folder / "one.pcap"
    write_pcap(pcap, udp_stimulus(10, 100, [5000]), np.arange(10), link_type=1)

    def of(command: tuple[Sequence[str], set[str]]) -> set[str]:
        words = [word.format(pcap=pcap) for word in command[0]]
        found = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words],
            cwd=folder, text=True, capture_output=True, timeout=200,
            env=os.environ | {"XDG_RUNTIME_DIR": str(folder)},
        )  # fmt: skip
        return SLOW & set(json.loads(found.stderr.splitlines()[-1]))

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(of, COMMANDS))


def test_commands_import_what_they_use(imported: list[set[str]]) -> None:
    expected = {" ".join(words): needed for words, needed in COMMANDS}
    assert dict(zip(expected, imported, strict=True)) == expected


def test_the_list_of_commands_has_the_first_line_of_the_help_of_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typer.rich_utils, "MAX_WIDTH", 1000)
    assert _main._run([]) in (0, 2)
    listed = capsys.readouterr().out
    for name, summary in _main.COMMANDS.items():
        assert f" {name} " in listed
        assert summary in listed
        assert _main._run([name, "--help"]) == 0
        lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]
        assert lines[1] == summary


def test_a_command_after_two_hyphens_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert _main._run(["--", "info", "--json"]) == 0
    assert "version" in capsys.readouterr().out
