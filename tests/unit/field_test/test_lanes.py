"""Packets for flows: which lanes a configuration has, and what they send."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from daqiri_ophyd.engine import NetworkConfig, load_config
from daqiri_ophyd.field_test import _lanes
from daqiri_ophyd.field_test._frames import make_packets, marks_of, size_of
from daqiri_ophyd.field_test._lanes import (
    Lane,
    UnmadeError,
    candidate_links,
    lanes_of,
    stray_header,
)

Config = dict[str, Any]
MACS = ("02:00:00:00:00:0a", "02:00:00:00:00:0b")
QUEUE = {"name": "q0", "id": 0, "cpu_core": "any", "batch_size": 64, "memory_regions": ["buffers"]}


def flow(name: str, number: int, match: Config, *before: Config) -> Config:
    actions = [*before, {"type": "queue", "id": 0}]
    return {"name": name, "id": number, "match": match, "actions": actions}


def config_of(*flows: Config, tx_flows: tuple[Config, ...] = (), **rx: Any) -> NetworkConfig:
    return load_config(
        {
            "version": 1,
            "master_core": 0,
            "stream_type": "raw",
            "engine": "packet",
            "memory_regions": [
                {"name": "buffers", "kind": "host", "num_bufs": 1024, "buf_size": 2048}
            ],
            "interfaces": [
                {
                    "name": "receiver",
                    "address": "far",
                    "rx": {"queues": [QUEUE], "flows": list(flows), **rx},
                },
                {
                    "name": "sender",
                    "address": "near",
                    "tx": {"queues": [QUEUE], **({"flows": list(tx_flows)} if tx_flows else {})},
                },
            ],
        }
    )


def lanes(config: NetworkConfig) -> dict[str, Lane]:
    found, _ = lanes_of(config, ("sender", "receiver"))
    return {lane.flow: lane for lane in found}


def test_a_port_is_joined_to_others_rather_than_to_itself() -> None:
    config = config_of()
    assert candidate_links(config) == [("sender", "receiver")]


def sockets_of(local: str, remote: str, scheme: str = "udp", *flows: Config) -> NetworkConfig:
    ends = [("server", "local_addr", local, "rx"), ("client", "remote_addr", remote, "tx")]
    interfaces = [
        {
            "name": mode,
            "address": "0.0.0.0",
            "socket_config": {"mode": mode, key: f"{scheme}://{address}"},
            side: {"queues": [QUEUE], **({"flows": list(flows)} if flows and side == "rx" else {})},
        }
        for mode, key, address, side in ends
    ]
    region = {"name": "buffers", "kind": "host", "num_bufs": 1024, "buf_size": 2048}
    common = {"version": 1, "master_core": 0, "stream_type": "socket"}
    return load_config({**common, "memory_regions": [region], "interfaces": interfaces})


@pytest.mark.parametrize("scheme", ["udp", "tcp"])
@pytest.mark.parametrize(
    ("local", "remote", "meet"),
    [
        ("127.0.0.1:5000", "127.0.0.1:5000", True),
        ("127.0.0.1:5000", "127.0.0.2:5000", False),
        ("0.0.0.0:5000", "127.0.0.1:5000", True),
        ("0.0.0.0:5000", "127.0.0.1:5001", False),
        ("0.0.0.0:5000", "10.1.2.3:5000", True),
        ("0.0.0.0:5000", "10.1.2.4:5000", False),
        ("0.0.0.0:5000", "[::1]:5000", False),
        ("[::]:5000", "[::1]:5000", True),
        ("[0:0::0]:5000", "[fd00::3]:5000", True),
        ("[::]:5000", "[fd00::4]:5000", False),
        ("[::]:5000", "127.0.0.1:5000", False),
        ("[::1]:5000", "[0:0:0:0:0:0:0:1]:5000", True),
    ],
)
def test_a_server_at_any_address_has_those_of_this_host(
    monkeypatch: pytest.MonkeyPatch, scheme: str, local: str, remote: str, meet: bool
) -> None:
    own = {"lo": ["127.0.0.1/8", "::1/128"], "eth0": ["10.1.2.3/24", "fd00::3/64"]}
    monkeypatch.setattr(_lanes, "Facts", lambda: SimpleNamespace(addresses=own))
    config = sockets_of(local, remote, scheme)
    assert candidate_links(config) == ([("client", "server")] if meet else [])


def test_groups_are_not_addresses_of_this_host() -> None:
    assert candidate_links(sockets_of("0.0.0.0:5000", "239.1.2.3:5000")) == []


def test_flows_of_a_server_at_any_address_match_where_its_client_sends() -> None:
    flows = [flow(f"f{n}", n, {"ipv4_dst": f"127.0.0.{n}"}) for n in (1, 2)]
    config = sockets_of("0.0.0.0:5000", "127.0.0.1:5000", "udp", *flows)
    found, left_out = lanes_of(config, ("client", "server"))
    assert [lane.flow for lane in found] == ["f1"]
    assert "matches address 127.0.0.2" in left_out["server/f2"]


def test_packets_of_a_flow_match_no_earlier_one() -> None:
    found = lanes(
        config_of(
            flow("one", 1, {"udp_dst": 5000}),
            flow("several", 2, {"udp_dst": "5000-5009"}),
            flow("from", 3, {"udp_src": 7000, "ipv4_src": "10.0.0.1"}),
            flow("rest", 4, {}),
        )
    )
    headers = {name: lane.header for name, lane in found.items()}
    assert all(headers.values())
    ports = {name: header.dst_port for name, header in headers.items() if header}
    assert ports["one"] == 5000
    assert ports["several"] == 5001
    assert not 5000 <= ports["from"] <= 5009
    assert not 5000 <= ports["rest"] <= 5009


def test_a_flow_whose_packets_earlier_ones_take_is_left_out_by_name() -> None:
    config = config_of(flow("all", 1, {"udp_dst": "1-65535"}), flow("one", 2, {"udp_dst": 9}))
    found, left_out = lanes_of(config, ("sender", "receiver"))
    assert [lane.flow for lane in found] == ["all"]
    assert "earlier flows take all packets" in left_out["receiver/one"]


def test_tunnels_that_the_sender_does_not_make_are_left_out_by_name() -> None:
    tunnel = {"type": "vxlan", "vni": 7}
    decap = {"type": "tunnel_decap", "tunnel": tunnel}
    _, left_out = lanes_of(
        config_of(flow("inner", 1, {"udp_dst": 5000}, decap)), ("sender", "receiver")
    )
    assert "takes packets out of tunnels" in left_out["receiver/inner"]


@pytest.mark.parametrize("pushed", [0, 1])
def test_the_test_adds_the_tags_that_the_sender_does_not(pushed: int) -> None:
    push = {"type": "vlan_push", "vlan": {"vlan_id": 5}}
    tagged = {"name": "tag", "id": 9, "match": {}, "actions": [push]}
    config = config_of(
        flow("tagged", 1, {"udp_dst": 5000}, {"type": "vlan_pop"}), tx_flows=(tagged,) * pushed
    )
    sent, expected = make_packets(lanes(config)["tagged"], 0, 100, 4, MACS)
    assert expected.shape == (4, 100)
    assert sent.shape == (4, 100 + 4 * (1 - pushed))
    if not pushed:
        assert (sent[:, 12:16] == [0x81, 0, 0, 1]).all()
        assert np.array_equal(np.delete(sent, range(12, 16), axis=1), expected)


def test_packets_differ_end_in_their_number_and_go_to_the_receiver() -> None:
    lane = lanes(config_of(flow("one", 1, {"udp_dst": 5000})))["one"]
    sent, expected = make_packets(lane, 3, 64, 1024, MACS)
    assert sent is expected or np.array_equal(sent, expected)
    assert len(np.unique(sent, axis=0)) == 1024
    assert (sent[:, :6] == np.frombuffer(bytes.fromhex("02000000000b"), np.uint8)).all()
    known, at = marks_of(sent, 4, 1024)
    assert known.all()
    assert np.array_equal(at, 3 * 1024 + np.arange(1024))
    assert not marks_of(sent, 3, 1024)[0].any()
    assert not marks_of(np.zeros((5, 64), np.uint8), 4, 1024)[0].any()


def test_multicast_goes_to_the_address_of_its_group_and_nothing_to_all() -> None:
    found = lanes(config_of(flow("group", 1, {"ipv4_dst": "239.129.2.3"}), flow("rest", 2, {})))
    group, _ = make_packets(found["group"], 0, 100, 1, MACS)
    assert group[0, :6].tobytes().hex(":") == "01:00:5e:01:02:03"
    rest, _ = make_packets(found["rest"], 0, 100, 1, MACS)
    assert rest[0, :6].tobytes().hex(":") == MACS[1]


def test_words_of_flex_items_and_messages_of_ecpri_are_in_packets() -> None:
    item = {"name": "word", "id": 1, "offset": 8, "udp_dst_port": 6000}
    match = {"flex_item_id": 1, "val": 0x01020304, "mask": 0xFFFFFFFF}
    flex = lanes(config_of(flow("flex", 1, match), flex_items=[item]))["flex"]
    sent, _ = make_packets(flex, 0, size_of(flex, 64), 2, MACS)
    assert (sent[:, 50:54] == [1, 2, 3, 4]).all()
    ecpri = lanes(config_of(flow("radio", 1, {"ecpri": {"msg_type": 0, "pc_id": 258}})))["radio"]
    sent, _ = make_packets(ecpri, 0, 64, 2, MACS)
    assert (sent[:, 12:14] == [0xAE, 0xFE]).all()
    assert (sent[:, 15] == 0).all()
    assert (sent[:, 18:20] == [1, 2]).all()


def test_sizes_that_a_flow_does_not_have_are_refused() -> None:
    lane = lanes(config_of(flow("sized", 1, {"ipv4_len": 400})))["sized"]
    assert size_of(lane, 64) == 414
    with pytest.raises(UnmadeError, match="cannot have 64 bytes"):
        make_packets(lane, 0, 64, 1, MACS)


def test_strays_match_no_flow() -> None:
    config = config_of(flow("one", 1, {"udp_dst": "40000-49999"}))
    assert stray_header(config, "receiver").dst_port == 50000
    with pytest.raises(UnmadeError, match="match any packet"):
        stray_header(config_of(flow("all", 1, {})), "receiver")
