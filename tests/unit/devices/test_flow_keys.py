"""Keys of matches as signals, without an open engine."""

import ipaddress
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daqiri_ophyd import devices
from daqiri_ophyd.devices import make_daq
from daqiri_ophyd.engine import ConfigError

PORTS = st.integers(1, 65535)


def flow(match, **rx):
    """A device whose only flow has a match."""
    queue = {
        "name": "rx",
        "id": 0,
        "cpu_core": "any",
        "batch_size": 8,
        "memory_regions": ["buffers"],
    }
    action = {"type": "queue", "id": 0}
    flows = [{"name": "flow", "id": 1, "match": match, "action": action}]
    configuration = {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "memory_regions": [{"name": "buffers", "kind": "host", "num_bufs": 256, "buf_size": 512}],
        "interfaces": [
            {
                "name": "port0",
                "address": "loopback",
                "rx": {"queues": [queue, queue | {"name": "more", "id": 1}], "flows": flows, **rx},
            }
        ],
    }
    return make_daq(configuration, "daq").port0.flows.flow


UDP = flow({})


@given(PORTS, PORTS)
def test_any_range_of_ports_is_a_value(first, last):
    written = first if first == last else f"{min(first, last)}-{max(first, last)}"
    UDP.udp_dst.put(written)
    assert UDP.udp_dst.get() == written
    assert json.loads(UDP.match.get())["udp_dst"] == written
    key = UDP.udp_dst.describe()["daq_port0_flows_flow_udp_dst"]
    assert key["dtype"] == ("integer" if first == last else "string")


@given(st.ip_addresses(v=4))
def test_any_ipv4_address_is_a_value(address):
    UDP.ipv4_src.put(str(address))
    assert UDP.ipv4_src.get() == ("" if address == ipaddress.IPv4Address(0) else str(address))


@given(st.one_of(st.integers(), st.text(max_size=12), st.floats(), st.none(), st.booleans()))
def test_any_other_value_is_refused_or_kept(value):
    for signal in (UDP.udp_src, UDP.ipv4_len, UDP.ipv4_dst, UDP.queue):
        before = signal.get()
        try:
            signal.put(value)
        except (ConfigError, TypeError, LookupError) as error:
            assert signal.attr_name in str(error) or "receive queue" in str(error)
            assert signal.get() == before
        else:
            signal.put(signal.get())


def test_a_flex_flow_has_the_keys_of_its_match():
    items = [{"name": "magic", "id": 1, "offset": 4, "udp_dst_port": 9000}]
    found = flow({"flex_item_id": 1, "val": 5}, flex_items=items)
    assert isinstance(found, devices.FlexFlow)
    assert (found.flex_item_id.get(), found.val.get(), found.mask.get()) == (1, 5, 0xFFFFFFFF)
    found.val.put(0)
    assert found.val.get() == 0
    with pytest.raises(ConfigError, match="val"):
        found.val.put(-1)


def test_an_ecpri_flow_has_the_keys_of_its_match():
    found = flow({"ecpri": {"msg_type": 0}})
    assert isinstance(found, devices.EcpriFlow)
    assert (found.msg_type.get(), found.pc_id.get(), found.rtc_id.get()) == (0, -1, -1)
    found.pc_id.put(7)
    assert json.loads(found.match.get()) == {"ecpri": {"msg_type": 0, "pc_id": 7}}
    found.pc_id.put(-1)
    assert found.pc_id.get() == -1
    with pytest.raises(ConfigError, match="rtc_id"):
        found.rtc_id.put(70_000)


def test_a_flow_to_several_queues_names_none_of_them():
    found = flow({"udp_dst": 5000})
    found.daq.change_flows({"port0": {"flow": {"queue": "more"}}})
    assert (found.queue.get(), found.queues.get()) == ("more", ["more"])
    spread = make_daq(spread_configuration(found.daq.configuration_dict), "daq").port0.flows.flow
    assert (spread.queue.get(), spread.queues.get()) == ("", ["rx", "more"])
    spread.queue.put("rx")
    assert spread.queues.get() == ["rx"]


def spread_configuration(configuration):
    changed = json.loads(json.dumps(configuration))
    rx = changed["daqiri"]["cfg"]["interfaces"][0]["rx"]
    rx["flows"][0]["action"] = {"type": "queue", "ids": [0, 1]}
    rx["flows"][0].pop("actions", None)
    return changed


def test_the_counters_of_a_flow_are_of_its_own():
    keys = UDP.describe()
    assert set(keys) == {"daq_port0_flows_flow_packets", "daq_port0_flows_flow_bytes"}
    assert UDP.hints == {"fields": ["daq_port0_flows_flow_packets"]}
    assert not UDP.daq.is_open
