"""Long scans, with the embedded catalog: what they lose, and what grows.

A step scan of 1,000 points, each of 20 packets that are sent to the loopback engine and captured to
a file; what a point takes in the first and the last hundred. And a fly scan that captures UDP
packets of 64 B over 127.0.0.1, with a new file each second, for 10 minutes where results are saved:
at a rate at which a recorder loses nothing in short trials, lowered until a tenth of the time, and
then all of it, is without loss as well; the room for the files limits it, too (`--bytes`). After
both, packets that were sent, in files and in rows are counted, Tiled validates the run, databroker
reads it; a difference ends the benchmark with an error. So does a device that keeps the RunEngine's
event loop for more than 50 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from bluesky import RunEngine
from loss_free import bisect, send_and_count
from machine import ROOT
from ophyd.sim import SynAxis
from programs import Program, built, cores, script
from runner import Comparison, Measurement, Want, arguments

from daqiri_ophyd import devices, plans, profiles
from daqiri_ophyd.catalog import Catalog, capture_files
from daqiri_ophyd.devices import Daq, make_daq
from daqiri_ophyd.engine import PcapFile, load_config

POINTS, POINT_PACKETS = 1000, 20
SIZE = 64
RECORD = SIZE + 28 + 16
REGION = 256 << 20
# Fraction of the loss-free rate in trials: a long scan sees more disturbance by the machine.
PART = 0.8
LOWER = 0.8
LEAST = 0.1
MARGIN_S = 3.0
LONGEST_MS = 50
DEVICES = str(Path(devices.__file__).parent)


class IncompleteError(Exception):
    """A sent packet is missing where it should be."""


def require(what: str, found: Any, expected: Any) -> None:
    """Raise an error if they differ."""
    if found != expected:
        raise IncompleteError(f"{what}: found {found}, expected {expected}")


def resident_mib() -> float:
    """Memory of this process, MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Watch:
    """Memory, and gaps of the RunEngine's event loop, from the start of a plan to its stop.

    A gap is one of devices if their code is on the stack of the loop's thread. What is subscribed
    later than the watch takes the stop document after that, such as a writer that stores the run.
    """

    def __init__(self, run_engine: RunEngine) -> None:
        self._loop = run_engine.loop
        self._task: Future[None] | None = None
        self._ended = False
        self._memory: list[float] = []
        self._gap = self._of_devices = 0.0
        self._beat, self._thread = time.monotonic(), 0
        self._left = threading.Event()
        run_engine.subscribe(self._end, "stop")

    def _end(self, *_: object) -> None:
        self._ended = True

    async def _look(self) -> None:
        pause, looked = 0.02, time.monotonic()
        self._thread = threading.get_ident()
        while True:
            before = self._beat = time.monotonic()
            await asyncio.sleep(pause)
            if self._ended:
                continue
            now = time.monotonic()
            self._gap = max(self._gap, now - before - pause)
            if now - looked > 0.2:
                looked = now
                self._memory.append(resident_mib())

    def _sample(self) -> None:
        while not self._left.wait(0.01):
            gap = time.monotonic() - self._beat - 0.02
            if gap <= self._of_devices:
                continue
            frame = sys._current_frames().get(self._thread)  # noqa: SLF001, there is no other way
            while frame is not None and not self._ended:
                if frame.f_code.co_filename.startswith(DEVICES):
                    self._of_devices = max(self._of_devices, gap)
                frame = frame.f_back

    def __enter__(self) -> Watch:
        self._ended, self._memory, self._gap, self._of_devices = False, [], 0.0, 0.0
        self._left.clear()
        self._beat = time.monotonic()
        threading.Thread(target=self._sample, daemon=True).start()
        self._task = asyncio.run_coroutine_threadsafe(self._look(), self._loop)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._task is not None  # noqa: S101, for the type checker
        self._task.cancel()
        self._left.set()

    def notes(self) -> dict[str, float | str]:
        """Return the results; memory as medians of the second and the last tenth of the time.

        Raises
        ------
        IncompleteError
            If a device has kept the loop for too long.
        """
        of_devices = self._of_devices * 1e3
        if of_devices > LONGEST_MS:
            raise IncompleteError(
                f"a device kept the loop for {of_devices:.0f} ms, expected at most {LONGEST_MS}"
            )
        tenth = max(1, len(self._memory) // 10)
        first, last = self._memory[tenth : 2 * tenth], self._memory[-tenth:]
        return {
            "MiB, first": float(np.median(first or self._memory)),
            "MiB, last": float(np.median(last)),
            "loop's longest gap, ms": self._gap * 1e3,
            "in devices, ms": of_devices,
        }


def check(catalog: Catalog, uid: str, device: str, sent: int) -> dict[str, float | str]:
    """Require that a run is complete; return how long the check took."""
    begun = time.monotonic()
    run: Any = catalog.client[uid]
    table = run["primary"].read()
    read = time.monotonic() - begun
    files = capture_files(run)
    rows = len(files)
    records = run["primary"].base[f"{device}_files", "summaries"].read()
    names = [file.name for file in files]
    require("names of files", table[f"{device}_files"].values.tolist() == names, True)
    require("packets in rows", int(table[f"{device}_packets"].sum()), sent)
    require("dropped in rows", int(table[f"{device}_dropped"].sum()), 0)
    require("packets in summary records", int(records["packets"].sum()), sent)
    require("rows", len(table["time"]), rows)
    begun = time.monotonic()
    counted = 0
    for file in files:
        with PcapFile(file) as pcap:
            require(f"torn bytes of {file}", pcap.torn_bytes, 0)
            counted += len(pcap)
    indexed = time.monotonic() - begun
    require("packets in files", counted, sent)
    begun = time.monotonic()
    require("validation", run.validate(raise_on_error=True), True)
    validated = time.monotonic() - begun
    begun = time.monotonic()
    require("rows by databroker", len(catalog.databroker()[uid].table()), rows)
    return {
        "rows": rows,
        "packets": sent,
        "read, s": read,
        "index files, s": indexed,
        "validate, s": validated,
        "databroker, s": time.monotonic() - begun,
    }


def step_scan(data: Path, points: int) -> tuple[list[float], dict[str, float | str]]:
    """Scan; return the times of the rows, s, and the results."""
    captures = data / "captures"
    with (
        Catalog.open(data / "catalog", readable=[captures]) as catalog,
        make_daq(profiles.path("loopback"), "daq", directory=captures) as daq,
    ):
        port: Any = daq.port0  # pyright: ignore[reportAttributeAccessIssue]
        run_engine = RunEngine({}, context_managers=[])
        watch = Watch(run_engine)
        run_engine.subscribe(catalog.writer())
        times: list[float] = []
        run_engine.subscribe(lambda _, doc: times.append(doc["time"]), "event")
        packets = {"count": POINT_PACKETS, "size": 200}
        motor = SynAxis(name="motor")
        begun = time.time()
        with watch:
            uids: Any = run_engine(
                plans.capture_scan(
                    *(port.capture, motor, 0, 1, points),
                    tx=port.tx.tx_q0,
                    packets=packets,
                    start_delay=0.0,
                )
            )
        ended = time.time()
        notes = {"store at the end, s": ended - times[-1], **watch.notes()}
        notes |= check(catalog, uids[0], port.capture.name, points * POINT_PACKETS)
        require("rows", notes["rows"], points)
    return [begun, *times], notes


def loss_free_rate(folder: Path, seconds: float) -> float:
    """Packets a second that a recorder of a UDP port takes without loss in short trials."""
    command = [*script("ours/record.py"), "udp", "buffered", "127.0.0.1", f"{SIZE}", f"{REGION}"]
    with Program([*command, str(folder)], cores()[1]) as receiver:
        port = str(receiver.ready["port"])
        with Program([built("peers_udp_send"), "127.0.0.1", port, f"{SIZE}"], cores()[0]) as sender:

            def trial(rate: float):
                receiver.ask("clear")
                return send_and_count(sender, receiver, rate, seconds)

            send_and_count(sender, receiver, 1000, 0.02)
            return bisect(trial, SIZE).value * 1e6


def udp_device(captures: Path) -> tuple[Daq, str]:
    """Return the device of profile `udp` with a receiver only, a larger region, and its port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    config = yaml.safe_load(profiles.path("udp").read_text().replace("47100", port))
    settings = config["daqiri"]["cfg"]
    del settings["interfaces"][1], settings["memory_regions"][1]
    settings["memory_regions"][0] |= {"num_bufs": REGION // 256, "buf_size": 256}
    settings["interfaces"][0]["socket_config"]["max_payload_size"] = 256
    settings["interfaces"][0]["rx"]["queues"][0]["batch_size"] = 1024
    return make_daq(load_config(config), "daq", directory=captures), port


class FlyScans:
    """Captures of UDP packets into one catalog."""

    def __init__(self, catalog: Catalog, daq: Daq, sender: Program) -> None:
        receiver: Any = daq.receiver  # pyright: ignore[reportAttributeAccessIssue]
        self.catalog, self._sender, self._capture = catalog, sender, receiver.capture
        self._run_engine = RunEngine({}, context_managers=[])
        self._watch = Watch(self._run_engine)
        self._run_engine.subscribe(catalog.writer())
        self._packets = self._dropped = 0
        self._run_engine.subscribe(self._count, "event_page")

    def _count(self, _name: str, page: dict[str, Any]) -> None:
        self._packets += sum(page["data"][self._capture.packets.name])
        self._dropped += sum(page["data"][self._capture.dropped.name])

    def fly(self, rate: float, seconds: float) -> tuple[str, int, dict[str, float | str]]:
        """Capture packets sent at a rate; return the uid, the packets sent, and the results."""
        sent: dict[str, Any] = {}

        def send() -> None:
            while self._capture.progress is None:
                time.sleep(0.01)
            sent.update(self._sender.ask(f"{rate} {seconds}"))

        self._packets = self._dropped = 0
        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        with self._watch as watch:
            uids: Any = self._run_engine(
                plans.capture(
                    self._capture,
                    acquire_time=seconds + MARGIN_S,
                    roll_seconds=1.0,
                    on_drop="ignore",
                )
            )
            ended = time.monotonic_ns()
        sender.join()
        after = (ended - sent["ended"]) / 1e9 - MARGIN_S
        return uids[0], sent["sent"], {"store at the end, s": max(after, 0.0), **watch.notes()}

    def remove_files(self) -> None:
        """Remove the files of the latest scan."""
        for file in self._capture.files:
            file.unlink()

    def is_whole(self, sent: int) -> bool:
        """Whether the latest scan is complete; a packet neither stored nor dropped is an error."""
        require("packets and drops in rows", self._packets + self._dropped, sent)
        return not self._dropped


def fly_scan(data: Path, seconds: float, trial: float, most_bytes: float) -> Measurement:
    """Kpps of a fly scan without loss."""
    captures = data / "captures"
    captures.mkdir()
    with tempfile.TemporaryDirectory(dir=data) as folder:
        possible = loss_free_rate(Path(folder), trial)
    room = most_bytes / RECORD / seconds
    rate = min(PART * possible, room)
    daq, port = udp_device(captures)
    with (
        Catalog.open(data / "catalog", readable=[captures]) as catalog,
        daq,
        Program([built("peers_udp_send"), "127.0.0.1", port, f"{SIZE}"], cores()[0]) as sender,
    ):
        scans = FlyScans(catalog, daq, sender)
        for length in (max(seconds / 10, 1.0), seconds):
            uid, sent, notes = scans.fly(rate, length)
            while not scans.is_whole(sent):
                if rate < LEAST * possible:
                    raise IncompleteError(f"packets are lost even at {rate / 1e3:.0f} kpps")
                scans.remove_files()
                rate *= LOWER
                uid, sent, notes = scans.fly(rate, length)
        notes |= check(catalog, uid, "daq_receiver_capture", sent)
    notes["limited by"] = "--bytes" if rate == room else "receiver"
    notes["without loss in trials, kpps"] = possible / 1e3
    return Measurement(sent / seconds / 1e3, notes)


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--disk", type=Path, default=ROOT / "build", help="a folder on a disk")
    parser.add_argument("--bytes", type=float, default=36e9, help="most, on that disk")
    parser.add_argument("--points", type=int, default=POINTS, help="of the step scan")
    parser.add_argument("--trial", type=float, default=0.3, help="seconds of a trial of a rate")
    args = arguments(__doc__, seconds=600 if "--save" in sys.argv else 10, rounds=1, parser=parser)
    comparison = Comparison("long_scans", "Long scans", __doc__, args)
    with tempfile.TemporaryDirectory(dir=args.disk) as folder:
        data = Path(folder)
        scan = cache(partial(step_scan, data / "step", args.points))
        part = max(1, min(100, args.points // 2))

        def of(first: bool) -> Measurement:
            times, notes = scan()
            some = times[: part + 1] if first else times[-part - 1 :]
            return Measurement((some[-1] - some[0]) / part * 1e3, {} if first else notes)

        comparison.case(
            f"step scan of {args.points} points",
            "ms a point",
            {f"first {part}": partial(of, True), f"last {part}": partial(of, False)},
            wants=(Want(f"last {part}", (f"first {part}",), at_most=1.2),),
            better="lower",
            digits=2,
            rounds=1,
        )
        fly = data / "fly"
        fly.mkdir()
        comparison.case(
            f"fly scan of {args.seconds:g} s",
            "kpps",
            {"capture": partial(fly_scan, fly, args.seconds, args.trial, args.bytes)},
            digits=2,
            rounds=1,
        )
    comparison.finish()


if __name__ == "__main__":
    main()
