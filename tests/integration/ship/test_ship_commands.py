"""Commands upload files, and read them from the store."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numbered_camera import BYTES, PACKETS, numbered_packets
from object_servers import Fault, FaultServer
from preloaded_processes import run_preloaded

from daqiri_ophyd.engine import write_pcap
from daqiri_ophyd.ship import Shipper, order_all, resume, running_shippers

Run = Callable[..., Any]


@pytest.fixture
def command(tmp_path: Path, used: FaultServer, made_catalog: None) -> Run:
    slots = np.tile(np.arange(PACKETS), 25)
    packets = numbered_packets(np.repeat(np.arange(25), PACKETS), slots, 7, BYTES)
    write_pcap(tmp_path / "in.pcap", packets, np.arange(100) * 100_000, link_type=1)

    def run(*arguments: object, code: int = 0) -> Any:
        done = run_preloaded("-m", "daqiri_ophyd", *arguments, cwd=tmp_path)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    return run


CAPTURE = ("capture", "loopback", "--send", "in.pcap", "--packets", 100, "--roll-packets", 50)


def test_a_capture_is_uploaded_shown_and_replayed(
    tmp_path: Path, command: Run, used: FaultServer
) -> None:
    command(*CAPTURE, "--ship-to", "s3://bucket/lab")
    captures = tmp_path / "daqiri-data" / "captures"
    files = sorted(captures.rglob("*.pcap"))
    keys = [f"lab/{file.relative_to(captures)}" for file in files]
    assert set(used.objects) == {f"{key}{end}" for key in keys for end in ("", ".json")}
    for file in files:
        file.unlink()
    # The catalog remembers the address.
    shown = json.loads(command("runs", "show", "-1", "--json").stdout)
    assert [file["path"] for file in shown["files"]] == [f"s3://bucket/{key}" for key in keys]
    assert [file["packets"] for file in shown["files"]] == [50, 50]
    sent = json.loads(command("replay", "-1", "--config", "loopback", "--json").stdout)
    assert sent["sent"] == 100
    command("runs", "export", "-1", "out")
    assert len(list((tmp_path / "out").rglob("*.pcap"))) == 2


def test_a_capture_says_if_its_files_are_not_in_the_store(
    tmp_path: Path, command: Run, used: FaultServer
) -> None:
    used.fail_next(10**6, Fault.ACCESS_DENIED, "PUT")
    # As after a process that was killed: commands end after half a minute without success.
    record = tmp_path / "daqiri-data" / "captures" / "run"
    record.mkdir(parents=True)
    (record / "port0_000000.pcap").write_bytes(b"packets")
    (record / "port0_000000.pcap.json").write_text("{}")
    order_all(record, "s3://bucket/lab/run")
    with Shipper("s3://bucket", **used.options) as shipper:
        resume(tmp_path, lambda _: shipper)
        (seen,) = [each for each in running_shippers() if each.pid == os.getpid()]
        assert seen.state.unsent == 1
        assert seen.bucket == "s3://bucket"
        shown = command("stats", "--pid", os.getpid(), "--count", 1, "--json")
        (store,) = [json.loads(line) for line in shown.stdout.splitlines()]
        assert store["state"]["unsent_bytes"] == 7
    used.heal()
    done = command("catalog", "ship", "--json")
    assert json.loads(done.stdout) == {
        "stores": {
            "s3://bucket": {"shipped": 1, "shipped_bytes": 7, "unsent": 0, "unsent_bytes": 0}
        },
        "problems": [],
    }
    assert used.objects["lab/run/port0_000000.pcap"] == b"packets"
    assert "no file waits" in command("catalog", "ship").stdout


def test_what_was_recorded_without_a_store_is_uploaded_later(
    tmp_path: Path, command: Run, used: FaultServer
) -> None:
    command(*CAPTURE)
    assert not used.objects
    said = command("catalog", "ship", "--to", "s3://bucket/late", "--remove").stdout
    assert said.startswith("s3://bucket: 2 files, ")
    assert not list(tmp_path.rglob("daqiri-data/**/*.pcap"))
    # Nobody has named this address to the catalog yet.
    shown = command("runs", "show", "-1")
    assert "readable" in shown.stderr
    shown = command("runs", "show", "-1", "--readable", "s3://bucket/late", "--json")
    paths = [file["path"] for file in json.loads(shown.stdout)["files"]]
    assert all(path.startswith("s3://bucket/late/20") for path in paths)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((*CAPTURE, "--ship-to", "s3:/x"), "--ship-to: 's3:/x' is no address of an object store"),
        (("catalog", "ship", "--to", "ftp://x/y"), "'ftp://x/y' is no address of an object"),
        (("runs", "show", "-1", "--readable", "s3://"), "'s3://' is no address of an object"),
    ],
)
def test_an_address_that_is_none_is_refused(
    command: Run, arguments: tuple[object, ...], text: str
) -> None:
    assert text in command(*arguments, code=2).stderr
