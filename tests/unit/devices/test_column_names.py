"""Names in configurations that are too long for the columns of catalogs."""

from operator import attrgetter
from typing import Any

import pytest

from daqiri_ophyd.devices import make_daq, shortened_names
from daqiri_ophyd.devices.tree import _naming
from daqiri_ophyd.engine import load_config


def configuration(
    port: str = "port0",
    rx: tuple[str, ...] = ("a",),
    tx: str = "out",
    flow: str = "flow",
    plan: str = "plan",
    region: str = "memory",
) -> dict[str, Any]:
    queue = {"cpu_core": "any", "batch_size": 8, "timeout_us": 500, "memory_regions": [region]}
    sequence = {"bit_offset": 0, "bit_width": 32, "base": "udp_payload"}
    frames = {
        "name": plan,
        "reorder_type": "cpu",
        "memory_region": region,
        "flow_ids": [7],
        "payload_base": "udp_payload",
        "payload_byte_offset": 4,
        "timeout_us": 1000,
        "frame": {"shape": [8, 8], "dtype": "uint16"},
        "method": {"seq_packets_per_batch": {"sequence_number": sequence, "packets_per_batch": 2}},
    }
    steering = {"match": {"udp_dst": 5000}, "action": {"type": "queue", "id": 0}}
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "memory_regions": [{"name": region, "kind": "host", "num_bufs": 256, "buf_size": 2048}],
        "interfaces": [
            {
                "name": port,
                "address": "loopback",
                "rx": {
                    "queues": [{"name": name, "id": i, **queue} for i, name in enumerate(rx)],
                    "flows": [{"name": flow, "id": 7, **steering}],
                    "reorder_configs": [frames],
                },
                "tx": {"queues": [{"name": tx, "id": 0, **queue}]},
            }
        ],
    }


def keys_of(daq: Any, port: str = "port0", queues: str = "all") -> set[str]:
    """Return the data keys of all readings of all devices."""
    getattr(daq, port).capture.queues.put(queues)
    found = set(daq.describe())
    for _, part in daq.walk_subdevices(include_lazy=True):
        found |= set(part.describe())
    return found


@pytest.mark.parametrize(
    ("changed", "device", "stem"),
    [
        ({"port": "detector_receiver_01"}, "rx.a.capture", ""),
        (
            {"port": "detector_receiver_001", "rx": ("queue",)},
            "rx.queue.capture",
            "daq_det_rece_001_rx_queue_capture",
        ),
        ({"rx": ("detector_module_0001",)}, "rx.detector_module_0001.capture", ""),
        ({"rx": ("q" * 30,)}, f"rx.{'q' * 30}", "daq_port0_rx_qqqqqqqqqqqq"),
        ({"rx": ("q" * 30,)}, f"rx.{'q' * 30}.capture", "daq_port0_rx_qqqqqqqqqqqq_capture"),
        ({"tx": "t" * 40}, f"tx.{'t' * 40}", "daq_port0_tx_tttttttttttt"),
        (
            {"flow": "beam1" * 9 + "on"},
            f"flows.{'beam1' * 9}on",
            "daq_port0_flows_" + "b1" * 9 + "o",
        ),
        ({"plan": "r" * 30}, f"reorder.{'r' * 30}", "daq_port0_reorder_rrrrrrrrrrrr"),
        ({"plan": "r" * 33}, f"frames.{'r' * 33}", "daq_port0_frames_rrrrrrrrrrrr"),
        ({"region": "m" * 45}, f"regions.{'m' * 45}", "daq_regions_mmmmmmmmmmmm"),
    ],
)
def test_names_are_shortened_where_data_keys_need_it(
    changed: dict[str, Any], device: str, stem: str
) -> None:
    daq = make_daq(configuration(**changed))
    path = device if device.startswith("regions") else f"{changed.get('port', 'port0')}.{device}"
    part = attrgetter(path)(daq)
    complete = f"daq_{path.replace('.', '_')}"
    assert part.name == (stem or complete)
    assert shortened_names(daq).get(complete, "") == stem
    assert all(len(key) <= 60 and key.startswith(part.name) for key in part.describe())
    # Sources and the configuration have the complete names.
    (name,) = (name if isinstance(name, str) else name[0] for name in list(changed.values())[:1])
    assert all(f"/{name}" in key["source"] for key in part.describe().values())


def test_other_queues_do_not_change_a_name() -> None:
    port, one, two = "detector_receiver_01", "module_a", "module_of_the_detector_02"
    alone = make_daq(configuration(port=port, rx=(one,)))
    stem = "daq_dete_rece_01_rx_module_a"
    complete = f"daq_{port}_rx_{one}"
    assert shortened_names(alone) == {complete: stem, f"{complete}_capture": f"{stem}_capture"}
    both = make_daq(configuration(port=port, rx=(one, two)))
    assert keys_of(alone, port, one) < keys_of(both, port, one)
    assert shortened_names(alone).items() < shortened_names(both).items()


def test_a_queue_of_a_capture_of_several() -> None:
    modules = ("detector_module_0001", "detector_module_0002")
    port = "detector_receiver_01"
    capture = getattr(make_daq(configuration(port=port, rx=modules)), port).capture
    capture.queues.put("all")
    files = [key for key in capture.describe() if key.endswith("_files")]
    assert files == [f"daq_{port}_capture_det_mod_000{n}_files" for n in (1, 2)]
    assert capture.describe()[files[1]]["source"] == f"daqiri://{port}/rx/{modules[1]}"
    assert f"daq_{port}_capture_det_mod_0002_packets" in capture.describe()


@pytest.mark.parametrize("port", ["port0", "detector_receiver_01", "p" * 29, "p" * 50])
@pytest.mark.parametrize("queues", [1, 2])
@pytest.mark.parametrize("size", [1, 16, 20, 21, 36])
@pytest.mark.parametrize("name", ["daq", "acquisition_01"])
def test_data_keys_fit_and_are_unique(port: str, queues: int, size: int, name: str) -> None:
    rx = tuple(letter * size for letter in "qr"[:queues])
    daq = make_daq(configuration(port=port, rx=rx, plan="i" * size, flow="f" * size), name)
    keys = keys_of(daq, port)
    assert max(map(len, keys)) <= 60
    parts = [part for _, part in daq.walk_subdevices(include_lazy=True)]
    assert len({part.name for part in parts}) == len(parts)


@pytest.mark.parametrize("name", ["daq", "acquisition_01"])
def test_names_that_fit_are_complete(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each device is named as it would be without a limit if all of its data keys fit."""
    config = load_config(configuration(port="detector_receiver", rx=("module", "q" * 12)))
    daq = make_daq(config, name)
    monkeypatch.setattr(_naming, "LONGEST_COLUMN", 1000)
    complete = make_daq(config, name)
    pairs = zip(daq.walk_subdevices(), complete.walk_subdevices(), strict=True)
    kept = 0
    for (_, part), (_, other) in pairs:
        keys = [getattr(other, column).name for column in _naming.column_names(type(other))]
        fits = max(map(len, [other.name, *keys])) <= 60
        assert (part.name == other.name) is fits
        kept += fits
    assert len(shortened_names(daq)) > 0 < kept


def test_a_name_of_the_device_that_leaves_no_room() -> None:
    config = configuration(port="detector_receiver_01", rx=("q" * 22,))
    with pytest.raises(ValueError, match="bytes, and catalogs accept up to 60") as raised:
        make_daq(config, "acquisition_engine")
    message = str(raised.value)
    assert "port 'detector_receiver_01', queue 'qqq" in message
    assert "or a shorter name of the device than 'acquisition_engine'" in message
    key = message.partition("the data key '")[2].partition("'")[0]
    assert key == "acquisition_engine_d_re_01_rx_qqqqqqq_capture_lost_before_engine"
    assert f"{key!r} has {len(key)} bytes" in message
    make_daq(config, "acquisition_01")


def test_names_that_become_the_same_are_refused() -> None:
    names = ("detector_of_the_left_beam", "detector_of_the_lens_beam")
    with pytest.raises(ValueError, match="would both have the data key") as raised:
        make_daq(configuration(rx=names))
    message = str(raised.value)
    assert all(f"port 'port0', queue {name!r}" in message for name in names)
    assert "'daq_port0_rx_d_o_th_le_be_" in message
    assert "Rename one in the configuration" in message


def test_a_reduction_whose_column_is_too_long() -> None:
    daq = make_daq(configuration(), "daq")
    capture = daq.port0.capture
    capture.reductions = {"r" * 42: len}
    assert max(map(len, capture.describe())) == len("daq_port0_capture_") + 42
    with pytest.raises(ValueError, match="'daq_port0_capture_r*' has 61 bytes.*shorter name"):
        capture.reductions = {"r" * 43: len}
    assert list(capture.reductions) == ["r" * 42]
    # Each of several queues has a column.
    daq = make_daq(configuration(rx=("a", "b")), "daq")
    daq.port0.capture.reductions = {"r" * 42: len}
    daq.port0.capture.queues.put("all")
    with pytest.raises(ValueError, match="'daq_port0_capture_a_r*' has 62 bytes"):
        daq.port0.capture.describe()


def test_flows_that_are_added_with_long_names() -> None:
    daq = make_daq(configuration(), "daq")
    flow = {"id": 8, "queue": "a", "udp_dst": 5001}
    long = "beamlines_with_names_that_do_not_fit_into_it_01"
    daq.change_flows({"port0": {long: flow}})
    assert [part.name for part in daq.port0.flows.members] == [
        "daq_port0_flows_flow",
        "daq_port0_flows_b_w_n_t_d_n_f_i_i_01",
    ]
    with pytest.raises(ValueError, match="'beamlines_with_n.*would both have the data key"):
        daq.change_flows(
            {"port0": {long.replace("names", "numbers"): flow | {"id": 9, "udp_dst": 5002}}}
        )
    assert len(daq.port0.flows.members) == 2
    owner = make_daq(configuration(), "acquisition_engine")
    long += "_1" * 10
    with pytest.raises(ValueError, match="flow 'beam.*bytes.*Give the flow a shorter name"):
        owner.change_flows({"port0": {long: flow}})
