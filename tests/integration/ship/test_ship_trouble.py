"""Folders, files and processes are not as they should be: nothing is lost, taken or mixed up."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from object_servers import Fault, FaultServer, ObjectServer, use
from waiting import wait_for

from daqiri_ophyd.ship import (
    Shipper,
    StoredObject,
    StoreError,
    _process,
    order_all,
    resume,
    shipper_of,
)
from daqiri_ophyd.ship._object import COPIES

from .conftest import record, wait_shipped
from .test_shipper import require_whole, ship


def test_files_of_other_recorders_in_the_folder_are_left_alone(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    mine = record(tmp_path / "run", 2, prefix="rx")
    others = record(tmp_path / "run", 2, prefix="rx_2")
    ship(shipper, tmp_path / "run", "rx", keep=False)
    wait_shipped(shipper)
    require_whole(server.objects, mine, "lab/run")
    assert {path.name for path in (tmp_path / "run").glob("*.pcap")} == set(others)


def test_only_regular_files_are_uploaded(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    files = record(tmp_path / "run", 6)
    paths = [tmp_path / "run" / name for name in files]
    (tmp_path / "secret").write_bytes(b"secret")
    for path in paths[:5]:
        path.unlink()
        os.mkfifo(path)
    paths[4].unlink()
    paths[4].symlink_to(tmp_path / "secret")
    ship(shipper, tmp_path / "run")
    wait_for(lambda: shipper.state.shipped == 1 and shipper.state.error)
    assert [key for key in server.objects if not key.endswith(".json")] == [
        "lab/run/port0_000005.pcap"
    ]


def test_a_file_that_changes_while_it_is_uploaded_is_uploaded_again(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    (name,) = record(tmp_path / "run", 1)
    server.fail_next(1, Fault.HELD, "PUT")
    ship(shipper, tmp_path / "run", keep=False)
    wait_for(lambda: server.objects)
    (tmp_path / "run" / name).write_bytes(b"repaired")
    server.release()
    wait_shipped(shipper)
    require_whole(server.objects, {name: b"repaired"}, "lab/run")


def test_a_local_file_goes_only_if_the_store_has_it(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    files = record(tmp_path / "run", 2)
    ship(shipper, tmp_path / "run")
    wait_shipped(shipper)
    # As if it had been killed before it removed them; one is another file by now.
    changed = tmp_path / "run" / "port0_000001.pcap"
    changed.write_bytes(b"changed")
    ship(shipper, tmp_path / "run", keep=False)
    wait_for(
        lambda: shipper.state.unsent == 1 and "exists with other contents" in shipper.state.error
    )
    assert [path.name for path in (tmp_path / "run").glob("*.pcap")] == [changed.name]
    require_whole(server.objects, files, "lab/run")


def test_a_folder_that_goes_away_ends_no_thread(
    tmp_path: Path, shipper: Shipper, caplog: pytest.LogCaptureFixture
) -> None:
    record(tmp_path / "run", 1)
    shipment = shipper.begin(tmp_path / "run", "port0", "s3://bucket/lab")
    shipper.add(shipment, tmp_path / "run" / "port0_000000.pcap")
    wait_shipped(shipper)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(FileNotFoundError):
        shipper.end(shipment)
    assert "port0.shipment cannot be removed" in caplog.text
    record(tmp_path / "next", 1)
    ship(shipper, tmp_path / "next")
    wait_shipped(shipper)


def test_a_forked_child_keeps_no_order_and_uses_no_store(
    tmp_path: Path, server: FaultServer
) -> None:
    files = record(tmp_path / "run", 1)
    server.fail_next(10**6, Fault.ACCESS_DENIED, "PUT")
    shipper = Shipper("s3://bucket", **server.options)
    ship(shipper, tmp_path / "run")
    wait_for(lambda: shipper.state.error)
    told, tells = os.pipe()
    if not (child := os.fork()):
        try:
            Shipper("s3://bucket", **server.options)
        except StoreError as error:
            os.write(tells, str(error).encode())
        signal.pause()
        os._exit(1)
    try:
        assert b"it was forked from one that has used a store" in os.read(told, 1000)
        shipper.close()
        server.heal()
        with Shipper("s3://bucket", **server.options) as following:
            assert len(resume(tmp_path, lambda _: following)[0]) == 1
            assert following.wait(60)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)
        os.close(tells)
    require_whole(server.objects, files, "lab/run")


def test_copies_are_of_one_object_each(
    tmp_path: Path, used: FaultServer, shipper: Shipper, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Packets of a replay are equal in all raw files, their times are not.
    for run in ("a", "b"):
        record(tmp_path / run, 1)
        file = tmp_path / run / "port0_000000.raw"
        file.write_bytes(b"packets")
        file.with_name(f"{file.name}.npy").write_text(run)
        shutil.move(tmp_path / run / "port0_000000.pcap.json", f"{file}.json")
        (tmp_path / run / "port0_000000.pcap").unlink()
        ship(shipper, tmp_path / run)
    wait_shipped(shipper)
    stored = [StoredObject(f"s3://bucket/lab/{run}/port0_000000.raw") for run in ("a", "b")]
    copies = [each.fetch() for each in stored]
    assert [copy.with_name(f"{copy.name}.npy").read_text() for copy in copies] == ["a", "b"]
    # A crash of the host cuts off files; one of the process leaves parts of them.
    copies[0].write_bytes(b"")
    part = COPIES.folder / "0" / ".part" / "file"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(1000))
    os.utime(part, (0, 0))
    monkeypatch.setattr(COPIES, "most_bytes", 1000)
    assert stored[0].fetch().read_bytes() == b"packets"
    assert not part.exists()


def test_an_object_that_is_no_metadata_is_not_replaced(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    files = record(tmp_path / "run", 5)
    server.store("lab/run/port0_000000.pcap", b"foreign")
    server.store("lab/run/port0_000000.pcap.json", b"foreign")
    ship(shipper, tmp_path / "run")
    wait_for(lambda: shipper.state.shipped == len(files) - 1)
    wait_for(lambda: "exists with other contents" in shipper.state.error)
    assert server.objects["lab/run/port0_000000.pcap"] == b"foreign"


def test_an_order_for_later_has_the_files_of_those_before(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    files = record(tmp_path / "run", 1, prefix="a") | record(tmp_path / "run", 2, prefix="b")
    killed = tmp_path / "run" / "b_000001.pcap.json"
    metadata = killed.read_text()
    killed.unlink()
    (tmp_path / "run" / "b_000000.pcap").unlink()
    files.pop("b_000000.pcap")
    server.fail_next(10**6, Fault.ACCESS_DENIED)
    with Shipper("s3://bucket", **server.options) as first:
        ship(first, tmp_path / "run", "b")
    assert order_all(tmp_path / "run", "s3://bucket/lab/run") == 1
    (order,) = tmp_path.rglob("*.shipment")
    assert set(json.loads(order.read_text())["files"]) >= {"a_{:06d}.pcap", "b_{:06d}.pcap"}
    server.heal()
    killed.write_text(metadata)
    assert len(resume(tmp_path, lambda _: shipper)[0]) == 1
    wait_shipped(shipper)
    require_whole(server.objects, files, "lab/run")


@pytest.mark.root
def test_a_full_disk_has_room_for_the_marks_that_make_room(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        files = record(disk / "run", 2, 20_000)
        shipment = shipper.begin(disk / "run", "port0", "s3://bucket/lab/run", keep=False)
        with (disk / "rest").open("wb", 0) as rest, pytest.raises(OSError, match="No space left"):
            while rest.write(bytes(4096)):
                pass
        shipper.end(shipment)
        wait_shipped(shipper)
        require_whole(server.objects, files, "lab/run")
        assert not list(disk.rglob("*.pcap"))
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_an_endpoint_or_a_profile_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with pytest.raises(StoreError, match=r"endpoint is 'localhost:9000'; accepted is http://HOST"):
        Shipper("s3://bucket")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_PROFILE", "beam")
    with pytest.raises(StoreError, match=r"AWS_PROFILE is 'beam', which is in neither"):
        Shipper("s3://bucket")


def test_credentials_that_are_replaced_are_used(
    tmp_path: Path, moto: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, moto)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    credentials = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    key = f"[default]\naws_access_key_id = {moto.access_key_id}\naws_secret_access_key = "
    credentials.write_text(f"{key}expired\n")
    record(tmp_path / "renewed", 1)
    with Shipper("s3://bucket") as shipper:
        ship(shipper, tmp_path / "renewed")
        wait_for(lambda: "SignatureDoesNotMatch" in shipper.state.error)
        credentials.write_text(f"{key}{moto.secret_access_key}\n")
        wait_shipped(shipper)


def test_an_error_of_the_library_ends_no_thread(
    tmp_path: Path, shipper: Shipper, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicError(BaseException):
        """As those of Rust."""

    def panic(*_: object) -> None:
        raise PanicError("request valid")

    with monkeypatch.context() as patch:
        patch.setattr(type(shipper._uploads.store), "head", panic)
        patch.setattr(type(shipper._uploads.store), "get", panic)
        record(tmp_path / "run", 1)
        ship(shipper, tmp_path / "run")
        wait_for(lambda: shipper.state.error == "request valid")
    wait_shipped(shipper)


def test_an_exit_does_not_wait_for_a_store_that_does_not_answer(
    tmp_path: Path,
    used: FaultServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(_process, "_SILENT_S", 0.1)
    monkeypatch.setattr(_process, "_STALLED_S", 0.1)
    record(tmp_path / "run", 1)
    used.fail_next(1, Fault.HELD, "PUT")
    ship(shipper_of("s3://bucket"), tmp_path / "run")
    _process._finish()
    assert "1 files (1000 bytes) are not in s3://bucket. They stay in their folder" in caplog.text
    used.release()
    assert shipper_of("s3://bucket").wait(60)
