"""`daqiri-ophyd simulate` through an engine: its output, and rejected input."""

import errno
import json
import resource
import signal
import socket
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from free_ports import free_port, free_ports

from daqiri_ophyd.cli import _main, _simulate_senders
from daqiri_ophyd.engine import Engine
from daqiri_ophyd.simulate import INSTRUMENTS, Disturbance, Instrument, Traffic

Config = dict[str, Any]
LOSSY = ["--loss", "0.1", "--duplicates", "0.2", "--shuffle", "8", "--seed", "2"]


def run(*arguments: str | Path) -> int:
    """Run the command; returns its exit code."""
    return _main._run(list(map(str, arguments)))


@pytest.mark.parametrize(
    "instrument",
    [INSTRUMENTS[name] for name in ("ecpri", "gige-vision", "jungfrau", "spead", "vita49")],
)
def test_a_socket_of_an_engine_sends_to_the_profile(
    instrument: Instrument,
    udp_config: tuple[Config, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    config, _ = udp_config
    file = tmp_path / "both.yaml"
    file.write_text(json.dumps(config))
    options = ["--queue", "sender/tx_q0", "--frames", "2", "--rate", "10", "--json"]
    with Engine.open({**config, "interfaces": config["interfaces"][:1]}) as engine:
        (plan,) = engine.ports[0].reorder.values()
        with plan.frames(timeout=60.0) as frames:
            assert run("simulate", instrument.name, "--config", file, *options) == 0
            got = [next(frames).data for _ in range(2)]
    packets = 2 * instrument.packets_per_frame
    # Memory regions that only the receiver uses are not opened, or there would be a warning.
    assert not [text for text in caplog.messages if "rx_buffers" in text or "frames" in text]
    said = json.loads(capsys.readouterr().out)
    assert (said["frames"], said["sent"], said["dropped"]) == (2, packets, 0)
    (chunk,) = Traffic(instrument, 2)
    for one, sent in zip(got, chunk.frames, strict=True):
        np.testing.assert_array_equal(one, sent)


def test_it_tells_what_was_sent_lost_and_duplicated(
    instrument: Instrument,
    loopback_config: Config,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "loopback.yaml"
    file.write_text(json.dumps(loopback_config))
    command = ["simulate", instrument.name, "--config", str(file), "--frames", "2", "--rate", "0"]
    assert run(*command, *LOSSY, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    disturbance = Disturbance(loss=0.1, duplicates=0.2, shuffle=8)
    chunks = list(Traffic(instrument, 2, disturbance=disturbance, seed=2))
    assert said == {
        "frames": 2,
        "sent": sum(len(chunk.packets) for chunk in chunks),
        "bytes": sum(int(chunk.sizes.sum()) for chunk in chunks),
        "lost": sum(chunk.lost for chunk in chunks),
        "duplicated": sum(chunk.duplicated for chunk in chunks),
        "dropped": 0,
    }
    assert said["sent"] == 2 * instrument.packets_per_frame - said["lost"] + said["duplicated"]
    assert run(*command, *LOSSY) == 0
    words = capsys.readouterr().out.split()
    assert words[words.index("purpose") + 1] == f"{said['lost']:,}"
    assert words[words.index("duplicated") + 1] == f"{said['duplicated']:,}"


@pytest.mark.parametrize("engine", [False, True])
@pytest.mark.parametrize("instrument", [INSTRUMENTS["gige-vision"]])
def test_after_a_restart_frames_are_numbered_from_the_beginning(
    instrument: Instrument,
    udp_config: tuple[Config, int],
    engine: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config, port = udp_config
    file = tmp_path / "both.yaml"
    file.write_text(json.dumps(config))
    to = ["--config", file, "--queue", "sender/tx_q0"] if engine else [f"127.0.0.1:{port}"]
    with Engine.open({**config, "interfaces": config["interfaces"][:1]}) as receiver:
        plan = receiver.ports[0].reorder["images"]
        with plan.frames(timeout=60.0) as frames:
            options = ["--frames", "4", "--restart", "2", "--rate", "20", "--json"]
            assert run("simulate", instrument.name, *to, *options) == 0
            got = [(frame.batch, frame.data.copy()) for frame in islice(frames, 4)]
    assert json.loads(capsys.readouterr().out)["frames"] == 4
    assert [batch for batch, _ in got] == [1, 2, 1, 2]
    assert plan.counters().restarts == 1
    traffic = Traffic(instrument, 4, restart=2)
    for number, (_, data) in enumerate(got):
        np.testing.assert_array_equal(data, traffic.frame(number))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["camera", "h:1"], "no instrument 'camera'; accepted are ecpri, eiger-12bit,"),
        (["spead"], "no destination; give HOST:PORT, or --config"),
        (["spead", "7148"], "destination is '7148'; accepted is HOST:PORT"),
        (["spead", "h:0"], "destination is 'h:0'; accepted is HOST:PORT. Ports are 1 to 65535"),
        (["jungfrau-500k", "h:0-1"], "destination is 'h:0-1'; accepted is HOST:FIRST-LAST with 2"),
        (["spead", "h:70000"], "destination is 'h:70000'; accepted is HOST:PORT"),
        (
            ["jungfrau-stack", "h:1-3"],
            "destination is 'h:1-3'; accepted is HOST:PORT, or HOST:FIRST-LAST with 4 ports",
        ),
        (["spead", "h:1", "--queue", "a/b"], "--queue is a queue of an engine; give --config, too"),
        (["spead", "h..x:1"], "HOST:PORT: host 'h..x' is not known"),
        (["spead", "h:1", "--config", "loopback"], "found host 'h'; with --config of raw ports"),
        (["jungfrau-stack", "--config", "udp"], "has 4 UDP streams, and a socket has one"),
    ],
)
def test_what_it_cannot_do_is_said(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("simulate", *arguments) == 2
    assert text in " ".join(capsys.readouterr().err.split())


def test_modules_that_only_ports_tell_apart_are_not_sent_to_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "stack.yaml"
    file.write_text(
        "{name: stack, engine: packet, address: lo, port: 6000-6003, modules: 4, frame: [4, 8],"
        " pixels: uint16, payload_bytes: 16, header: [{name: f, bytes: 4, role: frame_number}]}"
    )
    assert run("simulate", file, "127.0.0.1:6000", "--frames", "1") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "destination is '127.0.0.1:6000'; accepted is HOST:FIRST-LAST with 4 ports" in said


def test_more_streams_than_the_process_may_open_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Exhausted(socket.socket):
        def __init__(self, *_: object) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(_simulate_senders.socket, "socket", Exhausted)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert run("simulate", "jungfrau-stack", "127.0.0.1:50000") == 1
    said = " ".join(capsys.readouterr().err.split())
    assert f"has 4 streams, each with a socket, and this process may open {most} files" in said
    assert "ulimit -n 260" in said


def test_two_simulators_of_one_instrument(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    to = free_ports("udp", 8)
    # Told apart by the ports that they are sent to: any number of simulators.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        taken = free_port("udp")
        other.bind(("", taken))
        monkeypatch.setattr(Instrument, "source_port", taken)
        options = ["--frames", "1", "--rate", "0"]
        assert run("simulate", "jungfrau-500k", f"127.0.0.1:{to}-{to + 1}", *options) == 0
        capsys.readouterr()
        # Told apart by those that they come from: one.
        assert run("simulate", "jungfrau-stack", f"127.0.0.1:{to}", *options) == 1
        said = " ".join(capsys.readouterr().err.split())
    assert f"UDP port {taken}, from which jungfrau-stack sends its stream 0, is in use" in said
    assert f"ss -ulpn sport = :{taken}" in said


@pytest.mark.parametrize("count", [0, 100_000])
def test_ctrl_c_ends_a_simulator_with_what_was_sent(count: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        to = f"127.0.0.1:{receiver.getsockname()[1]}"
        command = ["simulate", "ecpri", to, "--frames", str(count), "--rate", "50", "--json"]
        process = subprocess.Popen(
            [sys.executable, "-m", "daqiri_ophyd", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            for _ in range(20):
                receiver.recv(65536)
            process.send_signal(signal.SIGINT)
            out, said = process.communicate()
        finally:
            process.kill()
            process.wait()
    told = json.loads(out)
    # The last packet may have been sent, and not counted yet.
    assert told["sent"] >= 19 and told["bytes"] > 0
    assert "Traceback" not in said
    if count:
        assert process.returncode == 1
        assert f"interrupted; {told['frames']:,} of 100,000 frames were sent" in said
    else:
        assert process.returncode == 0
