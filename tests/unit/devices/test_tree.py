"""The device tree of a configuration, without an open engine."""

import json

import pytest
from bluesky import protocols
from ophyd import Kind

from daqiri_ophyd import devices, profiles
from daqiri_ophyd.devices import make_daq
from daqiri_ophyd.engine import ConfigError, load_config

QUEUE = {"cpu_core": "any", "batch_size": 32, "timeout_us": 100, "memory_regions": ["buffers"]}


def configuration(**rx):
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "memory_regions": [
            {"name": "buffers", "kind": "host", "num_bufs": 256, "buf_size": 512},
            {"name": "ordered", "kind": "host", "num_bufs": 256, "buf_size": 16384},
        ],
        "interfaces": [
            {
                "name": "10 GbE/port-0",
                "address": "loopback",
                "rx": {
                    "queues": [
                        {"name": "0", "id": 0, **QUEUE},
                        {"name": "stage", "id": 1, **QUEUE},
                    ],
                    "flows": [
                        {
                            "name": "a-b",
                            "id": 3,
                            "match": {"udp_dst": 5000},
                            "action": {"type": "queue", "id": 1},
                        }
                    ],
                    **rx,
                },
                "tx": {"queues": [{"name": "tx", "id": 0, **QUEUE}]},
            }
        ],
    }


@pytest.fixture
def daq():
    return make_daq(configuration(), "daq")


def test_devices_are_shown_in_a_line(daq):
    assert repr(daq) == "<Daq 'daq': engine 'loopback', ports '10 GbE/port-0'; closed>"
    (port,) = (part for _, part in daq.walk_subdevices() if type(part).__name__ == "Port")
    assert repr(port) == f"<Port {port.name!r}>"


@pytest.mark.parametrize("name", ["stage_sigs", "prefix", "log", "directory", "unstaging"])
def test_names_that_devices_have_for_other_things(name):
    config = configuration()
    config["interfaces"][0]["name"] = name
    config["interfaces"][0]["rx"]["flows"][0]["name"] = name
    port = make_daq(config, "daq").port_device(name)
    assert port.attr_name == f"{name}_"
    assert [flow.member_name for flow in port.flows.members] == [name]


def test_names_are_mapped_and_stay_readable(daq):
    port = daq.port_10_GbE_port_0
    assert port.rx.component_names == ("queue_0", "stage_")
    assert port.rx.stage_.member_name == "stage"
    assert port.rx.stage_.received.name == "daq_port_10_GbE_port_0_rx_stage__received"
    assert port.flows.a_b.flow_name.get() == "a-b"
    assert port.flows.a_b.queues.get() == ["stage"]
    assert port.tx.tx.source == "daqiri://10 GbE/port-0/tx/tx"
    assert port.capture.queues.get() == "0"


def test_parts_are_found_by_their_names_in_the_configuration(daq):
    port = daq.port_device("10 GbE/port-0")
    assert port is daq.port_10_GbE_port_0
    assert [queue.member_name for queue in port.rx.members] == ["0", "stage"]
    with pytest.raises(LookupError, match="daq has no port 'port1'; there are '10 GbE/port-0'"):
        daq.port_device("port1")


def test_names_that_collide_are_refused():
    flow = {"id": 3, "match": {"udp_dst": 5000}, "action": {"type": "queue", "id": 1}}
    flows = [{**flow, "name": "a b"}, {**flow, "name": "a.b", "id": 4, "match": {"udp_dst": 1}}]
    with pytest.raises(ValueError, match="'a b' and 'a.b' would both be the attribute 'a_b'"):
        make_daq(configuration(flows=flows))


def test_sources_of_configurations(tmp_path):
    path = profiles.path("loopback")
    for source in (path, str(path), path.read_text(), load_config(path)):
        assert make_daq(source).component_names[-1] == "port0"
    with pytest.raises(ConfigError, match="master_core"):
        make_daq({"version": 1})


@pytest.mark.parametrize("name", profiles.names())
def test_every_profile_has_a_tree(name):
    try:
        configured = load_config(profiles.path(name))
    except ConfigError as error:
        assert "<" in str(error)  # a template that waits for addresses
        return
    daq = make_daq(configured)
    uses_gpu = name in ("igx", "jungfrau-gpu", "spark")
    assert hasattr(daq, "gpus") == uses_gpu
    # `reorder` and `frames` of plans of several interfaces.
    joint = 2 * bool(configured.reorder_configs)
    assert len(daq.component_names) == len(configured.interfaces) + 4 + uses_gpu + joint


def gpus_of(kind, reorder_type=None):
    plans = [] if reorder_type is None else [{**PLAN, "reorder_type": reorder_type}]
    config = configuration(reorder_configs=plans)
    for region in config["memory_regions"]:
        region["kind"] = kind
    config["memory_regions"][0]["affinity"] = 1
    return getattr(make_daq(config, "daq"), "gpus", None)


@pytest.mark.parametrize(
    ("kind", "reorder_type", "attributes"),
    [
        ("host_pinned", None, ("gpu_0",)),
        ("host_pinned", "gpu", ("gpu_0",)),
        ("device", None, ("gpu_0", "gpu_1")),
        ("device", "gpu", ("gpu_0", "gpu_1")),
    ],
)
def test_gpus_are_those_that_the_configuration_uses(kind, reorder_type, attributes):
    gpus = gpus_of(kind, reorder_type)
    assert gpus.component_names == attributes
    # Reading the engine does not need them.
    daq = gpus.parent
    keys = [*daq.describe(), *daq.describe_configuration(), *daq.read_configuration()]
    assert not any("gpu" in key for key in keys)


@pytest.mark.parametrize("reorder_type", [None, "cpu"])
def test_without_a_gpu_there_is_no_device_of_one(reorder_type):
    assert gpus_of("host", reorder_type) is None


@pytest.mark.parametrize(("kind", "attribute"), [("host", "gpus"), ("host_pinned", "gpus_")])
def test_a_port_gives_way_to_gpus_only_where_there_are_some(kind, attribute):
    config = configuration()
    config["interfaces"][0]["name"] = "gpus"
    config["memory_regions"][0]["kind"] = kind
    assert make_daq(config, "daq").port_device("gpus").attr_name == attribute


def test_nothing_is_opened(daq):
    assert not daq.is_open
    assert not daq.connected
    daq.describe()
    daq.describe_configuration()
    assert set(daq.read_configuration()) == set(daq.describe_configuration())
    daq.close()


def test_kinds(daq):
    port = daq.port_10_GbE_port_0
    assert port.rx.queue_0.received.kind == Kind.hinted
    assert port.rx.queue_0.delivered.kind == Kind.normal
    assert port.rx.queue_0.batch_size.kind == Kind.config
    assert port.capture.num_packets.kind == Kind.config
    # Reading the engine does not need a capture.
    assert not any("capture" in key for key in daq.describe())
    assert any("capture" in key for key in daq.describe_configuration())


def test_descriptions_are_precise(daq):
    keys = daq.describe()
    for key in keys.values():
        assert key["source"].startswith(("daqiri://10 GbE/port-0/", "daqiri://daq/regions/"))
        assert key["dtype_numpy"] in ("<i8", "<f8")
        assert key["units"]
    facts = daq.port_10_GbE_port_0.rx.queue_0.describe_configuration()
    name = "daq_port_10_GbE_port_0_rx_queue_0_regions"
    assert (facts[name]["shape"], facts[name]["dtype_numpy"]) == ([1], "<U7")


def test_what_the_engine_runs_with_is_in_every_configuration(daq):
    port = daq.port_10_GbE_port_0
    for device in (port.capture, port.rx.queue_0, port.tx.tx, daq):
        used = device.read_configuration()
        (flow,) = json.loads(used["daq_flow_table"]["value"])["10 GbE/port-0"]
        assert flow["match"] == {"udp_dst": 5000}
        assert used["daq_configuration_sha256"]["value"] == daq.config_sha256
    assert load_config(daq.metadata()["config"]).interfaces[0].rx.queues[1].id == 1


def test_a_very_long_configuration_is_told_by_its_size():
    flows = [
        {"name": f"f{i}", "id": i, "match": {"udp_dst": i}, "action": {"type": "queue", "id": 1}}
        for i in range(1, 1000)
    ]
    found = make_daq(configuration(flows=flows), "daq").metadata()
    assert found["config_bytes"] > 64 << 10
    assert "config" not in found


PLAN = {
    "name": "order",
    "reorder_type": "cpu",
    "memory_region": "ordered",
    "payload_byte_offset": 64,
    "flow_ids": [3],
    "method": {
        "seq_packets_per_batch": {
            "sequence_number": {
                "bit_offset": 512,
                "bit_width": 32,
                "byte_order": "big",
                "base": "packet",
            },
            "packets_per_batch": 16,
        }
    },
}


def test_reorder_plans_are_readable():
    plan = make_daq(configuration(reorder_configs=[PLAN])).port_10_GbE_port_0.reorder.order
    used = {key.rpartition("order_")[2]: v["value"] for key, v in plan.read_configuration().items()}
    assert used["flow_ids"] == [3]
    assert used["payload_byte_offset"] == 64
    assert json.loads(used["method"]) == PLAN["method"]
    assert plan.hints == {"fields": [plan.complete_frames.name, plan.incomplete_frames.name]}


@pytest.mark.parametrize(
    "protocol",
    [
        protocols.Readable,
        protocols.Stageable,
        protocols.Configurable,
        protocols.Pausable,
        protocols.Stoppable,
        protocols.HasHints,
        protocols.HasName,
        protocols.HasParent,
    ],
)
def test_every_device_is(daq, protocol):
    port = daq.port_10_GbE_port_0
    for device in (daq, port, port.rx, port.rx.queue_0, port.tx.tx, port.flows.a_b, port.capture):
        assert isinstance(device, protocol)


def test_captures_and_transmit_queues_trigger_and_fly(daq):
    port = daq.port_10_GbE_port_0
    for device in (port.capture, port.tx.tx):
        for protocol in (
            protocols.Triggerable,
            protocols.Flyable,
            protocols.Collectable,
            protocols.EventPageCollectable,
            protocols.WritesExternalAssets,
        ):
            assert isinstance(device, protocol)
        # With an index the RunEngine would leave the rows of counters out.
        assert not isinstance(device, protocols.WritesStreamAssets)
    assert isinstance(port.tx.tx, protocols.Preparable)
    for signal in (port.rx.queue_0.received, port.capture.packets):
        assert isinstance(signal, protocols.Readable)
        assert isinstance(signal, protocols.Subscribable)
    assert isinstance(port.capture.num_packets, protocols.Movable)


def test_public_names_exist():
    assert all(hasattr(devices, name) for name in devices.__all__)


def test_detectors_are_found_by_label_and_are_in_no_reading_of_the_engine():
    daq = make_daq(profiles.path("jungfrau"), "daq")
    magics = pytest.importorskip("bluesky.magics", reason="needs IPython")
    found = magics.get_labeled_devices({"daq": daq})
    assert [name for name, _ in found["detectors"]] == [
        "daq.receiver.capture",
        "daq.receiver.frames.images",
    ]
    assert "receiver.frames.images" in daq.read_attrs
    assert "frames.images" in daq.receiver.read_attrs
    assert "images" in daq.receiver.frames.read_attrs
    assert not [key for key in daq.describe() if "frames_images" in key or "capture" in key]
    assert not [key for key in daq.hints["fields"] if "frames_images" in key or "capture" in key]
    assert "received" in daq.receiver.rx.members[0].read_attrs
    assert len(daq.receiver.read_attrs) == len(list(daq.receiver.read_attrs))
