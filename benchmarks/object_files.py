"""Files of frames to an object store, and reception beside it.

All upload the same files, from the page cache, to one server on loopback that keeps nothing, 8 at
once: the package's `Shipper`, with the metadata file and the mark of each; obstore's `put` of a
path, and boto3's `upload_file`, with the file alone. Each hashes the bytes once: the shipper for
the metadata, as over HTTPS, and the others for their signatures. Over plain HTTP, the shipper also
signs (*signed*). The sizes are those of a file with one frame
of 2 MiB, and with 32. *Reception*: a loopback stream is recorded in memory (/dev/shm), alone and
while the shipper uploads what a link of 10 Gb/s carries.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from machine import ROOT
from programs import Program, built, once, script
from runner import Comparison, Measurement, MissingError, Want, arguments

from daqiri_ophyd.ship import Shipper

BUCKET = "bucket"
FRAME = 2 << 20
UPLOADS = 8
RECORDED = 2 << 30
# Bytes/s of a link of 10 Gb/s.
LINK = 1.25e9


def write_files(folder: Path, count: int, size: int) -> list[Path]:
    """Write files with metadata, as a recorder leaves them."""
    files = [folder / f"frames_{number:06d}.h5" for number in range(count)]
    content = bytes(range(256)) * (size // 256)
    for file in files:
        file.write_bytes(content)
        file.with_name(f"{file.name}.json").write_text(json.dumps({"frames": size // FRAME}))
    return files


def options(address: str) -> dict[str, Any]:
    """Return the options of obstore."""
    return {
        "endpoint": address,
        "region": "us-east-1",
        "access_key_id": "any",
        "secret_access_key": "any",
        "client_options": {"allow_http": True},
    }


def with_shipper(
    address: str, folder: Path, files: list[Path], *, signed: bool = False
) -> Callable[[], None]:
    """Return what uploads all files with their metadata."""
    shipper = Shipper(f"s3://{BUCKET}", unsigned_payload=not signed, **options(address))

    def upload() -> None:
        for file in files:
            file.with_name(f"{file.name}.shipped").unlink(missing_ok=True)
        shipment = shipper.begin(folder, "frames", f"s3://{BUCKET}/run")
        shipper.end(shipment)
        shipper.wait()

    return upload


def with_obstore(address: str, files: list[Path]) -> Callable[[], None]:
    """Return what uploads all files with obstore."""
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise MissingError(str(error)) from None
    store = S3Store(BUCKET, **options(address))

    def upload() -> None:
        with ThreadPoolExecutor(UPLOADS) as pool:
            list(pool.map(lambda file: store.put(f"run/{file.name}", file), files))

    return upload


def with_boto3(address: str, files: list[Path]) -> Callable[[], None]:
    """Return what uploads all files with boto3."""
    try:
        import boto3
        from boto3.s3.transfer import TransferConfig
        from botocore.config import Config
    except ImportError as error:
        raise MissingError(str(error)) from None
    client = boto3.client(
        "s3",
        endpoint_url=address,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(max_pool_connections=64, request_checksum_calculation="when_required"),
    )
    transfer = TransferConfig(multipart_threshold=2 * FRAME * 32)

    def upload() -> None:
        with ThreadPoolExecutor(UPLOADS) as pool:
            list(
                pool.map(
                    lambda f: client.upload_file(str(f), BUCKET, f"run/{f.name}", Config=transfer),
                    files,
                )
            )

    return upload


def rate(upload: Callable[[], None], files: list[Path]) -> Callable[[], Measurement]:
    """Return a measurement of MB/s."""
    size = sum(file.stat().st_size for file in files) / 1e6

    def measure() -> Measurement:
        begun, cpu = time.monotonic(), time.process_time()
        upload()
        took, cpu = time.monotonic() - begun, time.process_time() - cpu
        return Measurement(size / took, {"µs CPU a MB": round(cpu / size * 1e6, 1)})

    return measure


@contextmanager
def uploading(upload: Callable[[], None], size: int) -> Iterator[None]:
    """Upload so many bytes again and again, as fast as the link is."""
    end = threading.Event()

    def run() -> None:
        due = time.monotonic()
        while not end.wait(max(0.0, due - time.monotonic())):
            upload()
            due += size / LINK

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def record() -> Measurement:
    """MB/s of a recorder; it reports an error if packets are lost."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        command = [*script("ours/record.py"), "loopback", "buffered", "8000", str(64 << 20)]
        done = once([*command, str(RECORDED), folder])
    return Measurement(done["bytes"] * 1e3 / done["ns"])


def main() -> None:
    """Measure uploads, and reception beside them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--disk", type=Path, default=ROOT / "build", help="a folder on a disk")
    args = arguments(__doc__, seconds=1, rounds=7, parser=parser)
    comparison = Comparison("object_files", "Files to an object store", __doc__, args)
    with (
        Program([built("peers_discard_objects")]) as server,
        tempfile.TemporaryDirectory(dir=args.disk) as folder,
    ):
        address = f"http://127.0.0.1:{server.ready['port']}"
        for name, count, size in (("2 MiB", 256, FRAME), ("64 MiB", 8, 32 * FRAME)):
            place = Path(folder) / name
            place.mkdir()
            files = write_files(place, count, size)
            shipper = with_shipper(address, place, files)
            signed = with_shipper(address, place, files, signed=True)
            comparison.case(
                name,
                "MB/s",
                {
                    "daqiri-ophyd": rate(shipper, files),
                    "daqiri-ophyd, signed": rate(signed, files),
                    "obstore": rate(with_obstore(address, files), files),
                    "boto3": rate(with_boto3(address, files), files),
                },
                wants=(
                    # A small file pays for two more requests.
                    Want("daqiri-ophyd", ("obstore",), at_least=None if size == FRAME else 0.9),
                    Want("daqiri-ophyd", ("boto3",)),
                    Want("daqiri-ophyd, signed", ("obstore",)),
                ),
                digits=0,
            )

        def beside() -> Measurement:
            with uploading(shipper, sum(file.stat().st_size for file in files)):
                return record()

        record()  # a machine gets its memory
        comparison.case(
            "reception",
            "MB/s",
            {"alone": record, "beside uploads": beside},
            wants=(Want("beside uploads", ("alone",), at_least=0.98),),
            digits=0,
        )
    comparison.finish()


if __name__ == "__main__":
    main()
