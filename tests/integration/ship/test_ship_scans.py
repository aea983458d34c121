"""Files of scans go to an object store; a scan does not notice the store."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus
from numbered_camera import BYTES, PACKETS, numbered_packets
from object_servers import Fault, FaultServer
from run_documents import Documents
from waiting import wait_for

from daqiri_ophyd import plans
from daqiri_ophyd.devices import Daq, PathInfo, make_daq
from daqiri_ophyd.documents import sidecar_path
from daqiri_ophyd.replay import PacketArray
from daqiri_ophyd.ship import resume, shipper_of

IMAGES = 40


def images(count: int, packets: int, size: int) -> PacketArray:
    """Images of so many packets, whose bytes are the number of the image."""
    number, slots = np.repeat(np.arange(count), packets), np.tile(np.arange(packets), count)
    return PacketArray(
        numbered_packets(number, slots, number.astype(np.uint8), size), number * 1_000_000
    )


def capture(daq: Daq, **settings: Any) -> Any:
    given = {"num_packets": IMAGES * PACKETS, "roll_packets": 16} | settings
    return plans.capture(
        daq.camera.capture, tx=daq.camera.tx.tx, packets=images(IMAGES, PACKETS, BYTES), **given
    )


def fly(daq: Daq) -> Any:
    detector, tx = daq.camera.frames.images, daq.camera.tx.tx
    return plans.record(
        detector, IMAGES, roll_frames=10, tx=tx, packets=images(IMAGES, PACKETS, BYTES)
    )


def in_store(server: FaultServer, files: list[Path], root: Path) -> bool:
    """Whether the store has exactly these files and their metadata, equal."""
    expected = {}
    for file in files:
        key = f"beam/{file.relative_to(root)}"
        expected[key] = file.read_bytes()
    found = {k: v for k, v in server.objects.items() if not k.endswith(".json")}
    return found == expected and {f"{k}.json" for k in expected} == server.objects.keys() - found


def test_files_of_captures_and_frames_are_uploaded(
    tmp_path: Path, daq: Daq, run_engine: RunEngine, used: FaultServer
) -> None:
    detector = daq.camera.frames.images
    with daq:
        run_engine(capture(daq))
        files = daq.camera.capture.files
        run_engine(fly(daq))
        files += detector.files + detector.masters
        told = detector.read_configuration()["daq_camera_frames_images_ship_to"]["value"]
    assert len(files) == 10 + 4 + 1
    assert shipper_of("s3://bucket").wait(60)
    assert in_store(used, files, tmp_path / "captures")
    assert set(used.puts.values()) == {1}
    assert told == "s3://bucket/beam"
    key = f"beam/{files[-2].relative_to(tmp_path / 'captures')}.json"
    assert json.loads(used.objects[key])["frames"] == 10


def test_a_master_goes_to_the_store_with_its_files(
    tmp_path: Path, daq: Daq, run_engine: RunEngine, used: FaultServer
) -> None:
    """Also if files are removed while a scan goes on. Downloaded together, they are whole."""
    detector, tx = daq.camera.frames.images, daq.camera.tx.tx
    detector.keep_shipped.put(False)
    gone: list[Path] = []

    def before_unstaging(msg: Any) -> Any:
        if msg.command != "unstage":
            return None, None

        def wait() -> Any:
            wait_for(lambda: not detector.files[1].exists())
            gone.append(detector.files[1])
            return (yield msg)

        return wait(), None

    with daq:
        packets = images(IMAGES, PACKETS, BYTES)
        plan = plans.record(detector, IMAGES, roll_frames=10, tx=tx, packets=packets)
        run_engine(bpp.plan_mutator(plan, before_unstaging))
    assert gone
    assert shipper_of("s3://bucket").wait(60)
    (master,) = detector.masters
    assert not any(path.exists() for path in [master, *detector.files])
    assert not list(master.parent.glob("*.shipment"))
    copy = tmp_path / "download"
    for key, content in used.objects.items():
        (copy / key).parent.mkdir(parents=True, exist_ok=True)
        (copy / key).write_bytes(content)
    (found,) = copy.rglob(master.name)
    with h5py.File(found) as file:
        numbers = file["entry/data/batch"][:]
        assert numbers.tolist() == list(range(IMAGES))
        frames = file["entry/data/data"][()].reshape(IMAGES, -1)
        np.testing.assert_array_equal(frames, np.repeat(numbers[:, np.newaxis], PACKETS * BYTES, 1))


def test_a_file_of_readings_is_uploaded_when_it_cannot_change_any_more(
    tmp_path: Path, daq: Daq, run_engine: RunEngine, used: FaultServer
) -> None:
    detector = daq.camera.frames.images

    def readings() -> Any:
        yield from bps.open_run()
        for number in range(3):
            yield from bps.trigger(detector, group="reading")
            queue = daq.tx_queue("camera", "tx")
            queue.send(numbered_packets([number] * PACKETS, range(PACKETS), number, 512))
            yield from bps.wait("reading")
            yield from bps.create()
            yield from bps.read(detector)
            yield from bps.save()
        yield from bps.close_run()
        # Until it is unstaged, its latest reading may be cut off.
        assert not list(used.objects)

    with daq:
        run_engine(bpp.stage_wrapper(readings(), [detector]))
        files = detector.files
    assert len(files) == 1
    assert shipper_of("s3://bucket").wait(60)
    assert in_store(used, files, tmp_path / "captures")
    assert set(used.puts.values()) == {1}


def test_a_scan_does_not_notice_that_the_store_is_away(
    tmp_path: Path, daq: Daq, run_engine: RunEngine, used: FaultServer, documents: Documents
) -> None:
    used.stop()
    with daq:
        run_engine(capture(daq))
        files = daq.camera.capture.files
        signal = daq.camera.capture.unsent_bytes
        wait_for(lambda: signal.get() == sum(file.stat().st_size for file in files))
        wait_for(lambda: daq.camera.capture.unsent_age.get() > 0)
    assert documents.stop["exit_status"] == "success"
    rows = documents.rows()
    assert sum(row["daq_camera_capture_packets"] for row in rows) == IMAGES * PACKETS
    assert sum(row["daq_camera_capture_dropped"] for row in rows) == 0
    used.start()
    assert shipper_of("s3://bucket").wait(60)
    assert in_store(used, files, tmp_path / "captures")
    wait_for(lambda: signal.get() == 0)


@pytest.mark.parametrize("limit", ["unsent_bytes_limit", "unsent_age_limit"])
def test_what_waits_for_the_store_can_fill_up_like_a_disk(
    daq: Daq, run_engine: RunEngine, used: FaultServer, limit: str
) -> None:
    used.stop()
    detector = daq.camera.capture
    getattr(detector, limit).put(20_000 if limit == "unsent_bytes_limit" else 0.001)
    with daq:
        with pytest.raises(FailedStatus) as failed:
            run_engine(capture(daq, num_packets=0, acquire_time=60.0, on_drop="ignore"))
        reason = str(failed.value.__cause__)
        assert "s3://bucket" in reason
        assert f"daq_camera_capture_{limit} is" in reason
        # As on a full disk, nothing begins either; its text has why the store takes nothing.
        wait_for(lambda: shipper_of("s3://bucket").state.error)
        with pytest.raises(Exception, match=rf"{limit} is .*Connection refused"):
            run_engine(capture(daq))
        used.start()
        assert shipper_of("s3://bucket").wait(60)
        getattr(detector, limit).put(0)
        run_engine(capture(daq))


def test_a_recording_that_resumes_counts_what_it_could_not_keep(
    daq: Daq, run_engine: RunEngine, used: FaultServer, documents: Documents
) -> None:
    used.stop()
    detector = daq.camera.capture
    detector.unsent_bytes_limit.put(100_000)
    detector.on_error.put("resume")
    count = 2000

    def heal() -> None:
        wait_for(lambda: detector.progress is not None and detector.progress.dropped > 0)
        used.start()

    healer = threading.Thread(target=heal)
    healer.start()
    with daq:
        run_engine(
            plans.capture(
                detector,
                roll_packets=16,
                on_drop="flag",
                tx=daq.camera.tx.tx,
                packets={"count": count, "size": 500, "rate": 400, "udp_dst": 6000},
            )
        )
    healer.join()
    rows = documents.rows()
    packets, dropped = (
        sum(row[f"daq_camera_capture_{name}"] for row in rows) for name in ("packets", "dropped")
    )
    assert packets + dropped == count
    assert dropped > 0
    assert packets > 16
    told = [json.loads(sidecar_path(file).read_text()) for file in detector.files]
    assert sum(each["dropped_by_reason"].get("write_error", 0) for each in told) == dropped
    assert documents.stop["exit_status"] == "success"


def test_local_files_can_go(
    tmp_path: Path, daq: Daq, run_engine: RunEngine, used: FaultServer
) -> None:
    daq.camera.capture.keep_shipped.put(False)
    with daq:
        run_engine(capture(daq))
        files = daq.camera.capture.files
    assert shipper_of("s3://bucket").wait(60)
    assert not list(tmp_path.rglob("*.pcap"))
    assert {f"beam/{file.relative_to(tmp_path / 'captures')}" for file in files} == {
        key for key in used.objects if key.endswith(".pcap")
    }


def test_a_path_provider_s_files_are_at_their_whole_path(
    tmp_path: Path, used: FaultServer, run_engine: RunEngine, make: Callable[..., Daq]
) -> None:
    other = make_daq(
        make().config,
        name="other",
        directory=lambda device: PathInfo(tmp_path / "elsewhere" / device, "run"),
        ship_to="s3://bucket/all/",
    )
    with other:
        run_engine(capture(other))
    assert shipper_of("s3://bucket").wait(60)
    folder = f"all{tmp_path}/elsewhere/other_camera_capture"
    assert f"{folder}/run_000009.pcap.json" in used.objects


def test_an_address_that_is_none_is_refused_where_it_is_set(
    make: Callable[..., Daq], run_engine: RunEngine
) -> None:
    daq = make()
    with pytest.raises(ValueError, match=r"'s3//bucket' is no address.*no scheme"):
        daq.camera.capture.ship_to.put("s3//bucket")
    with pytest.raises(Exception, match=r"ship_to: found 's3://'.*accepts the address of"):
        make("s3://")
    daq.camera.capture.ship_to.put("")
    with daq:
        run_engine(capture(daq))
    assert list(daq.camera.capture.files)


def test_orders_of_an_earlier_process_are_continued_when_a_device_is_used(
    tmp_path: Path, daq: Daq, run_engine: RunEngine, used: FaultServer
) -> None:
    used.fail_next(10**6, Fault.ACCESS_DENIED, "PUT")
    with daq:
        run_engine(capture(daq))
    wait_for(lambda: "AccessDenied" in shipper_of("s3://bucket").state.error)
    shipper_of("s3://bucket").close()  # as a process that ends
    used.heal()
    first = {path.name for path in tmp_path.rglob("*.shipment")}
    assert first == {"camera.shipment"}
    assert resume(tmp_path, lambda address: shipper_of(address))[1] == []
    assert shipper_of("s3://bucket").wait(60)
    assert in_store(used, daq.camera.capture.files, tmp_path / "captures")
