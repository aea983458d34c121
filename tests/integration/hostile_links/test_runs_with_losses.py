"""What a run makes of packets that this host lost before the engine."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky.utils import FailedStatus, MsgGenerator
from run_documents import Documents
from waiting import wait_for

from daqiri_ophyd.cli import _main
from daqiri_ophyd.cli._capture_files import summarize
from daqiri_ophyd.devices import PacketLossError, make_daq
from daqiri_ophyd.documents import read_sidecar

pytestmark = [pytest.mark.root, pytest.mark.fills_backlog]
Config = dict[str, Any]
COUNT = 20_000
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "troubleshoot.md"


@pytest.fixture
def daq(link: Any, receiver: Callable[..., Config], tmp_path: Path) -> Iterator[Any]:
    """An engine whose port loses what `lose` sends, for the most part."""
    link.receive_on_another_core()
    link.slow_down()
    made = make_daq(receiver("udp"), directory=tmp_path)
    with closing(made):
        link.call(made.open)
        yield made


@pytest.fixture
def lose(link: Any, daq: Any, datagram: Callable[..., bytes]) -> Callable[[], int]:
    """Send packets until each is counted; return how many were lost."""

    def flood() -> int:
        port = daq.port("receiver")
        before, received = link.counts()["dropped"], port.rx[0].counters().received
        arrived = link.flood(datagram(), COUNT)

        def left() -> int:
            lost = link.counts()["dropped"] - before
            return arrived - lost - (port.rx[0].counters().received - received)

        wait_for(lambda: left() == 0)
        lost: int = link.counts()["dropped"] - before
        assert lost > 0
        return lost

    return flood


def flight(capture: Any, during: Callable[[], Any]) -> MsgGenerator[None]:
    yield from bps.stage(capture)
    yield from bps.open_run()
    yield from bps.declare_stream(capture, name="primary", collect=True)
    yield from bps.kickoff(capture, wait=True)
    during()
    yield from bps.complete(capture, wait=True)
    yield from bps.collect(capture, name="primary")
    yield from bps.close_run()
    yield from bps.unstage(capture)


@pytest.mark.parametrize("on_drop", ["flag", "ignore"])
def test_files_and_documents_have_the_losses(
    daq: Any, lose: Callable[[], int], run_engine: RunEngine, documents: Documents, on_drop: str
) -> None:
    lose()  # before the run: not part of it
    capture = daq.receiver.capture
    capture.on_drop.put(on_drop)
    lost: list[int] = []
    run_engine(flight(capture, lambda: lost.append(lose())))
    [row] = documents.rows()
    assert row["daq_receiver_capture_lost_before_engine"] == lost[0]
    assert row["daq_receiver_capture_dropped"] == 0
    assert row["daq_receiver_capture_packets"] == COUNT - lost[0]
    assert row.get("daq_receiver_capture_lossy") == (True if on_drop == "flag" else None)
    keys = documents.of("descriptor")[0]["data_keys"]
    assert keys["daq_receiver_capture_lost_before_engine"]["units"] == "packets"
    [file] = capture.files
    sidecar = read_sidecar(file)
    assert sidecar is not None
    assert sidecar.lost_before_engine == lost[0]
    assert sidecar.lost_before_engine_by_reason == {"backlog": lost[0]}
    assert sidecar.summary(file).lost_before_engine == lost[0]
    summary = summarize([file], "")
    assert (summary["dropped"], summary["lost_before_engine"]) == (0, lost[0])
    assert summary["lost_before_engine_by_reason"] == {"backlog": lost[0]}


def test_a_run_fails_and_says_why(
    daq: Any, lose: Callable[[], int], run_engine: RunEngine, documents: Documents
) -> None:
    lose()
    lost: list[int] = []
    with pytest.raises(FailedStatus) as raised:
        run_engine(flight(daq.receiver.capture, lambda: lost.append(lose())))
    error = raised.value.__cause__ or raised.value
    # The guide quotes the message.
    page = " ".join(PAGE.read_text().split())
    quoted = re.search(r"the network interface of port .*? set on_drop to 'flag' or 'ignore'", page)
    assert quoted is not None
    pattern = re.sub(r"\d+", r"(\\d+)", re.escape(quoted[0]))
    said = re.search(pattern, f"{error} {raised.value}")
    assert said is not None, (pattern, str(error))
    # It may fail while packets arrive.
    assert 0 < int(said[1]) == int(said[2]) <= lost[0]
    assert PacketLossError.__name__ in repr(raised.value) + repr(error)
    assert documents.stop["exit_status"] == "fail"


def test_a_port_s_readings_have_the_losses(daq: Any, lose: Callable[[], int]) -> None:
    told: list[int] = []
    daq.receiver.lost_backlog.subscribe(lambda value, **_: told.append(value))
    assert told == [0]
    lost = lose()
    reading = daq.read()
    expected = {"before_engine": lost, "card": 0, "backlog": lost, "errors": 0, "dropped": 0}
    for reason, count in expected.items():
        assert reading[f"daq_receiver_lost_{reason}"]["value"] == count
    assert daq.describe()["daq_receiver_lost_card"]["units"] == "packets"
    assert "daq_receiver_lost_before_engine" in daq.hints["fields"]
    wait_for(lambda: told[-1] == lost)


def test_stats_shows_the_losses(
    daq: Any, lose: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    lost = lose()
    wait_for(lambda: daq.engine.snapshot().ports[0].counters.lost_backlog == lost)
    stats = ["stats", "--pid", str(os.getpid()), "--count", "1"]
    assert _main._run(stats) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["port", "lost", "before", "engine", "dropped"] in lines
    assert ["receiver", f"{lost:,}", f"{lost:,}", "backlog"] in lines
    assert _main._run([*stats, "--json"]) == 0
    [answer] = map(json.loads, capsys.readouterr().out.splitlines())
    assert answer["ports"][0]["counters"]["lost_before_engine"] == lost
