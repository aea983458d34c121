"""Packets as objects: moto checks the signatures, a server with faults what becomes of them."""

import io
import os
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import obstore
import pytest
from object_servers import BUCKET, Fault, FaultServer, ObjectServer, fault_server, moto_server
from obstore.store import S3Store

from daqiri_ophyd import compat
from daqiri_ophyd.compat import S3Writer, Status

PACKETS = 1000
HEADERS = 42

Writer = Callable[..., S3Writer]


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with moto_server(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def faults() -> Iterator[FaultServer]:
    with fault_server() as server:
        yield server


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    """Make a writer; it is destroyed at the end."""
    made: list[S3Writer] = []

    def make(
        server: ObjectServer | FaultServer,
        secret: str = "",
        of_environment: bool = True,
        **settings: object,
    ) -> S3Writer:
        if of_environment:
            known = server.options
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", known["access_key_id"])
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret or known["secret_access_key"])
        monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
        config = compat.S3WriterConfig()
        config.bucket = BUCKET
        config.region = "us-east-1"
        config.endpoint_override = server.address
        config.path_style = True
        for name, value in settings.items():
            setattr(config, name, value)
        made.append(S3Writer(config))
        return made[-1]

    yield make
    for each in made:
        each.destroy()


@pytest.fixture
def burst(engine: Callable[..., int]) -> Iterator[compat.BurstParams]:
    """Packets of different lengths, numbered in their payload."""
    engine(batch_size=PACKETS)
    burst = numbered(PACKETS)
    yield burst
    compat.free_tx_burst(burst)


def numbered(count: int) -> compat.BurstParams:
    burst = compat.create_tx_burst_params()
    assert burst is not None
    compat.set_header(burst, 0, 0, count, 1)
    assert compat.get_tx_packet_burst(burst) == Status.SUCCESS
    for i in range(count):
        payload = contents(i)
        assert compat.set_udp_payload(burst, i, payload) == Status.SUCCESS
        assert compat.set_packet_lengths(burst, i, [HEADERS + len(payload)]) == Status.SUCCESS
    return burst


def contents(i: int) -> bytes:
    return b"packet %06d" % i + bytes(i % 50)


def stored(server: ObjectServer, prefix: str) -> dict[str, bytes]:
    """Return the objects of moto's bucket, as another client sees them."""
    store = S3Store(BUCKET, **server.options)
    listed = [item["path"] for batch in obstore.list(store, prefix) for item in batch]
    return {path: bytes(obstore.get(store, path).bytes()) for path in listed}


def test_each_packet_is_an_object(
    burst: compat.BurstParams, writer: Writer, moto: ObjectServer
) -> None:
    status = writer(moto).write_raw_objects(burst, "run/packet", HEADERS)
    total = sum(len(contents(i)) for i in range(PACKETS))
    assert (status.completed_objects, status.failed_objects) == (PACKETS, 0)
    assert status.bytes_uploaded == total
    assert stored(moto, "run") == {f"run/packet_{i}": contents(i) for i in range(PACKETS)}


def test_a_burst_is_an_object_that_numpy_reads(
    burst: compat.BurstParams, writer: Writer, moto: ObjectServer
) -> None:
    # Encoded in the URL, and in the signature.
    name = "bursts/a b+c$d/é=~&'(1)*!,;:@?#%41"
    status = writer(moto).write_burst_object(burst, name, HEADERS)
    assert (status.completed_objects, status.failed_objects) == (2, 0)
    objects = stored(moto, "bursts")
    assert set(objects) == {name, f"{name}.npy"}
    data = objects[name]
    assert status.bytes_uploaded == len(data)
    rows = np.load(io.BytesIO(objects[f"{name}.npy"]))
    assert rows.dtype.descr == [
        ("offset", "<u8"),
        ("length", "<u4"),
        ("flow", "<u4"),
        ("timestamp", "<u8"),
    ]
    packets = [bytes(data[row["offset"] :][: row["length"]]) for row in rows]
    assert packets == [contents(i) for i in range(PACKETS)]
    assert rows["timestamp"].min() > 0


def test_objects_of_nothing(
    engine: Callable[..., int], writer: Writer, faults: FaultServer
) -> None:
    engine(batch_size=PACKETS)
    burst = numbered(3)
    client = writer(faults)
    assert client.write_raw_objects(burst, "all skipped", 10_000).completed_objects == 3
    assert faults.objects == {f"all skipped_{i}": b"" for i in range(3)}
    compat.set_num_packets(burst, 0)
    assert client.write_raw_objects(burst, "none").completed_objects == 0
    assert client.write_burst_object(burst, "empty").completed_objects == 2
    assert faults.objects["empty"] == b""
    assert len(np.load(io.BytesIO(faults.objects["empty.npy"]))) == 0
    compat.set_num_packets(burst, 3)
    compat.free_tx_burst(burst)


def test_the_burst_may_be_freed_at_once(
    engine: Callable[..., int], writer: Writer, faults: FaultServer
) -> None:
    engine(batch_size=PACKETS)
    client = writer(faults)
    faults.fail_next(8, Fault.HELD)
    burst = numbered(PACKETS)
    handle = client.write_raw_objects_async(burst, "p", HEADERS)
    compat.free_tx_burst(burst)
    other = numbered(PACKETS)
    for i in range(PACKETS):
        compat.set_udp_payload(other, i, b"x" * 60)
    assert handle.poll()[0] == Status.NOT_READY
    faults.release()
    assert handle.wait().completed_objects == PACKETS
    assert handle.poll()[0] == Status.SUCCESS
    assert faults.objects == {f"p_{i}": contents(i) for i in range(PACKETS)}
    assert set(faults.puts.values()) == {1}
    compat.free_tx_burst(other)


@pytest.mark.parametrize(
    "fault",
    [
        Fault.RESET,
        Fault.UNANSWERED,
        Fault.CLOSED,
        Fault.NOT_HTTP,
        Fault.CONTINUE_UNASKED,
        Fault.CONTINUE_LATE,
        Fault.SLOW_DOWN,
        Fault.INTERNAL_ERROR,
        Fault.REQUEST_TIMEOUT,
    ],
)
def test_passing_faults_are_overcome(
    burst: compat.BurstParams, writer: Writer, faults: FaultServer, fault: Fault
) -> None:
    faults.fail_next(4, fault)
    client = writer(faults)
    status = client.write_raw_objects(burst, "p", HEADERS)
    assert (status.completed_objects, status.failed_objects) == (PACKETS, 0)
    assert faults.objects == {f"p_{i}": contents(i) for i in range(PACKETS)}
    # Without an answer, nobody knows whether it is there; it is stored again, equal.
    again = 4 if fault is Fault.UNANSWERED else 0
    assert sum(faults.puts.values()) == PACKETS + again
    unharmed = (Fault.CLOSED, Fault.CONTINUE_UNASKED, Fault.CONTINUE_LATE)
    assert faults.requests["PUT"] == PACKETS + (0 if fault in unharmed else 4)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault.ACCESS_DENIED, "HTTP 403, AccessDenied: This is AccessDenied"),
        (Fault.NO_SUCH_BUCKET, "HTTP 404, NoSuchBucket: This is NoSuchBucket"),
    ],
)
def test_final_errors_are_told(
    burst: compat.BurstParams, writer: Writer, faults: FaultServer, fault: Fault, said: str
) -> None:
    client = writer(faults, max_inflight_uploads=1)
    assert client.write_raw_objects(burst, "before").completed_objects == PACKETS
    faults.requests.clear()
    faults.fail_next(1, fault)
    handle = client.write_raw_objects_async(burst, "p")
    with pytest.raises(RuntimeError, match=f"cannot write s3://{BUCKET}/p_0: {said}"):
        handle.wait()
    status, done = handle.poll()
    assert status == Status.GENERIC_FAILURE
    assert (done.completed_objects, done.failed_objects, done.bytes_uploaded) == (0, PACKETS, 0)
    # No more are begun.
    assert faults.requests == Counter(PUT=1)
    # The index of a burst that is not there is not written.
    faults.fail_next(1, fault)
    handle = client.write_burst_object_async(burst, "burst")
    with pytest.raises(RuntimeError, match=said):
        handle.wait()
    assert handle.poll()[1].failed_objects == 2
    assert not any(key.startswith("burst") for key in faults.objects)


def test_errors_that_do_not_pass_are_told(
    burst: compat.BurstParams, writer: Writer, faults: FaultServer
) -> None:
    client = writer(faults, max_inflight_uploads=1)
    faults.fail_next(5, Fault.SLOW_DOWN)
    with pytest.raises(RuntimeError, match=r"HTTP 503, SlowDown: .* \(5 attempts\)"):
        client.write_raw_objects(burst, "p")
    assert faults.requests == Counter(PUT=5)
    faults.stop()
    with pytest.raises(RuntimeError, match=rf"s3://{BUCKET}/p_0: {faults.address}: .*onnect"):
        client.write_raw_objects(burst, "p")
    faults.start()
    assert client.write_raw_objects(burst, "p").completed_objects == PACKETS


def test_credentials_that_expired_are_looked_up_again(
    burst: compat.BurstParams,
    writer: Writer,
    faults: FaultServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "credentials"
    keys = "[default]\naws_access_key_id = any\naws_secret_access_key = {}\n"
    file.write_text(keys.format("first"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    client = writer(faults, of_environment=False)
    faults.fail_next(8, Fault.EXPIRED_TOKEN)
    with pytest.raises(RuntimeError, match="HTTP 400, ExpiredToken"):
        client.write_raw_objects(burst, "old")
    faults.heal()
    assert client.write_raw_objects(burst, "old").completed_objects == PACKETS
    # All uploads at once are refused.
    file.write_text(keys.format("second"))
    faults.fail_next(8, Fault.EXPIRED_TOKEN)
    assert client.write_raw_objects(burst, "new").completed_objects == PACKETS


def test_a_wrong_secret_is_told(
    burst: compat.BurstParams, writer: Writer, moto: ObjectServer
) -> None:
    handle = writer(moto, secret="wrong").write_raw_objects_async(burst, "denied")
    with pytest.raises(RuntimeError, match="HTTP 403, SignatureDoesNotMatch: The request sig"):
        handle.wait()
    assert handle.poll()[1].failed_objects == PACKETS
    assert stored(moto, "denied") == {}


def test_a_bucket_that_is_not_there_is_told(
    burst: compat.BurstParams, writer: Writer, moto: ObjectServer
) -> None:
    client = writer(moto, bucket="absent")
    with pytest.raises(RuntimeError, match=r"s3://absent/p_\d: HTTP 404, NoSuchBucket"):
        client.write_raw_objects(burst, "p")


def test_waiting_bytes_are_limited(
    burst: compat.BurstParams, writer: Writer, faults: FaultServer
) -> None:
    total = sum(len(contents(i)) for i in range(PACKETS))
    client = writer(faults, max_staged_bytes=2 * total - 1)
    faults.fail_next(8, Fault.HELD)
    first = client.write_raw_objects_async(burst, "first", HEADERS)
    with pytest.raises(
        RuntimeError,
        match=rf"have {total} bytes, and {total} of max_staged_bytes, {2 * total - 1}.*"
        r"NO_SPACE_AVAILABLE",
    ):
        client.write_raw_objects_async(burst, "second", HEADERS)
    faults.release()
    first.wait()
    assert client.write_raw_objects(burst, "third", HEADERS).completed_objects == PACKETS
    assert Counter(key.split("_")[0] for key in faults.objects) == Counter(
        first=PACKETS, third=PACKETS
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bucket": ""}, "bucket is ''"),
        ({"bucket": "a/b"}, "bucket is 'a/b'"),
        ({"region": ""}, "region is ''"),
        ({"region": "a b"}, "region is 'a b'"),
        ({"endpoint_override": "ftp://host"}, "endpoint_override is 'ftp://host'"),
        ({"endpoint_override": "http://host/path"}, "endpoint_override is 'http://host/path'"),
        ({"max_inflight_uploads": 0}, "max_inflight_uploads is 0"),
    ],
)
def test_wrong_settings_are_refused(
    writer: Writer, faults: FaultServer, settings: dict[str, object], said: str
) -> None:
    with pytest.raises(RuntimeError, match=rf"{said}.*accepted is .*\(INVALID_PARAMETER\)"):
        writer(faults, **settings)


def test_the_bucket_may_be_in_the_host_name(
    burst: compat.BurstParams, writer: Writer, faults: FaultServer
) -> None:
    of_bucket = f"http://localhost:{faults.port}/"
    client = writer(faults, endpoint_override=of_bucket, path_style=False)
    assert client.write_burst_object(burst, "p").completed_objects == 2
    assert set(faults.objects) == {"p", "p.npy"}
    # https, which the server does not speak.
    client = writer(faults, endpoint_override=f"127.0.0.1:{faults.port}")
    with pytest.raises(RuntimeError, match=f"https://127.0.0.1:{faults.port}: "):
        client.write_burst_object(burst, "p")


def test_two_writers_share_a_bucket(
    burst: compat.BurstParams, writer: Writer, faults: FaultServer
) -> None:
    clients = [writer(faults, max_inflight_uploads=n) for n in (1, 50)]
    handles = [
        client.write_raw_objects_async(burst, f"{i}-{n}", HEADERS)
        for i in range(3)
        for n, client in enumerate(clients)
    ]
    assert [handle.wait().completed_objects for handle in handles] == [PACKETS] * 6
    assert set(faults.puts.values()) == {1}
    assert len(faults.objects) == 6 * PACKETS


def test_a_writer_may_end_before_its_uploads(
    burst: compat.BurstParams, writer: Writer, faults: FaultServer
) -> None:
    client = writer(faults)
    handles = [client.write_raw_objects_async(burst, f"{i}", HEADERS) for i in range(3)]
    assert client.destroy() == Status.SUCCESS
    assert client.destroy() == Status.SUCCESS
    assert len(faults.objects) == 3 * PACKETS
    with pytest.raises(RuntimeError, match="the writer is null"):
        client.write_raw_objects(burst, "p")
    for handle in handles:
        assert handle.poll()[0] == Status.SUCCESS
        assert handle.wait().completed_objects == PACKETS
        assert handle.destroy() == Status.SUCCESS
        assert handle.destroy() == Status.SUCCESS
        assert handle.poll()[0] == Status.NULL_PTR


def test_a_child_has_no_writers_and_may_make_one(
    burst: compat.BurstParams, writer: Writer, faults: FaultServer
) -> None:
    client = writer(faults)
    faults.fail_next(8, Fault.HELD)
    handle = client.write_raw_objects_async(burst, "parent", HEADERS)
    child = os.fork()
    if child == 0:
        with ExitStack() as at_end:
            at_end.callback(os._exit, 1)
            try:
                assert handle.poll()[0] == Status.INVALID_PARAMETER
                assert client.destroy() == Status.INVALID_PARAMETER
                assert writer(faults).destroy() == Status.SUCCESS
                os._exit(0)
            except BaseException:
                traceback.print_exc()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert handle.poll()[0] == Status.NOT_READY
    faults.release()
    assert handle.wait().completed_objects == PACKETS
    assert set(faults.puts.values()) == {1}
    assert len(faults.objects) == PACKETS


PROGRAM = """
import sys
from daqiri_ophyd import compat
compat.daqiri_init(sys.argv[1])
burst = compat.create_tx_burst_params()
compat.set_header(burst, 0, 0, 100, 1)
compat.get_tx_packet_burst(burst)
compat.set_all_packet_lengths(burst, [1000])
config = compat.S3WriterConfig()
config.bucket = "bucket"
config.region = "us-east-1"
config.path_style = True
config.endpoint_override = sys.argv[2]
writer = compat.S3Writer(config)
handle = writer.write_raw_objects_async(burst, "left")
"""


def run_program(
    tmp_path: Path, config: object, address: str, end: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    import yaml

    (tmp_path / "loopback.yaml").write_text(yaml.safe_dump(config))
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + end, tmp_path / "loopback.yaml", address],
        env=os.environ | {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_uploads_are_finished_at_the_end_of_a_program(
    tmp_path: Path, loopback: Callable[..., object], faults: FaultServer
) -> None:
    # Not even their destructors run.
    done = run_program(
        tmp_path, loopback(batch_size=100), faults.address, "sys.left = (writer, handle)\n"
    )
    assert done.returncode == 0, done.stderr
    assert len(faults.objects) == 100
    assert set(faults.puts.values()) == {1}


def test_without_credentials_places_are_named(
    tmp_path: Path, loopback: Callable[..., object], faults: FaultServer
) -> None:
    done = run_program(
        tmp_path,
        loopback(),
        faults.address,
        AWS_ACCESS_KEY_ID="",
        AWS_SHARED_CREDENTIALS_FILE="/nonexistent",
        AWS_EC2_METADATA_DISABLED="true",
    )
    assert done.returncode == 1
    assert "no credentials for S3; environment: AWS_ACCESS_KEY_ID is not set; " in done.stderr
    assert "(GENERIC_FAILURE)" in done.stderr


# Loaded before the C library: it has no library of this name.
NOT_INSTALLED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
void *dlopen(const char *name, int mode) {
  if (name && strstr(name, NAME)) return 0;
  void *(*next)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");
  return next(name, mode);
}
"""


@pytest.mark.parametrize(("name", "package"), [("libcurl", "libcurl4"), ("libcrypto", "libssl3")])
def test_a_missing_library_is_named(
    tmp_path: Path,
    loopback: Callable[..., object],
    faults: FaultServer,
    name: str,
    package: str,
) -> None:
    library = tmp_path / "not_installed.so"
    flags = ["-shared", "-fPIC", "-xc", "-", f'-DNAME="{name}"', "-o", library]
    subprocess.run(["gcc", *flags], input=NOT_INSTALLED, text=True, check=True)
    done = run_program(tmp_path, loopback(), faults.address, LD_PRELOAD=str(library))
    assert done.returncode == 1
    assert f"S3 needs {name} " in done.stderr
    assert f"apt install {package}) (NOT_SUPPORTED)" in done.stderr


@pytest.mark.slow
def test_an_upload_without_progress_is_begun_again(
    burst: compat.BurstParams, writer: Writer, faults: FaultServer
) -> None:
    faults.fail_next(1, Fault.HELD)
    client = writer(faults, max_inflight_uploads=1)
    assert client.write_burst_object(burst, "p").completed_objects == 2
    assert faults.requests == Counter(PUT=3)


@pytest.mark.slow
def test_a_million_packets_are_a_million_objects(
    engine: Callable[..., int], writer: Writer, faults: FaultServer
) -> None:
    engine(batch_size=PACKETS)
    client = writer(faults)
    burst = numbered(PACKETS)
    for i in range(1000):
        faults.fail_next(1, (Fault.RESET, Fault.SLOW_DOWN, Fault.CLOSED)[i % 3])
        status = client.write_raw_objects(burst, f"{i}", HEADERS)
        assert status.completed_objects == PACKETS
    compat.free_tx_burst(burst)
    assert len(faults.objects) == 1000 * PACKETS
    assert set(faults.puts.values()) == {1}
    for i in range(1000):
        for packet in range(PACKETS):
            assert faults.objects[f"{i}_{packet}"] == contents(packet)
