"""Packets of stored captures as tables, for a client without this package."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bluesky import plans as bp

from daqiri_ophyd.catalog import _packet_table, _tree
from daqiri_ophyd.documents import CAPTURE_MIMETYPES, sidecar_path

# Does not import this package.
CLIENT = """
import json, sys
from tiled.client import from_uri

server = from_uri(sys.argv[1], api_key=sys.argv[2])
table = server["runs", sys.argv[3], "primary", "files", "packets"]
whole = table.read()
part = table.read_partition(1, ["file", "packet", "src_port"])
print(json.dumps({
    "columns": table.columns,
    "partitions": table.structure().npartitions,
    "src": list(whole["src"]),
    "dst_port": [int(n) for n in whole["dst_port"]],
    "time": [str(t) for t in whole["time"]],
    "part": {name: [int(n) for n in part[name]] for name in part},
    "imported": sorted(name for name in sys.modules if name.startswith("daqiri")),
}))
"""


def frame(last: int, port: int) -> bytes:
    """A UDP datagram from 10.0.0.LAST to 10.0.0.9."""
    ethernet = bytes.fromhex("0200000000090200000000") + bytes([last]) + b"\x08\x00"
    ip = bytes.fromhex("4500002000000000401100000a0000") + bytes([last, 10, 0, 0, 9])
    return ethernet + ip + port.to_bytes(2) + (5500).to_bytes(2) + b"\0\x0c\0\0" + b"data"


@pytest.fixture
def small_partitions(monkeypatch):
    monkeypatch.setattr(_packet_table, "ROWS", 2)


def test_packets_are_read_with_tiled_alone(
    catalog, captures, tmp_path, small_partitions, stored_capture, pcap, monkeypatch
):
    for number, ports in enumerate([[1, 2, 3], [], [4]]):
        packets = [frame(number + 1, port) for port in ports]
        (captures / f"c_{number}.pcap").write_bytes(pcap(packets))
    uid = stored_capture(catalog, tmp_path, f"file://localhost{captures}/", "c_{:d}.pcap", files=3)
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(catalog.client.context.api_uri), catalog.api_key, uid],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["imported"] == []
    # Two of the first file; its last packet, none of the empty one, and one of the last.
    assert seen["partitions"] == 2
    assert seen["src"] == ["10.0.0.1"] * 3 + ["10.0.0.3"]
    assert seen["dst_port"] == [5500] * 4
    assert seen["time"][1] == "2023-11-14 22:13:20.000000001+00:00"
    assert seen["part"] == {"file": [0, 2], "packet": [2, 0], "src_port": [3, 4]}
    assert seen["columns"][:5] == ["file", "packet", "time", "length", "wire_length"]

    table = catalog.client[uid].base["primary"].base["files", "packets"]
    assert table.read()["eth_src"].tolist()[-1] == "02:00:00:00:00:03"
    # As a spreadsheet, and in a browser.
    client, api = catalog.client.context.http_client, catalog.client.context.api_uri
    path = f"runs/{uid}/primary/files/packets"
    rows = client.get(f"{api}table/full/{path}?format=text/csv&column=src&column=length").text
    assert rows.splitlines()[:2] == ["src,length", "10.0.0.1,46"]
    for media_type in ("text/html", "application/json"):
        assert client.get(f"{api}table/full/{path}?format={media_type}").status_code == 200
    for wrong, why in (("partition=3", "out of range"), ("partition=0&column=no", "No such field")):
        answer = client.get(f"{api}table/partition/{path}?{wrong}")
        assert (answer.status_code, why in answer.text) == (400, True)
    assert client.get(f"{api}metadata/runs/{uid}/primary/files/nonsense").status_code == 404
    monkeypatch.setattr(_packet_table, "_MOST_AT_ONCE", 1)
    answer = client.get(f"{api}table/full/{path}?format=text/csv")
    assert answer.status_code == 400 and "in 2 partitions" in answer.text
    (captures / "c_2.pcap").write_bytes(b"no capture at all")
    answer = client.get(f"{api}table/partition/{path}?partition=0&format=text/csv")
    assert answer.status_code == 422 and "not a pcap file" in answer.text


def test_a_run_without_packets_has_an_empty_table(
    catalog, captures, tmp_path, stored_capture, pcap
):
    (captures / "c.pcap").write_bytes(pcap([]))
    uid = stored_capture(catalog, tmp_path, f"file://localhost{captures}/", "c.pcap")
    table = catalog.client[uid].base["primary"].base["files", "packets"]
    assert len(table.read()) == 0 and "src_port" in table.columns


def test_a_raw_capture_has_the_columns_of_its_index(catalog, captures, tmp_path, stored_capture):
    (captures / "r.raw").write_bytes(bytes(300))
    index = np.zeros(
        3, [("offset", "<u8"), ("length", "<u4"), ("flow", "<u4"), ("timestamp", "<u8")]
    )
    index["length"], index["flow"], index["timestamp"] = 100, [7, 8, 7], [5, 6, 7]
    np.save(captures / "r.raw.npy", index)
    uid = stored_capture(
        catalog,
        tmp_path,
        f"file://localhost{captures}/",
        "r.raw",
        mimetype=CAPTURE_MIMETYPES["raw"],
    )
    rows = catalog.client[uid].base["primary"].base["files", "packets"].read()
    assert list(rows.columns) == ["file", "packet", "time", "length", "flow", "offset"]
    assert rows["flow"].tolist() == [7, 8, 7]
    assert rows["time"].tolist() == [pd.Timestamp(n, tz="UTC") for n in (5, 6, 7)]


def test_the_table_changes_nothing_else_of_a_run(catalog, device, run_engine):
    run_engine.subscribe(catalog.writer())
    (uid,) = run_engine(bp.count([device], 3))
    run = catalog.client[uid]
    stream = run["primary"]
    assert len(stream.base["soft_files", "packets"].read()) == 2 + 3 + 4
    assert {"soft_packets", "soft_dropped", "soft_files"} == set(stream.read().data_vars)
    assert run.validate(raise_on_error=True) is True
    assert [name for name, _ in run.documents()][-1] == "stop"


def test_files_and_their_summaries_can_be_seen_in_a_browser(catalog, device, run_engine):
    run_engine.subscribe(catalog.writer())
    (uid,) = run_engine(bp.count([device], 2))
    client, api = catalog.client.context.http_client, catalog.client.context.api_uri
    address = f"{api}array/full/runs/{uid}/primary/soft_files"
    page = client.get(f"{address}/summaries?format=text/html")
    assert page.status_code == 200
    assert "<th>packets</th>" in page.text and "<td>121</td>" in page.text
    picture = client.get(f"{address}/summaries?format=image/png")
    assert picture.status_code == 406 and "fields packets, bytes" in picture.text
    page = client.get(f"{address}?format=text/html")
    assert page.status_code == 200 and "<td>soft_000001.pcap</td>" in page.text
    picture = client.get(f"{address}?format=image/png")
    assert picture.status_code == 406 and "text is not a picture" in picture.text


def test_files_that_nobody_reads_any_more_are_not_kept_open(
    catalog, captures, tmp_path, stored_capture, pcap, monkeypatch
):
    monkeypatch.setattr(_packet_table, "_IDLE_S", 0.2)
    for number in range(6):
        (captures / f"c_{number}.pcap").write_bytes(pcap([frame(1, number)]))
    uid = stored_capture(catalog, tmp_path, f"file://localhost{captures}/", "c_{:d}.pcap", files=6)
    packets = catalog.client[uid]["primary"].base["files", "packets"]

    def mapped() -> list[str]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return [line for line in lines if f"{captures}/" in line]

    # By the server, which runs in this process.
    assert packets.read(["src_port"])["src_port"].tolist() == list(range(6))
    deadline = time.monotonic() + 60
    while mapped():
        assert time.monotonic() < deadline, mapped()
        time.sleep(0.05)
    assert packets.read(["src_port"])["src_port"].tolist() == list(range(6))
    # Data read before is not returned for a removed file.
    (captures / "c_3.pcap").unlink()
    with pytest.raises(Exception, match=r"422.*No such file.*c_3\.pcap"):
        packets.read(["src_port"])


def test_metadata_of_files_are_read_once_for_all_requests(catalog, device, run_engine, monkeypatch):
    read = []
    stock = _packet_table.read_sidecar
    monkeypatch.setattr(
        _packet_table, "read_sidecar", lambda path: (read.append(path), stock(path))[1]
    )
    run_engine.subscribe(catalog.writer())
    (uid,) = run_engine(bp.count([device], 3))
    packets = catalog.client[uid]["primary"].base["soft_files", "packets"]
    for _ in range(3):
        assert len(packets.read_partition(0, ["length"])) == 2 + 3 + 4
    assert sorted(read) == device.written


def test_many_small_files_share_a_partition(
    catalog, captures, tmp_path, stored_capture, pcap, monkeypatch
):
    for number in range(50):
        (captures / f"c_{number}.pcap").write_bytes(pcap([frame(1, number)] * (number % 3)))
    uid = stored_capture(catalog, tmp_path, f"file://localhost{captures}/", "c_{:d}.pcap", files=50)
    stream = catalog.client[uid]["primary"].base
    packets = stream["files", "packets"]
    wanted = [(number, i) for number in range(50) for i in range(number % 3)]
    assert packets.structure().npartitions == 1
    rows = packets.read(["file", "packet", "src_port"])
    assert list(zip(rows["file"], rows["packet"], strict=True)) == wanted
    assert rows["src_port"].tolist() == [number for number, _ in wanted]
    # Up to a size: each file of a partition is indexed for it.
    monkeypatch.setattr(_packet_table, "_SHARED_BYTES", 1000)
    packets = stream["files", "packets"]
    sizes = [file.stat().st_size for file in captures.iterdir() if file.stat().st_size > 24]
    assert sum(sizes) // 1000 < packets.structure().npartitions < len(sizes) / 2
    rows = packets.read(["file", "packet"])
    assert list(zip(rows["file"], rows["packet"], strict=True)) == wanted
    # A file that grew has other partitions.
    (captures / "c_0.pcap").write_bytes(pcap([frame(1, 9)] * 3))
    assert stream["files", "packets"].read(["file"])["file"].tolist()[:4] == [0, 0, 0, 1]


def test_addresses_of_files_are_loaded_once_and_checked_for_each_request(
    catalog, captures, tmp_path, stored_capture, pcap, monkeypatch
):
    monkeypatch.setattr(_packet_table, "ROWS", 1)
    for number in range(6):
        (captures / f"c_{number}.pcap").write_bytes(pcap([frame(1, number)]))
    uid = stored_capture(catalog, tmp_path, f"file://localhost{captures}/", "c_{:d}.pcap", files=6)
    packets = catalog.client[uid]["primary"].base["files", "packets"]
    loaded = []
    stock = _tree.confined_path
    monkeypatch.setattr(
        _tree,
        "confined_path",
        lambda uri, folders, **options: (loaded.append(uri), stock(uri, folders, **options))[1],
    )
    assert packets.read(["src_port"])["src_port"].tolist() == list(range(6))  # 6 requests
    assert len(loaded) <= 6
    outside = tmp_path / "outside.pcap"
    (captures / "c_5.pcap").rename(outside)
    (captures / "c_5.pcap").symlink_to(outside)
    with pytest.raises(Exception, match=r"403.*c_5\.pcap.*is not below a readable directory"):
        packets.read_partition(0, ["src_port"])
    (captures / "c_5.pcap").unlink()
    outside.rename(captures / "c_5.pcap")
    # Metadata next to a file, too.
    (tmp_path / "outside.json").write_text("{}")
    sidecar_path(captures / "c_5.pcap").symlink_to(tmp_path / "outside.json")
    with pytest.raises(Exception, match=r"403.*c_5\.pcap\.json"):
        packets.read_partition(0, ["src_port"])
