"""Names in configurations that are too long for the columns of catalogs."""

from typing import Any

import pytest

from daqiri_ophyd.devices import make_daq
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


def keys_of(daq: Any) -> set[str]:
    """Return the data keys of all readings of all devices."""
    daq.port0.capture.queues.put("all")
    found = set(daq.describe())
    for _, part in daq.walk_subdevices(include_lazy=True):
        found |= set(part.describe())
    return found


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"port": "p" * 30}, "port 'pppp"),
        ({"rx": ("q" * 20,)}, ""),
        ({"rx": ("q" * 30,)}, "port 'port0', queue 'qqq"),
        ({"rx": ("q" * 30, "b")}, "port 'port0', queue 'qqq"),
        ({"tx": "t" * 40}, "port 'port0', queue 'ttt"),
        ({"flow": "f" * 45}, "port 'port0', flow 'fff"),
        ({"plan": "r" * 30}, "port 'port0', plan 'rrr"),
        ({"region": "m" * 45}, "region 'mmm"),
    ],
)
def test_names_that_are_too_long_are_refused_with_their_place(changed, named):
    config = configuration(**changed)
    if not named:
        assert max(map(len, keys_of(make_daq(config)))) <= 60
        return
    with pytest.raises(ValueError, match="bytes, and catalogs accept up to 60") as raised:
        make_daq(config)
    message = str(raised.value)
    assert named in message
    assert "Use shorter names in the configuration, or a shorter name of the device" in message
    key = message.partition("the data key '")[2].partition("'")[0]
    assert f"{key!r} has {len(key)} bytes" in message


@pytest.mark.parametrize("queues", [1, 2])
@pytest.mark.parametrize("size", [16, 19, 20, 21, 36])
def test_what_is_accepted_fits(queues: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly the trees are refused whose longest reading is too long."""
    config = load_config(configuration(rx=tuple(letter * size for letter in "qr"[:queues])))
    with monkeypatch.context() as context:
        context.setattr(_naming, "LONGEST_COLUMN", 1000)
        longest = max(map(len, keys_of(make_daq(config))))
    if longest <= 60:
        make_daq(config)
        return
    with pytest.raises(ValueError, match=rf"has {longest} bytes"):
        make_daq(config)


def test_a_shorter_name_of_the_device_makes_room() -> None:
    config = configuration(rx=("q" * 22,))
    with pytest.raises(ValueError, match="'acquisition_engine_"):
        make_daq(config, "acquisition_engine")
    assert max(map(len, keys_of(make_daq(config, "d")))) <= 60


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


def test_a_flow_that_is_added_with_too_long_a_name() -> None:
    daq = make_daq(configuration(), "daq")
    flow = {"id": 8, "queue": "a", "udp_dst": 5001}
    with pytest.raises(ValueError, match="flow 'f*': the data key .* bytes"):
        daq.change_flows({"port0": {"f" * 45: flow}})
    daq.change_flows({"port0": {"f" * 20: flow}})
    assert len(daq.port0.flows.members) == 2
