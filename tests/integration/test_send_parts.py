"""Parts of captures, rewritten and repeated, sent from the command line."""

import json
import socket
import struct
import threading
from pathlib import Path

import dpkt
import numpy as np
import pytest

from daqiri_ophyd import profiles
from daqiri_ophyd.cli import _main
from daqiri_ophyd.cli._stimulus import udp_stimulus
from daqiri_ophyd.engine import write_pcap


def run(*arguments: str | Path) -> int:
    """Run the command; returns its exit code."""
    return _main._run(list(map(str, arguments)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Twenty frames, alternating between two UDP ports, 1 ms apart."""
    packets = udp_stimulus(20, 58, [5000, 5001])
    write_pcap(tmp_path / "a.pcap", packets, np.arange(20) * 1_000_000, 1)
    return tmp_path / "a.pcap"


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (["--packets", "2:8"], 6),
        (["--packets", "15:"], 5),
        (["--packets", ":3", "--loops", "4", "--loop-gap", "0.001"], 12),
        (["--between", "0.004", "0.0095"], 6),
        (["--select", "udp_dst=5001", "--select", "ipv4_src=192.0.2.1"], 10),
        (["--rewrite", "ip_dst=10.0.0.1", "--rewrite", "udp_dst=7"], 20),
    ],
)
def test_a_part_of_a_file_is_sent(file, capsys, options, sent):
    assert run("send", "loopback", file, "--json", *options) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == sent


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--packets", "2"], 2, "--packets is '2'; accepted is BEGIN:END"),
        (["--select", "udp_dst"], 2, "--select is 'udp_dst'; accepted is FIELD=VALUE"),
        (["--select", "udp_dst=9"], 1, "none of the 20 packets of"),
        (["--rewrite", "colour=9"], 1, "rewrite has unknown fields colour"),
    ],
)
def test_wrong_parts_say_what_is_accepted(file, capsys, options, code, text):
    assert run("send", "loopback", file, *options) == code
    assert text in " ".join(capsys.readouterr().err.split())


def test_a_tcp_capture_is_sent_as_its_stream(tmp_path, capsys):
    data = np.random.default_rng(2).bytes(30_000)
    records = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 101)]
    for at in range(0, len(data), 12_000):
        tcp = dpkt.tcp.TCP(sport=1, dport=2, seq=1 + at, data=data[at : at + 12_000])
        packet = bytes(dpkt.ip.IP(src=b"\1" * 4, dst=b"\2" * 4, p=6, data=tcp))
        records.append(struct.pack("<IIII", 0, at, len(packet), len(packet)) + packet)
    (tmp_path / "a.pcap").write_bytes(b"".join(records))
    received = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = profiles.path("tcp").read_text()
        config = tmp_path / "tcp.yaml"
        config.write_text(text.replace("47200", str(server.getsockname()[1])))

        def receive() -> None:
            peer, _ = server.accept()
            with peer:
                while part := peer.recv(65536):
                    received.extend(part)

        receiver = threading.Thread(target=receive)
        receiver.start()
        assert run("send", config, tmp_path / "a.pcap", "--json") == 0
        receiver.join(60)
    # 12,000 B do not fit the buffers of 8 KiB.
    assert json.loads(capsys.readouterr().out)["sent"] == 5
    assert bytes(received) == data
