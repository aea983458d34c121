"""Files are in the store once, and equal, whatever it does and whenever the process dies."""

import errno
import fcntl
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from free_ports import free_port
from object_servers import BUCKET, Fault, FaultServer, ObjectServer
from waiting import eventually, wait_for

from daqiri_ophyd.ship import Shipment, Shipper, StoreError, _upload, order_all, read_mark, resume

from .conftest import record, wait_shipped

PROCESS = Path(__file__).with_name("shipping_process.py")
S3RVER = Path(__file__).parents[3] / "build" / "s3rver" / "node_modules" / ".bin" / "s3rver"


def ship(shipper: Shipper, folder: Path, prefix: str = "port0", *, keep: bool = True) -> None:
    """Order and add all files of a recorder."""
    below = folder.name
    shipment = shipper.begin(folder, prefix, f"s3://{BUCKET}/lab/{below}", keep=keep)
    shipper.end(shipment)


def require_whole(objects: dict[str, bytes], files: dict[str, bytes], prefix: str) -> None:
    """The store has these files and their metadata, and nothing else."""
    expected = {f"{prefix}/{name}": content for name, content in files.items()}
    found = {key: content for key, content in objects.items() if not key.endswith(".json")}
    assert found == expected
    assert objects.keys() - found.keys() == {f"{key}.json" for key in expected}
    for key, content in expected.items():
        told = json.loads(objects[f"{key}.json"])
        assert told["packets"] == 1
        digest = hashlib.sha256(content).hexdigest()
        assert told["object"] == {"bytes": len(content), "sha256": digest}


def test_files_are_there_once_with_their_metadata_last(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    files = record(tmp_path / "run", 1000)
    ship(shipper, tmp_path / "run")
    wait_shipped(shipper)
    require_whole(server.objects, files, "lab/run")
    assert set(server.puts.values()) == {1}
    order = list(server.objects)
    assert all(order.index(f"lab/run/{n}") < order.index(f"lab/run/{n}.json") for n in files)
    state = shipper.state
    assert (state.shipped, state.shipped_bytes, state.unsent, state.error) == (1000, 10**6, 0, "")
    mark = read_mark(tmp_path / "run" / "port0_000007.pcap")
    assert mark is not None
    assert mark.uri == "s3://bucket/lab/run/port0_000007.pcap"
    assert not list(tmp_path.rglob("*.shipment"))


def test_a_large_file_goes_in_parts(tmp_path: Path, server: FaultServer, shipper: Shipper) -> None:
    files = record(tmp_path / "run", 2, 40 << 20)
    ship(shipper, tmp_path / "run")
    wait_shipped(shipper)
    require_whole(server.objects, files, "lab/run")
    assert server.requests["POST"] == 4  # begin and end of each


def test_local_files_go_once_they_are_in_the_store(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    files = record(tmp_path / "run", 3)
    (tmp_path / "run" / "port0_000000.raw").write_bytes(b"packets")
    (tmp_path / "run" / "port0_000000.raw.npy").write_bytes(b"index")
    shutil.copy(tmp_path / "run/port0_000000.pcap.json", tmp_path / "run/port0_000000.raw.json")
    ship(shipper, tmp_path / "run", keep=False)
    wait_shipped(shipper)
    left = {path.name for path in (tmp_path / "run").iterdir()}
    names = [*files, "port0_000000.raw"]
    assert left == {f"{name}{end}" for name in names for end in (".json", ".shipped")}
    told = json.loads(server.objects["lab/run/port0_000000.raw.json"])
    assert told["index"] == {"bytes": 5, "sha256": hashlib.sha256(b"index").hexdigest()}


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST"])
@pytest.mark.parametrize("fault", [f for f in Fault if f is not Fault.HELD])
def test_a_fault_costs_only_time(
    tmp_path: Path, server: FaultServer, shipper: Shipper, fault: Fault, method: str
) -> None:
    files = record(tmp_path / "run", 3)
    record(tmp_path / "run", 1, 17 << 20)  # in parts
    files["port0_000000.pcap"] = (tmp_path / "run" / "port0_000000.pcap").read_bytes()
    server.fail_next(2, fault, method)
    ship(shipper, tmp_path / "run")
    wait_shipped(shipper)
    require_whole(server.objects, files, "lab/run")
    assert shipper.state.error == ""


def test_a_store_that_is_away_gets_everything_when_it_is_back(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    files = record(tmp_path / "run", 50)
    server.stop()
    ship(shipper, tmp_path / "run")
    wait_for(lambda: shipper.state.error)
    assert not shipper.wait_unless_failing()
    assert (shipper.state.unsent, shipper.state.unsent_bytes) == (50, 50_000)
    assert shipper.state.error == f"Connection refused ({server.address})"
    server.start()
    wait_shipped(shipper)
    require_whole(server.objects, files, "lab/run")
    assert set(server.puts.values()) == {1}


def test_a_file_of_its_own_trouble_delays_no_other(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    files = record(tmp_path / "run", 5)
    foreign = {"packets": 9, "object": {"bytes": 3, "sha256": "0"}}
    server.store("lab/run/port0_000001.pcap", b"abc")
    server.store("lab/run/port0_000001.pcap.json", json.dumps(foreign).encode())
    (tmp_path / "run" / "port0_000002.pcap.json").write_text("{")
    ship(shipper, tmp_path / "run")
    wait_for(lambda: shipper.state.shipped == 3)
    wait_for(lambda: "exists with other contents" in shipper.state.error)
    assert server.objects["lab/run/port0_000001.pcap"] == b"abc"
    assert shipper.state.unsent == 2
    good = tmp_path / "run" / "port0_000000.pcap.json"
    shutil.copy(good, tmp_path / "run" / "port0_000002.pcap.json")
    wait_for(lambda: shipper.state.shipped == 4)
    assert server.objects["lab/run/port0_000002.pcap"] == files["port0_000002.pcap"]


def test_a_disk_that_fails_is_not_the_store_s_fault(
    tmp_path: Path, shipper: Shipper, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(io.FileIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() and os.readlink(f"/proc/self/fd/{self.fileno()}").endswith(".pcap"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().read(-1 if size is None else size)

    record(tmp_path / "run", 1, 17 << 20)  # in parts
    monkeypatch.setattr(_upload, "FileIO", Failing)
    ship(shipper, tmp_path / "run")
    wait_for(lambda: shipper.state.error)
    failed = tmp_path / "run" / "port0_000000.pcap"
    assert shipper.state.error == f"{failed} cannot be read: [Errno 5] Input/output error"
    assert not (tmp_path / "run" / "port0_000000.pcap.shipped").exists()


def test_what_is_left_is_uploaded_by_the_next_process(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    files = record(tmp_path / "a" / "run", 30)
    server.fail_next(10**6, Fault.ACCESS_DENIED, "PUT")
    ship(shipper, tmp_path / "a" / "run")
    wait_for(lambda: "AccessDenied" in shipper.state.error)
    assert resume(tmp_path, lambda _: shipper) == ([], [])  # another carries them out
    shipper.close()
    server.heal()
    with Shipper("s3://bucket", **server.options) as following:
        (shipment,), problems = resume(tmp_path, lambda _: following)
        assert problems == []
        assert following.wait(60)
        assert shipment.path.name == "port0.shipment"
    require_whole(server.objects, files, "lab/run")
    assert not list(tmp_path.rglob("*.shipment"))


def test_an_order_stays_until_its_last_file_is_in_the_store(
    tmp_path: Path, shipper: Shipper, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / "run", 3)
    order_all(tmp_path, "s3://bucket/lab")
    add, there = shipper.add, []

    def add_slowly(shipment: Shipment, file: Path) -> None:
        there.append(shipment.path.exists())
        add(shipment, file)
        wait_shipped(shipper)

    monkeypatch.setattr(shipper, "add", add_slowly)
    resume(tmp_path, lambda _: shipper)
    # A process that is killed between two files must leave it.
    assert there == [True, True, True]
    assert not list(tmp_path.rglob("*.shipment"))


def test_an_order_that_cannot_be_carried_out_is_named(tmp_path: Path, shipper: Shipper) -> None:
    (tmp_path / "port0.shipment").write_text("{")
    (tmp_path / "port1.shipment").write_text('{"ship_to": "ftp://host/x", "keep": true}')
    found, problems = resume(tmp_path, lambda _: shipper)
    assert found == []
    assert [problem.partition(" is ")[0] for problem in problems] == [
        f"{tmp_path}/port0.shipment",
        f"{tmp_path}/port1.shipment",
    ]
    record(tmp_path / "run", 1)
    first = shipper.begin(tmp_path / "run", "port0", "s3://bucket/x")
    with pytest.raises(StoreError, match=r"port0\.shipment exists.*catalog ship"):
        shipper.begin(tmp_path / "run", "port0", "s3://bucket/x")
    with pytest.raises(StoreError, match="carried out by another process"):
        order_all(tmp_path / "run", "s3://bucket/y")
    shipper.end(first)


def test_files_that_are_not_complete_wait_for_their_repair(
    tmp_path: Path, server: FaultServer, shipper: Shipper, caplog: pytest.LogCaptureFixture
) -> None:
    files = record(tmp_path / "run", 2)
    killed = tmp_path / "run" / "port0_000001.pcap.json"
    metadata = killed.read_text()
    killed.unlink()
    ship(shipper, tmp_path / "run")
    wait_for(lambda: (tmp_path / "run" / "port0_000000.pcap.shipped").exists())
    wait_for(lambda: "port0_000001.pcap is not uploaded" in caplog.text)
    assert (tmp_path / "run" / "port0.shipment").exists()
    killed.write_text(metadata)
    (_,), _ = resume(tmp_path, lambda _: shipper)
    wait_shipped(shipper)
    require_whole(server.objects, files, "lab/run")


def test_all_files_of_a_folder_can_be_ordered_later(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    one = record(tmp_path / "a" / "run", 3)
    two = record(tmp_path / "b", 2, prefix="port0_rx_q1")
    more = record(tmp_path / "b", 2)
    assert order_all(tmp_path, "s3://bucket/late/") == 2
    assert order_all(tmp_path, "s3://bucket/lab") == 2  # instead
    assert len(resume(tmp_path, lambda _: shipper)[0]) == 2
    wait_shipped(shipper)
    expected = {f"a/run/{n}": c for n, c in one.items()}
    expected |= {f"b/{n}": c for n, c in (two | more).items()}
    require_whole(server.objects, expected, "lab")
    assert order_all(tmp_path, "s3://bucket/lab") == 0
    with pytest.raises(ValueError, match=r"'s3:/x' is no address of an object store \(no scheme"):
        order_all(tmp_path, "s3:/x")


def test_orders_of_two_devices_in_one_folder_have_files_of_their_own(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    server.stop()
    one = shipper.begin(folder, "port0", "s3://bucket/lab/run")
    two = shipper.begin(folder, "port0_images", "s3://bucket/lab/run", keep=False)
    files = record(folder, 2)
    shipper.end(one)
    files |= record(folder, 2, prefix="port0_images")
    assert shipper.state.unsent == 2
    shipper.end(two)
    server.start()
    wait_shipped(shipper)
    assert (shipper.state.shipped, shipper.state.unsent_bytes) == (4, 0)
    require_whole(server.objects, files, "lab/run")
    assert not list(tmp_path.rglob("*.shipment"))
    assert {file.name for file in folder.glob("*.pcap")} == {f"port0_{n:06d}.pcap" for n in (0, 1)}


def test_a_process_killed_at_any_moment_leaves_each_file_once(
    tmp_path: Path, server: FaultServer
) -> None:
    # More requests than 50 processes make.
    files = record(tmp_path / "run", 250)
    files |= record(tmp_path / "run", 2, 17 << 20, prefix="port0_big")
    order_all(tmp_path, "s3://bucket/lab", keep=False)
    chance = random.Random(20261128)
    environment = os.environ | {
        "AWS_ENDPOINT_URL": server.address,
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_REGION": "us-east-1",
    }
    command = [sys.executable, str(PROCESS), str(tmp_path)]
    for _ in range(50):
        asked = sum(server.requests.values()) + chance.randrange(1, 12)
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:

            def is_far(process: "subprocess.Popen[bytes]" = process, asked: int = asked) -> bool:
                return process.poll() is not None or sum(server.requests.values()) >= asked

            wait_for(is_far)
            process.send_signal(signal.SIGKILL)
            said = process.communicate()[1]
        assert process.returncode == -signal.SIGKILL, said
    done = subprocess.run(command, env=environment, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    require_whole(server.objects, files, "lab/run")
    assert not list(tmp_path.rglob("*.pcap"))
    assert not list(tmp_path.rglob("*.shipment"))


def test_a_key_that_is_not_accepted_is_the_store_s_own_words(
    tmp_path: Path, moto: ObjectServer
) -> None:
    files = record(tmp_path / "other-key", 20)
    wrong = moto.options | {"secret_access_key": "wrong"}
    with Shipper("s3://bucket", **wrong) as shipper:
        ship(shipper, tmp_path / "other-key")
        wait_for(lambda: "SignatureDoesNotMatch" in shipper.state.error)
        assert "\n" not in shipper.state.error
        assert shipper.state.unsent == 20
    with Shipper("s3://bucket", **moto.options) as shipper:
        assert len(resume(tmp_path, lambda _: shipper)[0]) == 1
        wait_shipped(shipper)
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=moto.address,
        region_name="us-east-1",
        aws_access_key_id=moto.access_key_id,
        aws_secret_access_key=moto.secret_access_key,
    )
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix="lab/other-key/")["Contents"]
    objects = {
        each["Key"]: client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read()
        for each in listed
    }
    require_whole(objects, files, "lab/other-key")


def test_a_bucket_that_is_gone_loses_nothing(tmp_path: Path, moto: ObjectServer) -> None:
    record(tmp_path / "run", 2)
    with Shipper("s3://gone", **moto.options) as shipper:
        shipment = shipper.begin(tmp_path / "run", "port0", "s3://gone/lab")
        shipper.end(shipment)
        wait_for(lambda: "NoSuchBucket" in shipper.state.error)
        assert shipper.state.unsent == 2
    assert (tmp_path / "run" / "port0.shipment").exists()


@contextmanager
def s3rver(folder: Path) -> Iterator[str]:
    port = free_port("tcp")
    command = [S3RVER, "-d", folder, "-a", "127.0.0.1", "-p", str(port), "--configure-bucket"]
    with subprocess.Popen(
        [*map(str, command), BUCKET, "--no-vhost-buckets"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.mark.skipif(not S3RVER.exists(), reason="needs s3rver, which `make test` installs by npm")
def test_another_server_that_checks_signatures_agrees(tmp_path: Path) -> None:
    files = record(tmp_path / "run", 20)
    record(tmp_path / "run", 1, 17 << 20)
    files["port0_000000.pcap"] = (tmp_path / "run" / "port0_000000.pcap").read_bytes()
    with s3rver(tmp_path / "objects") as address:
        server = ObjectServer(address, "S3RVER", "S3RVER")
        with Shipper("s3://bucket", **server.options) as shipper:
            ship(shipper, tmp_path / "run")
            wait_shipped(shipper)
            assert shipper.state.shipped == 20
        from obstore.store import from_url

        bucket = from_url("s3://bucket", **server.options)
        for name, content in files.items():
            assert bytes(bucket.get(f"lab/run/{name}").bytes()) == content


def test_a_folder_that_is_locked_by_a_process_that_lives_is_left_to_it(
    tmp_path: Path, server: FaultServer, shipper: Shipper
) -> None:
    record(tmp_path / "run", 1)
    order_all(tmp_path, "s3://bucket/lab")
    with (tmp_path / "run" / "port0.shipment").open() as order:
        fcntl.flock(order, fcntl.LOCK_EX)
        assert resume(tmp_path, lambda _: shipper) == ([], [])
    assert len(resume(tmp_path, lambda _: shipper)[0]) == 1
    wait_shipped(shipper)


def test_the_end_of_a_shipper_waits_for_no_answer(tmp_path: Path, server: FaultServer) -> None:
    record(tmp_path / "run", 1)
    server.fail_next(1, Fault.HELD, "PUT")
    shipper = Shipper("s3://bucket", **server.options)
    ship(shipper, tmp_path / "run")
    wait_for(lambda: server.requests["PUT"] == 1)
    ended = threading.Thread(target=shipper.close)
    ended.start()
    assert eventually(lambda: not ended.is_alive(), 30)
    assert not (tmp_path / "run" / "port0_000000.pcap.shipped").exists()
