"""The line that `capture` shows while it records."""

from pathlib import Path

import pytest

from daqiri_ophyd import profiles
from daqiri_ophyd.cli._capture_progress import counts_line, rate_text
from daqiri_ophyd.cli._stimulus import udp_stimulus
from daqiri_ophyd.engine import Engine, QueueRecording


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0, "0 b/s"),
        (999.4, "999 b/s"),
        (999.5, "1.00 kb/s"),
        (12_345, "12.3 kb/s"),
        (123_456_789, "123 Mb/s"),
        (9.994e9, "9.99 Gb/s"),
        (4e12, "4,000 Gb/s"),
    ],
)
def test_rates_have_three_digits(rate: float, text: str) -> None:
    assert rate_text(rate) == text


def test_the_line_counts_from_the_beginning_of_the_recording(tmp_path: Path) -> None:
    times = [100.0]
    packets = udp_stimulus(40, 100, [5000])
    with Engine.open(profiles.path("loopback")) as engine:
        port = engine.ports[0]
        recording = QueueRecording.start(
            port, [port.rx[0].name], tmp_path, "a", limits={"max_packets": 40}, options={}
        )
        line = counts_line(recording, lambda: times[-1])
        assert line().plain == "0:00:00  0 packets  0 b/s  dropped 0  a_000000.pcap"
        port.tx[0].send(packets)
        assert recording.recorders[0].wait(10)
        times.append(3761.0)
        assert line().plain == "40 packets  dropped 0  storing the run"
        recording.stop()
