"""A small instrument that writes pcap files, and catalogs for it."""

import json
import os
import shutil
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from ophyd import Component, Device, DeviceStatus, Signal
from run_documents import new_run_engine

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.documents import PCAP_MIMETYPE, CaptureStream, capture_data_key, sidecar_path


class SoftCapture(Device):
    """Writes a pcap file and its metadata for each trigger; several triggers may be in flight."""

    file_prefix = "soft"
    packets = Component(Signal, value=0, kind="hinted")
    dropped = Component(Signal, value=0, kind="hinted")

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name=name)
        self.folder = folder
        self.sidecars = True
        self.files_in_flight = 3
        self.runs = 0
        self.written: list[Path] = []
        self.before_read: Callable[[], None] = lambda: None
        self.before_write: Callable[[], None] = lambda: None
        self.counters = (self.packets, self.dropped)
        keys = {key: value for signal in self.counters for key, value in signal.describe().items()}
        self.stream = CaptureStream({f"{name}_files": "soft://capture"}, keys)

    def stage(self) -> list:
        self.runs += 1
        directory = self.folder / f"{self.name}-{self.runs}"
        directory.mkdir(parents=True)
        (self.sequence,) = self.stream.begin(directory, self.file_prefix)
        self.next_file = 0
        return super().stage()

    def write_file(self) -> None:
        number = self.next_file
        self.next_file += 1
        path = self.sequence.path(number)
        packets = [bytes([number]) * (60 + i) for i in range(number + 2)]
        with path.open("wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
            for i, packet in enumerate(packets):
                file.write(
                    struct.pack("<IIII", 1_700_000_000 + number, i, len(packet), len(packet))
                )
                file.write(packet)
        if self.sidecars:
            summary = {
                "packets": len(packets),
                "bytes": sum(map(len, packets)),
                "t_first_ns": (1_700_000_000 + number) * 10**9,
                "t_last_ns": (1_700_000_000 + number) * 10**9 + len(packets) - 1,
                "dropped": number,
                "dropped_by_reason": {"ring_full": number},
            }
            sidecar_path(path).write_text(json.dumps(summary))
        self.written.append(path)
        # Like native counters: numpy scalars, which plain JSON does not support.
        self.packets.put(np.uint64(len(packets)))
        self.dropped.put(np.uint64(number))
        self.stream.append({signal.name: signal.get() for signal in self.counters})

    def trigger(self) -> DeviceStatus:
        self.stream.discard()
        self.write_file()
        status = DeviceStatus(self, timeout=60)
        status.set_finished()
        return status

    def read(self) -> dict:
        self.before_read()
        return super().read()

    def kickoff(self) -> DeviceStatus:
        self._flight = DeviceStatus(self, timeout=60)

        def fly() -> None:
            for _ in range(self.files_in_flight):
                time.sleep(0.05)
                self.before_write()
                self.write_file()
            self._flight.set_finished()

        threading.Thread(target=fly).start()
        status = DeviceStatus(self, timeout=60)
        status.set_finished()
        return status

    def complete(self) -> DeviceStatus:
        return self._flight

    def describe(self) -> dict:
        return {**super().describe(), **self.stream.describe()}

    def describe_collect(self) -> dict:
        return self.stream.describe_collect()

    def collect_asset_docs(self) -> Iterator:
        yield from self.stream.collect_asset_docs()

    def collect_pages(self) -> Iterator:
        yield from self.stream.collect_pages()


def fly(device: SoftCapture, stream: str = "files", md: dict | None = None):
    """Let a device fly, its files and counters in one stream."""

    @bpp.stage_decorator([device])
    @bpp.run_decorator(md=md or {})
    def inner():
        yield from bps.declare_stream(device, name=stream, collect=True)
        yield from bps.kickoff(device, wait=True)
        yield from bps.collect_while_completing(
            [device], [device], flush_period=0.1, stream_name=stream
        )

    return (yield from inner())


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    path = tmp_path / "captures"
    path.mkdir()
    return path


@pytest.fixture
def device(captures: Path) -> SoftCapture:
    return SoftCapture("soft", captures)


@pytest.fixture
def fly_plan():
    return fly


@pytest.fixture
def run_engine() -> Iterator[RunEngine]:
    with new_run_engine() as engine:
        yield engine


@pytest.fixture
def catalog(tmp_path: Path, captures: Path, empty_catalog: Path) -> Iterator[Catalog]:
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    with Catalog.open(tmp_path / "catalog", readable=[captures]) as catalog:
        yield catalog


def pcap_of(packets: list[bytes]) -> bytes:
    """A pcap file, one packet a ns."""
    records = [
        struct.pack("<IIII", 1_700_000_000, i, len(packet), len(packet)) + packet
        for i, packet in enumerate(packets)
    ]
    return struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1) + b"".join(records)


def store_capture(
    catalog: Catalog,
    backup_directory: Path,
    uri: str,
    template: str,
    *,
    files: int = 1,
    mimetype: str = PCAP_MIMETYPE,
    **key: Any,
) -> str:
    """Store a run whose documents name these files, as any writer may; return its uid.

    ``key``: changes of the data key of the files.
    """
    uid, descriptor, resource = (str(uuid.uuid4()) for _ in range(3))
    key = {**capture_data_key("soft://capture"), **key}
    stamps = {"run_start": uid, "time": 1.0}
    rows = {"start": 0, "stop": files}
    parameters = {"template": template, "chunk_shape": [1]}
    writer = catalog.writer()
    for name, doc in (
        ("start", {"uid": uid, "time": 1.0, "scan_id": 1}),
        (
            "descriptor",
            {"uid": descriptor, "name": "primary", "data_keys": {"files": key}, **stamps}
            | {"object_keys": {}, "hints": {}, "configuration": {}},
        ),
        (
            "stream_resource",
            {"uid": resource, "run_start": uid, "mimetype": mimetype, "uri": uri}
            | {"data_key": "files", "parameters": parameters},
        ),
        (
            "stream_datum",
            {"uid": f"{resource}/0", "stream_resource": resource, "descriptor": descriptor}
            | {"indices": rows, "seq_nums": {"start": 1, "stop": files + 1}},
        ),
        ("stop", {"uid": str(uuid.uuid4()), "exit_status": "success", **stamps}),
    ):
        writer(name, doc)
    assert writer.backups == []
    return uid


@pytest.fixture
def stored_capture():
    return store_capture


@pytest.fixture
def pcap():
    return pcap_of


@pytest.fixture
def files_elsewhere(tmp_path: Path) -> Callable[[Path], dict[str, tuple[str, str]]]:
    """Addresses and templates that point outside of a directory of captures, by kind."""

    def make(captures: Path) -> dict[str, tuple[str, str]]:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "secret.pcap").write_bytes(pcap_of([b"secret" * 10]))
        (captures / "folder").symlink_to(outside)
        (captures / "file.pcap").symlink_to(outside / "secret.pcap")
        base = f"file://localhost{captures}"
        up = os.path.relpath(outside, captures)
        return {
            "outside": (f"file://localhost{outside}/", "secret.pcap"),
            "dots in the address": (f"{base}/{up}/", "secret.pcap"),
            "dots in the template": (f"{base}/", f"{up}/secret.pcap"),
            "link to a folder": (f"{base}/folder/", "secret.pcap"),
            "link to a file": (f"{base}/", "file.pcap"),
            "another host": (f"file://elsewhere.example{captures}/", "file.pcap"),
            "letters of the scheme": (f"FILE://localhost{outside}/", "secret.pcap"),
            "scheme of a database": (f"sqlite:///{outside}/", "secret.pcap"),
        }

    return make


def refusals(catalog: Catalog, uid: str) -> list[int]:
    """Status codes of all requests for the contents of the files of a run."""
    client = catalog.client.context.http_client
    api = str(catalog.client.context.api_uri)
    path = f"{catalog.uri.partition('/metadata/')[2]}/{uid}/primary/files"
    described = client.get(f"{api}metadata/{path}?include_data_sources=true").json()
    (source,) = described["data"]["attributes"]["data_sources"]
    number = source["assets"][0]["id"]
    return [
        client.get(f"{api}{route}").status_code
        for route in (
            f"asset/bytes/{path}?id={number}",
            f"array/full/{path}?format=application/json",
            f"array/block/{path}?block=0&format=application/json",
            f"table/partition/{path}/packets?partition=0&format=text/csv",
        )
    ]


@pytest.fixture
def status_codes():
    return refusals
