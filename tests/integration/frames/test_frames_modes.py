"""Modes of a reorder plan: a setting of the detector that is used when it is staged."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from numbered_camera import loopback
from numpy.typing import NDArray
from run_documents import Documents
from waiting import wait_for

from daqiri_ophyd import plans
from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import CaptureError, Daq, FrameDetector, make_daq
from daqiri_ophyd.documents import Correction, sidecar_path, write_corrected
from daqiri_ophyd.engine import (
    ConfigError,
    Engine,
    InvalidParameterError,
    NotReadyError,
    check_config,
    ethernet,
    examine_frames,
    load_config,
)

from .conftest import PACKETS, SHAPE, Source, configuration, fly, image, images

KEY = "daq_port0_frames_images"
SEQUENCE = {"bit_offset": 0, "bit_width": 32, "base": "udp_payload"}


def method(packets: int) -> dict[str, Any]:
    """Frames of so many packets."""
    return {"seq_packets_per_batch": {"sequence_number": SEQUENCE, "packets_per_batch": packets}}


MODES: dict[str, Any] = {
    # Half of the rows: each image is two frames.
    "half": {"frame": {"shape": [4, 32], "dtype": "uint16"}, "method": method(4)},
    "float": {
        "data_types": {"input_type": "uint16", "output_type": "fp32"},
        "frame": {"shape": list(SHAPE), "dtype": "float32"},
    },
}


def of_mode(mode: str, batches: Any) -> NDArray[Any]:
    """Return the frames with these numbers."""
    if mode == "half":
        return np.array([image(int(b) // 2)[4 * (int(b) % 2) :][:4] for b in batches])
    return images(batches).astype(np.float32 if mode == "float" else np.uint16)


@pytest.fixture
def daq(make: Callable[..., Daq]) -> Daq:
    return make(modes=MODES, columns={"sequence": SEQUENCE | {"from": "packets"}})


def check(config: dict[str, Any]) -> list[tuple[str, str]]:
    return [(problem.path, problem.message) for problem in check_config(config).errors]


PLAN = "interfaces[0].rx.reorder_configs[0]"


def numbered(numbers: Any, packets: int) -> NDArray[np.uint8]:
    """Return Ethernet packets, each with a sequence number and a byte with that of its image."""
    payloads = np.zeros((len(numbers), 5), np.uint8)
    for payload, number in zip(payloads, numbers, strict=True):
        payload[:4] = list((number % 2**32).to_bytes(4, "big"))
        payload[4] = number // packets % 200
    return ethernet.udp_frames(
        payloads,
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=4000,
        dst_port=6000,
    )


def of_any_packets() -> dict[str, Any]:
    """Return a loopback with images of three packets, whose numbers begin anew within an image."""
    return loopback(
        buffers=64,
        payload_byte_offset=4,
        method=method(3),
        frame={"shape": [3], "dtype": "uint8"},
        modes={"filled": {"fill": 7}},
    )


def test_numbers_that_begin_anew_go_over_to_the_next_mode() -> None:
    first = 2**32 - 4  # of the image with number 1431655764
    with Engine.open(of_any_packets()) as engine:
        (port,) = engine.ports
        plan = port.reorder["images"]

        def made(numbers: range) -> list[tuple[int, list[int]]]:
            with plan.frames(timeout=20.0) as taken:
                packets = numbered(numbers, 3)
                assert port.tx[0].send(packets, timeout=20.0) == len(packets)
                return [
                    (frame.batch, frame.data.tolist())
                    for _, frame in zip(range(len(numbers) // 3), taken, strict=False)
                ]

        def wanted(numbers: range) -> list[tuple[int, list[int]]]:
            return [(n // 3, [n // 3 % 200] * 3) for n in numbers[::3]]

        over = range(first, first + 150)
        assert made(over) == wanted(over)
        for mode in ("filled", "", "filled"):
            plan.set_mode(mode)
            over = range(over.stop, over.stop + 60)
            assert made(over) == wanted(over)
        assert plan.counters().placed == plan.counters().packets == 150 + 180


def test_modes_of_any_packets_count_the_same_numbers() -> None:
    config = of_any_packets()
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    for other in (
        {"method": method(4), "frame": {"shape": [4], "dtype": "uint8"}},
        {"method": {"seq_packets_per_batch": method(3)["seq_packets_per_batch"] | FIRST}},
    ):
        plan["modes"] = {"other": other}
        ((path, message),) = check(config)
        assert path == f"{PLAN}.modes.other.method"
        assert "accepts seq_packets_per_batch with the sequence_number and first_packet" in message
    plan["modes"] = {"other": {"method": method(5), "frame": {"shape": [5], "dtype": "uint8"}}}
    assert check(config) == []


FIRST = {"first_packet": 1}


def test_each_scan_has_the_frames_of_its_mode_in_one_engine(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    daq: Daq,
) -> None:
    engine = daq.engine
    source.start()
    for mode in ("", "half", "float", "half", ""):
        detector.mode.set(mode).wait()
        shape, dtype = detector.form
        key = detector.describe()[KEY]
        assert (tuple(key["shape"]), key["dtype_numpy"]) == (shape, dtype.str)
        for plan in (
            bp.count([detector], 3),
            bpp.stage_wrapper(fly(detector, prepared=5), [detector]),
        ):
            documents.clear()
            (uid,) = run_engine(plan)
            stored = catalog.client[uid]["primary"].base
            assert stored[KEY].shape[-2:] == shape
            batches = stored[f"{KEY}_batch"].read()
            np.testing.assert_array_equal(stored[KEY].read(), of_mode(mode, batches))
            assert stored[KEY].read().dtype == dtype
            packets = 4 if mode == "half" else PACKETS
            assert documents.descriptor()["data_keys"][f"{KEY}_sequence"]["shape"] == [packets]
            numbers = stored[f"{KEY}_sequence"].read()
            assert (numbers == batches[:, None] * packets + np.arange(packets)).all()
            described = documents.descriptor()["configuration"][KEY]
            assert described["data"][f"{KEY}_mode"] == mode
            assert described["data_keys"][f"{KEY}_mode"]["choices"] == ["", "half", "float"]
            (path,) = detector.files
            told = json.loads(path.with_name(path.name + ".json").read_text())
            assert told.get("mode", "") == mode
    source.stop()
    assert daq.engine is engine
    counters = engine.reorder_plan("port0/images").counters
    wait_for(lambda: counters().packets == source.next * PACKETS)
    found = counters()
    assert found.lost == found.skipped == found.malformed == 0


def test_a_mode_is_used_from_stage_on_and_stays_until_the_next(
    detector: FrameDetector, source: Source, daq: Daq
) -> None:
    plan = daq.engine.reorder_plan("port0/images")
    assert (plan.modes, plan.mode) == (("half", "float"), "")
    detector.mode.put("half")
    assert (plan.mode, plan.shape) == ("", SHAPE)
    detector.stage()
    assert (plan.mode, plan.shape, plan.config.name) == ("half", (4, 32), "images")
    with pytest.raises(CaptureError, match="images_mode cannot be changed while"):
        detector.mode.put("float")
    detector.unstage()
    assert plan.mode == "half"
    detector.mode.put("float")
    detector.stage()
    assert (plan.mode, plan.dtype) == ("float", np.float32)
    detector.unstage()
    with pytest.raises(ValueError, match="mode is 'roi'; accepted are '', 'half', 'float'"):
        detector.mode.put("roi")
    # An engine that is opened anew begins with the plan as it is written.
    daq.close()
    daq.open()
    assert daq.engine.reorder_plan("port0/images").mode == ""
    detector.stage()
    assert daq.engine.reorder_plan("port0/images").mode == "float"
    detector.unstage()


def test_the_last_frame_has_the_form_of_the_mode(
    detector: FrameDetector, source: Source, daq: Daq
) -> None:
    signal = daq.port0.reorder.images.last_frame
    source.start()
    for mode in ("half", "float", ""):
        detector.mode.put(mode)
        detector.stage()
        shape, dtype = detector.form
        for _ in range(2):
            value = signal.get()
            assert (value.shape, value.dtype) == (shape, dtype)
        assert signal.describe()[signal.name]["shape"] == list(shape)
        detector.unstage()
    source.stop()


def test_a_mode_cannot_be_set_while_a_receiver_has_the_frames(source: Source, daq: Daq) -> None:
    plan = daq.engine.reorder_plan("port0/images")
    with plan.frames() as frames:
        source.send()
        np.testing.assert_array_equal(next(frames).data, image(0))
        with pytest.raises(NotReadyError, match="mode of reorder plan 'images' cannot be set: its"):
            plan.set_mode("half")
        plan.set_mode("")
    plan.set_mode("half")
    with plan.frames() as frames:
        source.send()
        for part in (2, 3):
            np.testing.assert_array_equal(next(frames).data, of_mode("half", [part])[0])
    with pytest.raises(Exception, match="no mode 'roi'; accepted are 'half', 'float' and ''"):
        plan.set_mode("roi")


def test_what_is_no_mode_is_refused_by_name(daq: Daq) -> None:
    plan = daq.open().engine.reorder_plan("port0/images")
    accepted = "accepted are 'half', 'float' and '', the plan as it is written"
    for wrong, found in (("half\0", r"'half\x00'"), ("\ud800", r"'\ud800'"), ("h" * 999, "...'")):
        with pytest.raises(InvalidParameterError) as caught:
            plan.set_mode(wrong)
        assert f"{found}; {accepted}" in str(caught.value)
        assert len(str(caught.value)) < 300
    for no_text in (None, 3, b"half"):
        with pytest.raises(TypeError, match="the mode is .*, no text; accepted are '', 'half', 'f"):
            plan.set_mode(no_text)  # pyright: ignore[reportArgumentType]
    assert plan.mode == ""
    daq.close()
    with pytest.raises(NotReadyError, match="'images' cannot be set: the engine is closed; open"):
        plan.set_mode("half")


def test_a_file_of_frames_has_their_mode(daq: Daq, source: Source, tmp_path: Path) -> None:
    """The metadata file is written last: a killed recorder leaves none."""
    plan = daq.engine.reorder_plan("port0/images")
    plan.set_mode("half")
    with plan.record(tmp_path) as recorder:
        source.send(without=(3,))
        source.send()
        wait_for(lambda: recorder.snapshot().packets == 2 * PACKETS - 1)
    (file,) = recorder.files()
    path = file.path
    assert examine_frames(path).mode == "half"
    dark = np.full((4, 32), 7, np.uint16)
    written = {}
    for how in ("told", "killed"):
        if how == "killed":
            sidecar_path(path).unlink()
        target = write_corrected(path, Correction(dark=dark), tmp_path / f"{how}.h5")
        with h5py.File(target) as opened:
            written[how] = opened["entry/data/data"][()]
            assert opened["entry/configuration/mode"].asstr()[()] == "half"
    np.testing.assert_array_equal(written["told"], written["killed"])
    expected = of_mode("half", range(4)).astype(np.float32) - 7
    expected[0, 3] = np.nan  # rows of the packet that did not come
    np.testing.assert_array_equal(written["told"], expected)


def test_frames_of_a_mode_are_sent_again_as_its_packets(
    run_engine: RunEngine,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    daq: Daq,
) -> None:
    detector.mode.put("half")

    def motion() -> Iterator[Any]:
        yield from bps.null()
        source.send(3)

    plan = fly(detector, motion(), prepared=6)
    run_engine(plans.engine_metadata_wrapper(bpp.stage_wrapper(plan, [detector])))
    images_plan = daq.engine.reorder_plan("port0/images")
    detector.mode.put("")  # used by whoever stages the detector
    images_plan.set_mode("")
    placed = images_plan.counters().placed
    run = catalog.client[-1].metadata["start"]["uid"]
    (path,) = detector.files
    sidecar = path.with_name(path.name + ".json")
    whole = sidecar.read_text()
    sidecar.write_text(json.dumps({k: v for k, v in json.loads(whole).items() if k != "mode"}))
    with pytest.raises(Exception, match=r"has frames of shape \(4, 32\).*has to name it: 'mode'"):
        run_engine(plans.replay(daq.port0.tx.out, run, catalog, max_gap=0.01))
    sidecar.write_text(whole)
    run_engine(plans.replay(daq.port0.tx.out, run, catalog, max_gap=0.01))
    assert catalog.client[-1].metadata["start"]["replay"]["packets"] == 3 * PACKETS
    wait_for(lambda: images_plan.counters().placed == placed + 3 * PACKETS)
    # The plan as it is written makes whole images of the same packets.
    with images_plan.frames(timeout=5.0) as frames:
        for number in range(2):
            np.testing.assert_array_equal(next(frames).data, image(number))


def test_plans_of_several_ports_have_modes(captures: Path) -> None:
    config = configuration(flow_ids=None, flows=["port0/begin", "port0/data"], modes=MODES)
    config["reorder_configs"] = config["interfaces"][0]["rx"].pop("reorder_configs")
    with make_daq(config, "daq", directory=captures) as daq:
        detector, source = daq.frames.images, Source(daq)
        detector.mode.put("half")
        detector.stage()
        status = detector.trigger()
        source.send()
        status.wait(60)
        detector.unstage()
        assert detector.form == ((4, 32), np.uint16)
        config["reorder_configs"][0]["modes"] = {"a": {"flows": ["port0/data"]}}
    ((path, message),) = check(config)
    assert path == "reorder_configs[0].modes.a.flows"
    assert message.startswith("is the same in all modes of a plan")


@pytest.mark.parametrize(
    ("modes", "path", "message"),
    [
        (
            {"big": {"frame": {"shape": [8, 512]}, "method": method(8)}},
            "modes.big.frame.shape",
            "found a frame of 4096 bytes; accepts 8 packets of the same length, of up to 252",
        ),
        (
            {
                "big": {
                    "frame": {"shape": [64, 32], "dtype": "uint16"},
                    "method": method(64),
                },
                "huge": {
                    "frame": {"shape": [128, 32], "dtype": "uint16"},
                    "method": method(128),
                },
            },
            "modes.huge.memory_region",
            "found 'frames' with buffers of 4096 bytes; a batch has 128 packets of up to 64 bytes "
            "each; accepts a region whose buf_size holds them",
        ),
        (
            {"a": {"memory_region": "rx"}},
            "modes.a.memory_region",
            "is the same in all modes of a plan; accepts it in the plan only, or another plan",
        ),
        ({"a": {"modes": {}}}, "modes.a.modes", "is the same in all modes of a plan"),
        ({"a": {"windo": 2}}, "modes.a.windo", "unknown key 'windo', nearest is 'window'"),
        ({"a": {"window": 65}}, "modes.a.window", "found '65', out of range"),
        ({"a": 5}, "modes.a", "found '5'; accepts a map of the keys that differ"),
        ({"": {}}, "modes", "found '' as a name, an empty text; accepts a text of up to 200 bytes"),
        ([1], "modes", "found a list; accepts a map (names, each with a map of the keys that"),
    ],
)
def test_each_mode_is_checked_as_a_plan(modes: Any, path: str, message: str) -> None:
    ((found, text),) = check(configuration(modes=modes))
    assert found == f"{PLAN}.{path}"
    assert text.startswith(message), text
    with pytest.raises(ConfigError):
        load_config(configuration(modes=modes))


def test_a_mistake_of_the_plan_is_reported_once() -> None:
    wrong = configuration(modes=MODES, window=65)
    ((path, _),) = check(wrong)
    assert path == f"{PLAN}.window"
    ((path, _),) = check(configuration(modes=MODES, frame={"shape": [7, 7]}))
    assert path == f"{PLAN}.frame.shape"


def test_modes_are_kept_when_a_configuration_is_written() -> None:
    condition = {"bit_offset": 0, "bit_width": 8, "base": "udp_payload", "equal": 0}
    given = configuration(
        conditions=[condition],
        modes={
            **MODES,
            # Defaults, in place of what the plan has.
            "plain": {"conditions": [], "timeout_us": 0, "payload_base": "packet"},
        },
    )
    config = load_config(given)
    again = load_config(config.to_dict())
    assert again == config
    (plan,) = again.interfaces[0].rx.reorder_configs
    assert list(plan.modes) == ["half", "float", "plain"]
    plain = plan.modes["plain"]
    assert (plain.conditions, plain.timeout_us, plain.payload_base) == ((), 0, "packet")
    half = plan.modes["half"]
    assert (half.packets_per_batch, half.timeout_us, half.conditions) == (
        4,
        plan.timeout_us,
        plan.conditions,
    )
    assert (half.name, half.flow_ids, half.modes) == ("images", plan.flow_ids, {})
