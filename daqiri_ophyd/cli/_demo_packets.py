"""The demonstration with packets: profiles loopback and udp."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from bluesky import preprocessors as bpp
from bluesky.utils import Msg, MsgGenerator
from numpy.typing import NDArray

import daqiri_ophyd.plans as plans
import daqiri_ophyd.profiles as profiles

from ..catalog import capture_files
from ..engine import LINKTYPE_ETHERNET, LINKTYPE_RAW, PcapFile, ethernet, load_config, write_pcap
from ..replay import PacketArray, gap_errors
from ._capture_files import read_arrivals, summarize
from ._output import print_facts, print_json, print_message
from ._picture import draw_capture
from ._source import interface_with
from ._stimulus import schedule, udp_stimulus
from ._workspace import Workspace, open_workspace

UDP_PORT = 5500
PAYLOAD_BYTES = 958
ETHERNET_HEADER = 14
GROUP = 500
# Longest time for the other process to start and send, s.
SENDER_TIMEOUT = 30.0


def demo_packets(profile: str, packets: int, interval_us: int, output: Path, as_json: bool) -> None:
    """Send packets, capture them, store the run, read it back, and replay it; check all of it."""
    say = (lambda _: None) if as_json else print_message
    times = schedule(packets, interval_us * 1000, GROUP)
    with open_workspace(load_config(profiles.path(profile)), output) as workspace:
        say(f"sending and capturing {packets:,} packets over {times[-1] / 1e9:.1f} s")
        if profile == "loopback":
            original, lateness = _capture_loopback(workspace, packets, times)
        else:
            original, lateness = _capture_udp(workspace, packets, times, output)
        stored = _read_back(workspace, original)
        if stored["packets"] != packets:
            raise RuntimeError(
                f"sent {packets} packets, but run {original} holds {stored['packets']}"
            )
        files = capture_files(workspace.catalog.client[original])
        _check_content(files, packets)
        say(f"stored as run {original}, read back and checked byte for byte; replaying")
        again, replayed = _replay(workspace, original)
        result = summarize(files, original)
        arrivals, lengths = read_arrivals(files)
        gaps = gap_errors(arrivals, replayed)
    picture = output.resolve() / "demo.png"
    pause = 11 * interval_us / 1000
    title = f"Packets every {interval_us} µs, and a pause of {pause:g} ms after each {GROUP}"
    draw_capture(picture, arrivals, lengths, replayed, title=f"{title} (profile {profile})")
    result = {
        "sent": packets,
        **result,
        "picture": str(picture),
        "lateness_ns": lateness,
        "replay": {
            "run": again,
            "sent": packets,
            "received": int(replayed.size),
            "gap_error_ns": {"p50": gaps.p50, "p99": gaps.p99},
        },
    }
    if as_json:
        print_json(result)
    else:
        _print_summary(result)


def _frames(count: int) -> NDArray[np.uint8]:
    return udp_stimulus(count, PAYLOAD_BYTES, [UDP_PORT])


def _capture_loopback(
    workspace: Workspace, count: int, times: NDArray[np.int64]
) -> tuple[str, dict[str, int]]:
    (port,) = (workspace.daq.port_device(i.name) for i in workspace.daq.config.interfaces)
    tx = port.tx.members[0]

    def plan() -> MsgGenerator[None]:
        yield from plans.configure_flows(
            workspace.daq, {port.port_name: {"detector": {"udp_dst": UDP_PORT}}}
        )
        yield from plans.capture(
            port.capture,
            num_packets=count,
            roll_packets=max(1, count // 4),
            tx=tx,
            packets=PacketArray(_frames(count), times),
            md={"purpose": "demonstration"},
        )

    uid = workspace.run(plan())
    row = tx.read()
    return uid, {name: row[f"{tx.name}_lateness_{name}"]["value"] for name in ("p50", "p99")}


def _capture_udp(
    workspace: Workspace, count: int, times: NDArray[np.int64], output: Path
) -> tuple[str, dict[str, int]]:
    config = workspace.daq.config
    detector = workspace.daq.port_device(interface_with(config, "rx", None)).capture
    stimulus = output / "stimulus.pcap"
    write_pcap(stimulus, _frames(count)[:, ETHERNET_HEADER:], times, LINKTYPE_RAW)
    command = [
        sys.executable,
        "-m",
        "daqiri_ophyd",
        "send",
        str(profiles.path("udp")),
        str(stimulus),
    ]
    senders: list[subprocess.Popen[str]] = []

    def start_sender() -> MsgGenerator[None]:
        senders.append(subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True))
        yield Msg("null")

    def once_recording(msg: Msg) -> tuple[MsgGenerator[Any] | None, None]:
        # A flyer is completed after its kickoff is done: the queue is being recorded by then.
        if msg.command != "complete" or senders:
            return None, None

        def both() -> MsgGenerator[Any]:
            yield from start_sender()
            return (yield msg)

        return both(), None

    capture = plans.capture(
        detector,
        num_packets=count,
        roll_packets=max(1, count // 4),
        timeout=SENDER_TIMEOUT,
        md={"purpose": "demonstration"},
    )
    try:
        uid = workspace.run(bpp.plan_mutator(capture, once_recording))
        text, _ = senders[0].communicate(timeout=SENDER_TIMEOUT)
    finally:
        for sender in senders:
            sender.kill()
            sender.wait()
    if senders[0].returncode != 0:
        raise RuntimeError(f"the sending process failed with exit code {senders[0].returncode}")
    lateness = json.loads(text)["lateness_ns"]
    return uid, {name: lateness[name] for name in ("p50", "p99")}


def _read_back(workspace: Workspace, uid: str) -> dict[str, int]:
    """Return the packets and bytes of a run, read with databroker."""
    table = workspace.catalog.databroker()[uid].table("primary")
    columns = {name.rsplit("_", 1)[-1]: name for name in table.columns}
    return {name: int(table[columns[name]].sum()) for name in ("packets", "bytes")}


def _check_content(files: list[Path], count: int) -> None:
    """Raise unless the payloads are identical to those sent, in order."""
    sent = _frames(count)
    expected = sent[:, -PAYLOAD_BYTES:]
    first = 0
    for file in files:
        with PcapFile(file) as pcap:
            offsets, lengths = ethernet.udp_payload(pcap)
            wanted = expected[first : first + len(pcap)]
            first += len(pcap)
            if np.any(lengths != PAYLOAD_BYTES):
                raise RuntimeError(
                    f"{file} has payloads of other lengths than the {PAYLOAD_BYTES} bytes sent"
                )
            payloads = pcap.data[offsets[:, np.newaxis] + np.arange(PAYLOAD_BYTES)]
            wrong = np.flatnonzero((payloads != wanted).any(axis=1))
            if wrong.size:
                raise RuntimeError(f"packet {wrong[0]} of {file} differs from what was sent")
            # Socket captures have reconstructed headers, which differ from those sent.
            if pcap.link_type == LINKTYPE_ETHERNET:
                _check_frames(pcap, sent[first - len(pcap) : first], file)
    if first != count:
        raise RuntimeError(f"the files hold {first} packets instead of {count}")


def _check_frames(pcap: PcapFile, sent: NDArray[np.uint8], file: Path) -> None:
    wrong = np.flatnonzero((pcap.gather() != sent).any(axis=1))
    if wrong.size:
        raise RuntimeError(f"frame {wrong[0]} of {file} differs from what was sent")


def _replay(workspace: Workspace, uid: str) -> tuple[str, NDArray[np.int64]]:
    """Replay a run and capture it again; returns the new run's uid and arrivals."""
    config = workspace.daq.config
    detector = workspace.daq.port_device(interface_with(config, "rx", None)).capture
    tx = workspace.daq.port_device(interface_with(config, "tx", None)).tx.members[0]
    again = workspace.run(
        plans.replay(tx, uid, workspace.catalog, detector=detector, md={"purpose": "demonstration"})
    )
    return again, read_arrivals(capture_files(workspace.catalog.client[again]))[0]


def _print_summary(result: dict[str, Any]) -> None:
    late, replay = result["lateness_ns"], result["replay"]
    gap = replay["gap_error_ns"]
    print_facts(
        [
            ("sent", f"{result['sent']:,} packets"),
            (
                "received",
                f"{result['received']:,} packets, {result['bytes']:,} bytes, "
                f"{result['dropped']:,} dropped",
            ),
            ("launch lateness", f"p50 {late['p50'] / 1e3:.1f} µs, p99 {late['p99'] / 1e3:.1f} µs"),
            ("replayed", f"{replay['received']:,} of {replay['sent']:,} packets"),
            ("replay gap error", f"p50 {gap['p50'] / 1e3:.1f} µs, p99 {gap['p99'] / 1e3:.1f} µs"),
            ("run", result["run"]),
            ("files", f"{len(result['files'])} in {Path(result['files'][0]).parent}"),
            ("picture", result["picture"]),
        ]
    )
