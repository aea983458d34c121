"""Packets of 8 KiB as objects, against other clients of S3 in Python.

All upload to one server on loopback that keeps nothing, with 8 uploads at once: the engine's
`daqiri_write_raw_to_s3_objects_async`, obstore's `put_async` in 8 tasks, boto3's `put_object` in 8
threads. Each signs its requests, and the hash of their bodies. *Bursts*: 500 packets as one object,
which the engine follows with their index. CPU is that of the client alone, the copy of the packets
included.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from programs import Program, built
from python_bursts import CONFIG
from runner import Comparison, Measurement, MissingError, Want, arguments

from daqiri_ophyd import compat

SIZE = 8192
BATCH = 500
UPLOADS = 8
BUCKET = "bucket"
KEY, SECRET = "any", "any"


def config() -> dict:
    """Return that of the other topics, with packets of this size."""
    regions = [
        {**region, "buf_size": SIZE, "num_bufs": 2048} for region in CONFIG["memory_regions"]
    ]
    return {**CONFIG, "memory_regions": regions}


class Engine:
    """A burst that is uploaded again and again."""

    def __init__(self, address: str) -> None:
        settings = compat.S3WriterConfig()
        settings.bucket = BUCKET
        settings.region = "us-east-1"
        settings.endpoint_override = address
        settings.path_style = True
        settings.max_inflight_uploads = UPLOADS
        self._writer = compat.S3Writer(settings)
        self._burst = compat.create_tx_burst_params()
        compat.set_header(self._burst, 0, 0, BATCH, 1)
        for call in (
            compat.get_tx_packet_burst(self._burst),
            compat.set_all_packet_lengths(self._burst, [SIZE]),
        ):
            if call != compat.Status.SUCCESS:
                raise RuntimeError(compat.last_error())

    def packets(self, seconds: float) -> int:
        """Upload each packet for so long, with two bursts at once; return the number of objects."""
        return self._upload(self._writer.write_raw_objects_async, 2, seconds)

    def bursts(self, seconds: float) -> int:
        """Upload whole bursts."""
        return self._upload(self._writer.write_burst_object_async, UPLOADS, seconds)

    def _upload(self, begin: Callable[..., Any], at_once: int, seconds: float) -> int:
        objects = 0
        end = time.monotonic() + seconds
        begun: deque[compat.S3WriteHandle] = deque()
        while time.monotonic() < end or begun:
            if time.monotonic() < end:
                name = f"{objects}-{len(begun)}"
                begun.append(begin(self._burst, name))
            if len(begun) == at_once or time.monotonic() >= end:
                objects += begun.popleft().wait().completed_objects
        return objects

    def close(self) -> None:
        """Destroy the writer."""
        compat.free_tx_burst(self._burst)
        self._writer.destroy()


def with_obstore(address: str, size: int) -> Callable[[float], int]:
    """Return what uploads with obstore."""
    try:
        import obstore
        from obstore.store import S3Store
    except ImportError as error:
        raise MissingError(str(error)) from None
    store = S3Store(
        BUCKET,
        endpoint=address,
        region="us-east-1",
        access_key_id=KEY,
        secret_access_key=SECRET,
        client_options={"allow_http": True},
    )
    data = bytes(size)

    async def task(number: int, end: float) -> int:
        objects = 0
        while time.monotonic() < end:
            await obstore.put_async(store, f"{number}_{objects}", data, use_multipart=False)
            objects += 1
        return objects

    async def tasks(end: float) -> int:
        return sum(await asyncio.gather(*(task(n, end) for n in range(UPLOADS))))

    return lambda seconds: asyncio.run(tasks(time.monotonic() + seconds))


def with_boto3(address: str) -> Callable[[float], int]:
    """Return what uploads with boto3."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise MissingError(str(error)) from None
    client = boto3.client(
        "s3",
        endpoint_url=address,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=Config(max_pool_connections=UPLOADS, request_checksum_calculation="when_required"),
    )
    data = bytes(SIZE)

    def thread(number: int, end: float) -> int:
        objects = 0
        while time.monotonic() < end:
            client.put_object(Bucket=BUCKET, Key=f"{number}_{objects}", Body=data)
            objects += 1
        return objects

    def threads(seconds: float) -> int:
        end = time.monotonic() + seconds
        with ThreadPoolExecutor(UPLOADS) as pool:
            return sum(pool.map(lambda n: thread(n, end), range(UPLOADS)))

    return threads


def main() -> None:
    """Measure each in turn."""
    args = arguments(__doc__, seconds=2, rounds=7)
    comparison = Comparison("s3_objects", "Packets as objects of S3", __doc__, args)
    os.environ |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    if compat.daqiri_init(config()) != compat.Status.SUCCESS:
        raise RuntimeError(compat.last_error())
    with Program([built("peers_discard_objects")]) as server:
        address = f"http://127.0.0.1:{server.ready['port']}"
        engine = Engine(address)

        def rate(
            upload: Callable[[float], int], unit: str = "an object", of: float = 1
        ) -> Callable[[], Measurement]:
            """Return a measurement; `of`: what counts, for each object."""

            def measure() -> Measurement:
                before = server.ask()
                begun, cpu = time.monotonic(), time.process_time()
                objects = upload(args.seconds)
                took, cpu = time.monotonic() - begun, time.process_time() - cpu
                after = server.ask()
                if after["objects"] - before["objects"] != objects:
                    raise RuntimeError(f"{objects} uploaded, {before} and {after} at the server")
                notes = {
                    f"µs CPU {unit}": round(cpu / objects / of * 1e6, 1),
                    "server's": round((after["cpu"] - before["cpu"]) / objects / of * 1e6, 1),
                }
                return Measurement(objects * of / took, notes)

            return measure

        comparison.case(
            "packets",
            "objects/s",
            {
                "daqiri": rate(engine.packets),
                "obstore": rate(with_obstore(address, SIZE)),
                "boto3": rate(with_boto3(address)),
            },
            wants=(Want("daqiri", ("obstore",), at_least=0.9), Want("daqiri", ("boto3",))),
            digits=0,
        )
        megabytes = SIZE * BATCH / 1e6
        comparison.case(
            "bursts",
            "MB/s",
            {
                # Two objects for each.
                "daqiri": rate(engine.bursts, "a MB", megabytes / 2),
                "obstore": rate(with_obstore(address, SIZE * BATCH), "a MB", megabytes),
            },
            wants=(Want("daqiri", ("obstore",)),),
            digits=0,
        )
        engine.close()
    compat.shutdown()
    comparison.finish()


if __name__ == "__main__":
    main()
