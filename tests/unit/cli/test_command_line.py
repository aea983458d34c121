"""The command: usage, configuration, exit codes."""

import json
import os
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from daqiri_ophyd import profiles
from daqiri_ophyd.cli import _capture, _demo, _main, _simulate
from daqiri_ophyd.cli._picture import draw_capture
from daqiri_ophyd.cli._stimulus import schedule, udp_stimulus
from daqiri_ophyd.devices import Capture, FrameDetector
from daqiri_ophyd.engine import PcapFile, ethernet, write_pcap
from daqiri_ophyd.simulate import INSTRUMENTS

TEN_MISTAKES = """\
daqiri:
  cfg:
    version: 2
    stream_type: raw
    loopback: sw
    master_core: zero
    log_level: loud
    memory_regions:
    - {name: frames, kind: gpu, num_bufs: 0, buf_size: 2048}
    interfaces:
    - name: port0
      address: loopback
      rx:
        flow_isolation: maybe
        queues:
        - {name: q, id: 0, cpu_core: any, batch_size: -5, timout_us: 5, memory_regions: [frames]}
        flows:
        - {name: f, id: 1, match: {udp_dst: 70000}, action: {type: queue, id: 3}}
"""


def run(*arguments: str) -> int:
    """Run the command; returns its exit code."""
    return _main._run(list(arguments))


@pytest.mark.parametrize(
    "command", ["demo", "shell", "info", "capture", "send", "replay", "config", "stats", "run"]
)
def test_every_command_has_help_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "--help") == 0
    text = capsys.readouterr().out
    assert "Usage" in text
    if command != "config":
        assert "Example" in text


def test_the_words_in_help_are_those_of_packages_that_help_does_not_import() -> None:
    assert list(_simulate.NAMES) == sorted(INSTRUMENTS)
    assert set(_demo.WRITERS) == set(FrameDetector.writer.kwargs["choices"])
    assert get_args(_capture.OnDrop) == Capture.on_drop.kwargs["choices"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("info", "--nonsense"),
        ("send",),
        ("config", "show", "no-such-file.yaml"),
        ("demo", "--writer", "cufile"),
        ("demo", "--profile", "gpu", "--writer", "disk"),
    ],
)
def test_bad_usage_is_exit_code_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize("expression", ["udp", ""])
def test_a_configuration_has_its_own_filter(
    expression: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("capture", "loopback", "--packets", "1", "--filter", expression) == 2
    assert "--filter require a network interface" in capsys.readouterr().err


def test_info_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("info", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {"version", "engines", "engine_facts", "profiles", "cores"} <= found.keys()
    assert set(found["profiles"]) == set(profiles.names())


def test_info_tells_what_dpdk_is_and_finds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("info", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    if found["engines"]["dpdk"] != "available":
        assert "dpdk" not in found["engine_facts"]
        pytest.skip(found["engines"]["dpdk"])
    facts = found["engine_facts"]["dpdk"]
    assert facts["library"].startswith("DPDK ")
    assert {"ring", "tap", "mlx5"} <= set(facts["drivers"].split(", "))
    assert run("info") == 0
    lines = capsys.readouterr().out.splitlines()
    [line] = [each for each in lines if each.startswith("dpdk library")]
    assert line.endswith(facts["library"])


def test_all_profiles_pass_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("config", "check", *profiles.names()) == 0


def test_ten_mistakes_are_ten_errors_with_line_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(TEN_MISTAKES)
    assert run("config", "check", "--json", str(file)) == 2
    (report,) = json.loads(capsys.readouterr().out).values()
    errors = [p for p in report["problems"] if p["severity"] == "error"]
    assert len(errors) == 10, [(p["path"], p["message"]) for p in errors]
    assert all(p["line"] > 0 and p["path"] for p in errors)
    assert run("config", "show", str(file)) == 2
    assert "wrong.yaml:3" in capsys.readouterr().err


def test_what_the_engine_does_not_have_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ecpri.yaml"
    file.write_text(
        profiles.path("udp").read_text().replace(
            "        queues:\n        - name: rx_q0",
            "        flows:\n"
            "        - name: one\n"
            "          id: 1\n"
            "          match: {ecpri: {msg_type: 0}}\n"
            "          action: {type: queue, id: 0}\n"
            "        queues:\n        - name: rx_q0",
        )
    )  # fmt: skip
    assert run("config", "check", str(file)) == 2
    message = "interface 'receiver': flow 'one': match by eCPRI, which engine 'socket' does"
    assert f"{file}: error: {message} not have" in capsys.readouterr().err
    file.write_text(
        profiles.path("igx").read_text().replace("log_level:", "engine: ibverbs\n    log_level:", 1)
    )
    assert run("config", "check", str(file)) == 0
    assert "warning: engine 'ibverbs' is not part of this build" in capsys.readouterr().err


def test_show_writes_a_configuration_that_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("config", "show", "loopback") == 0
    file = tmp_path / "shown.yaml"
    file.write_text(capsys.readouterr().out)
    assert run("config", "check", str(file)) == 0


def test_stub_writes_a_python_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("config", "stub", "loopback") == 0
    written = capsys.readouterr().out
    assert "class Port0(Port):" in written
    exec(written, {})


def test_send_plays_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "stimulus.pcap"
    packets = udp_stimulus(500, 100, [5000])
    write_pcap(file, packets, schedule(500, 20_000, 50), link_type=1)
    assert run("send", "loopback", str(file), "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["sent"] == 500
    assert result["bytes"] == packets.size
    assert result["dropped"] == 0


def test_send_refuses_what_is_no_capture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notes.pcap"
    file.write_text("not a capture, but long enough to have a header")
    assert run("send", "loopback", str(file)) == 1
    assert "notes.pcap" in capsys.readouterr().err


def test_the_stimulus_file_is_a_pcap_file_of_valid_frames(tmp_path: Path) -> None:
    file = tmp_path / "stimulus.pcap"
    packets = udp_stimulus(100, 64, [5000, 5001])
    times = 1_700_000_000_000_000_000 + schedule(100, 1_000, 10)
    write_pcap(file, packets, times, link_type=1)
    with PcapFile(file) as pcap:
        assert np.array_equal(pcap.gather(), packets)
        assert np.array_equal(pcap.timestamps, times)
        offsets, lengths = ethernet.udp_payload(pcap)
        numbers = [int.from_bytes(pcap.data[o : o + 4].tobytes()) for o in offsets]
        assert numbers == list(range(100))
        assert set(lengths.tolist()) == {64}


def test_pictures_of_captures_with_and_without_packets(tmp_path: Path) -> None:
    times = np.cumsum(np.full(1000, 20_000, np.int64))
    lengths = np.full(1000, 500, np.uint32)
    draw_capture(tmp_path / "a.png", times, lengths, times + 5, "title")
    draw_capture(tmp_path / "b.png", times[:0], lengths[:0])
    draw_capture(tmp_path / "c.png", times[:1], lengths[:1])
    for name in "abc":
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seconds", "inf"), "'--seconds': found 'inf'; accepts numbers from 0 to 3000000000 s"),
        (("--seconds", "nan"), "'--seconds': found 'nan'; accepts numbers from 0 to 3000000000 s"),
        (("--seconds", "1e308"), "found '1e308'; accepts numbers from 0 to 3000000000 s"),
        (("--seconds", "-1"), "found '-1'; accepts numbers from 0 to 3000000000 s"),
        (
            ("--packets", "1", "--roll-seconds", "1e10"),
            "'--roll-seconds': found '1e10'; accepts numbers",
        ),
        (
            ("--packets", "1e20"),
            "found '1e20'; accepts whole numbers from 0 to 9223372036854775807",
        ),
        (("--packets", "1" + "0" * 20), "accepts whole numbers from 0 to 9223372036854775807"),
        (("--packets", "1", "--roll-bytes", "9" * 30), "--roll-bytes"),
        (("--packets", "1", "--data", "what?"), "'?' is not allowed in the URI"),
    ],
)
def test_limits_that_are_none_are_refused_at_once(
    arguments: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("capture", "loopback", *arguments) in (1, 2)
    assert said in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_named_pipes_are_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    assert run("config", "check", str(pipe)) == 2
    assert "is a named pipe, which is not read" in capsys.readouterr().err
    for command in (["pcap", "info"], ["pcap", "check"], ["pcap", "repair"], ["send", "loopback"]):
        assert run(*command, str(pipe)) != 0
        assert str(pipe) in capsys.readouterr().err


def test_long_gaps_are_shortened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "stimulus.pcap"
    times = np.array([0, 1, 4_000_000_000, 4_000_000_001], np.int64) * 1_000_000_000
    write_pcap(file, udp_stimulus(4, 100, [5000]), times, link_type=1)
    assert run("send", "loopback", str(file), "--max-gap", "0.01", "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["sent"] == 4
    assert said.err == ""
    assert run("send", "loopback", str(file), "--max-gap", "nan") == 2


def test_names_that_are_shortened_in_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The devices of a configuration are checked, too, for a device with the name daq."""
    text = profiles.path("loopback").read_text().replace("port0", "jungfrau_receiver")
    file = tmp_path / "long.yaml"
    file.write_text(text.replace("rx_q0", "module_0_queue"))
    complete, short = "daq_jungfrau_receiver_rx_module_0_queue", "daq_jungf_receiv_rx_modu_0_queue"
    names = {complete: short, f"{complete}_capture": f"{short}_capture"}
    assert run("config", "check", str(file)) == 0
    printed = capsys.readouterr().err.splitlines()
    assert printed[0] == f"{file}: names are shortened in columns, which have up to 60 bytes:"
    assert [tuple(line.split()) for line in printed[1:]] == list(names.items())
    assert run("config", "check", "--json", str(file)) == 0
    (report,) = json.loads(capsys.readouterr().out).values()
    assert report == {"ok": True, "problems": [], "shortened": names}
    file.write_text(text.replace("rx_q0", "module_0"))
    assert run("config", "check", str(file)) == 0
    assert capsys.readouterr().err == ""


def test_names_that_catalogs_cannot_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = profiles.path("loopback").read_text()
    file = tmp_path / "long.yaml"
    file.write_text(text.replace("port0", "_1" * 12).replace("rx_q0", "_2" * 12))
    assert run("config", "check", str(file)) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert "bytes, and catalogs accept up to 60" in printed
    assert run("config", "check", "--json", str(file)) == 2
    (report,) = json.loads(capsys.readouterr().out).values()
    (problem,) = report["problems"]
    assert problem["severity"] == "error" and "Use shorter names" in problem["message"]
    assert report["shortened"] == {}
