import logging
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import daqiri_ophyd.engine
from daqiri_ophyd.engine import (
    ConfigError,
    InvalidParameterError,
    NetworkConfig,
    check_config,
    load_config,
)

TEXT = """\
daqiri:
  cfg:
    version: 1
    master_core: 3
    stream_type: raw
    loopback: sw
    log_level: info
    memory_regions:
    - name: rx
      kind: host
      affinity: 1
      access: [local, rdma_write]
      num_bufs: 4096
      buf_size: 2048
    - {name: tx, kind: host, num_bufs: 1024, buf_size: 1500}
    interfaces:
    - name: port0
      address: loopback
      rx:
        flow_isolation: true
        queues:
        - {name: q0, id: 0, cpu_core: 2, batch_size: 64, memory_regions: [rx], timeout_us: 100}
        - {name: q4, id: 4, cpu_core: any, batch_size: 32, memory_regions: [rx]}
        flows:
        - name: data
          id: 7
          match: {udp_src: 4000, udp_dst: 5000-5009, ipv4_len: 1028, ipv4_src: 192.0.2.1}
          action: {type: queue, id: 4}
        - name: spread
          id: 8
          match: {udp_dst: 6000}
          actions:
          - {type: vlan_pop}
          - {type: queue, ids: [0, 4]}
      tx:
        queues:
        - {name: q0, id: 0, cpu_core: 1, batch_size: 16, memory_regions: [tx], pacing_mbps: 100}
"""
TEN_MISTAKES = """\
version: 2
master_core: -1
stream_type: cooked
memory_regions:
- {name: a, kind: host, num_bufs: none, buf_size: 2048}
- {name: b, kind: glass, num_bufs: 4096, buf_size: 2048}
interfaces:
- name: port0
  address: loopback
  colour: blue
  rx:
    queues:
    - {name: q0, id: 0, cpu_core: fast, batch_size: 64, memory_regions: [a]}
    - {name: q1, id: 1, cpu_core: 1, batch_size: 0, memory_regions: [b]}
    flows:
    - {name: f, id: 1, match: {udp_dst: 70000}, action: {type: queue, id: 0}}
    - {name: g, id: 2, match: {ipv4_src: 1.2.3}, action: {type: queue, id: 1}}
"""


def test_attributes_are_named_like_keys() -> None:
    config = load_config(TEXT)
    assert (config.version, config.master_core, config.stream_type) == (1, 3, "raw")
    assert (config.loopback, config.log_level, config.debug) == ("sw", "info", False)
    assert (config.tx_meta_buffers, config.rx_meta_buffers) == (256, 256)
    rx, tx = config.memory_regions
    assert (rx.name, rx.kind, rx.affinity, rx.num_bufs, rx.buf_size) == (
        "rx",
        "host",
        1,
        4096,
        2048,
    )
    assert rx.access == ("local", "rdma_write")
    assert tx.access == ("local",)
    assert tx.owned is True
    (port,) = config.interfaces
    assert (port.name, port.address) == ("port0", "loopback")
    assert port.socket_config is port.roce_config is None
    assert port.rx.flow_isolation is True
    assert port.rx.hardware_timestamps is False
    assert port.rx.receive_path == "af_packet"
    first, second = port.rx.queues
    assert (first.name, first.id, first.cpu_core, first.batch_size) == ("q0", 0, "2", 64)
    assert (first.timeout_us, second.timeout_us) == (100, 0)
    assert (second.cpu_core, second.poll_mode, second.split_boundary) == ("any", "indirect", 0)
    assert second.memory_regions == ("rx",)
    data, spread = port.rx.flows
    assert (data.name, data.id, data.match.type) == ("data", 7, "ipv4_udp")
    assert data.match.udp_src == (4000, 4000)
    assert data.match.udp_dst == (5000, 5009)
    assert (data.match.ipv4_len, data.match.ipv4_src, data.match.ipv4_dst) == (
        1028,
        "192.0.2.1",
        None,
    )
    assert data.match.flex_item_id is data.match.val is data.match.mask is data.match.ecpri is None
    assert (data.action.type, data.action.id, data.action.ids) == ("queue", 4, ())
    assert [action.type for action in spread.actions] == ["vlan_pop", "queue"]
    assert spread.action.ids == (0, 4)
    assert spread.action.id is spread.action.vlan is spread.action.tunnel is None
    (queue,) = port.tx.queues
    assert (queue.pacing_mbps, queue.offloads, queue.batch_size) == (100, (), 16)
    assert port.tx.accurate_send is False
    assert port.tx.flows == ()


def test_attributes_of_what_other_streams_have() -> None:
    def port(**keys: Any) -> dict[str, Any]:
        return {"name": "p", "address": "0000:01:00.0", **keys}

    queue = {"name": "q", "id": 0, "cpu_core": 1, "batch_size": 8, "memory_regions": ["r"]}
    base = {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "memory_regions": [
            {"name": "r", "kind": "host", "num_bufs": 65536, "buf_size": 2048},
            {"name": "o", "kind": "host", "num_bufs": 16, "buf_size": 16 * 4 * 2048},
        ],
    }
    flex = port(
        rx={
            "queues": [queue],
            "flex_items": [{"name": "x", "id": 3, "offset": 8, "udp_dst_port": 4000}],
            "flows": [
                {
                    "name": "f",
                    "id": 1,
                    "match": {"flex_item_id": 3, "val": 5},
                    "action": {"type": "queue", "id": 0},
                }
            ],
            "reorder_configs": [
                {
                    "name": "o",
                    "reorder_type": "cpu",
                    "memory_region": "o",
                    "payload_byte_offset": 46,
                    "flow_ids": [1],
                    "data_types": {"input_type": "int8", "output_type": "fp32"},
                    "method": {
                        "seq_packets_per_batch": {
                            "sequence_number": {"bit_offset": 336, "bit_width": 32},
                            "packets_per_batch": 16,
                        }
                    },
                }
            ],
        },
        tx={
            "queues": [{**queue, "offloads": ["tx_eth_src"]}],
            "flows": [
                {"name": "t", "id": 9, "actions": [{"type": "vlan_push", "vlan_id": 12, "pcp": 3}]}
            ],
        },
    )
    rx = load_config({**base, "interfaces": [flex]}).interfaces[0].rx
    assert (rx.flex_items[0].offset, rx.flex_items[0].udp_dst_port) == (8, 4000)
    match = rx.flows[0].match
    assert (match.type, match.flex_item_id, match.val, match.mask) == ("flex_item", 3, 5, 2**32 - 1)
    (plan,) = rx.reorder_configs
    assert (plan.reorder_type, plan.method, plan.packets_per_batch) == (
        "cpu",
        "seq_packets_per_batch",
        16,
    )
    assert (plan.sequence_number.bit_offset, plan.sequence_number.bit_width) == (336, 32)
    assert plan.batch_number is None
    assert plan.data_types is not None
    assert (plan.data_types.input_type, plan.data_types.endianness) == ("int8", "host")
    assert plan.flow_ids == (1,)
    tx = load_config({**base, "interfaces": [flex]}).interfaces[0].tx
    assert tx.queues[0].offloads == ("tx_eth_src",)
    assert tx.flows[0].match.udp_dst is None
    vlan = tx.flows[0].actions[0].vlan
    assert vlan is not None
    assert (vlan.vlan_id, vlan.pcp, vlan.dei, vlan.ethertype) == (12, 3, 0, 0x8100)

    ecpri = {"ecpri": {"msg_type": 2, "rtc_id": 17}}
    flow = {"name": "f", "id": 1, "match": ecpri, "action": {"type": "queue", "id": 0}}
    rx = (
        load_config({**base, "interfaces": [port(rx={"queues": [queue], "flows": [flow]})]})
        .interfaces[0]
        .rx
    )
    assert rx.flows[0].match.ecpri is not None
    assert (rx.flows[0].match.ecpri.msg_type, rx.flows[0].match.ecpri.id) == (2, 17)

    decap = {
        "type": "tunnel_decap",
        "tunnel": {"type": "vxlan", "vni": 5, "outer_ipv4_src": "10.0.0.1"},
    }
    flow = {"name": "f", "id": 1, "actions": [decap, {"type": "queue", "id": 0}]}
    rx = (
        load_config({**base, "interfaces": [port(rx={"queues": [queue], "flows": [flow]})]})
        .interfaces[0]
        .rx
    )
    tunnel = rx.flows[0].actions[0].tunnel
    assert tunnel is not None
    assert (tunnel.type, tunnel.vni, tunnel.outer_ipv4_src, tunnel.outer_ipv4_dst) == (
        "vxlan",
        5,
        "10.0.0.1",
        None,
    )
    assert tunnel.outer_eth_src is None
    assert tunnel.outer_udp_dst == 4789


def test_attributes_of_sockets() -> None:
    queue = {"name": "q", "id": 0, "cpu_core": 1, "batch_size": 8, "memory_regions": ["r"]}
    config = load_config(
        {
            "version": 1,
            "master_core": 0,
            "stream_type": "socket",
            "memory_regions": [{"name": "r", "kind": "host", "num_bufs": 64, "buf_size": 2048}],
            "interfaces": [
                {
                    "name": "s",
                    "address": "127.0.0.1",
                    "socket_config": {"mode": "client", "remote_addr": "udp://127.0.0.1:5000"},
                    "tx": {"queues": [queue]},
                }
            ],
        }
    )
    assert config.engine == "socket"
    socket = config.interfaces[0].socket_config
    assert socket is not None
    assert (socket.mode, socket.remote_addr, socket.local_addr) == (
        "client",
        "udp://127.0.0.1:5000",
        None,
    )
    assert (socket.retry_connect_s, socket.min_ipg_ns) == (1, 0)


def test_configurations_are_values() -> None:
    config = load_config(TEXT)
    assert config == load_config(TEXT) != load_config(TEXT.replace("4096", "8192"))
    with pytest.raises(AttributeError):
        config.version = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        config.interfaces[0].rx.queues[0].batch_size = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        hash(config)
    assert "name='q4', id=4" in repr(config)
    assert pickle.loads(pickle.dumps(config)) == config
    assert load_config(config) is config


def test_it_goes_round_through_yaml_and_dict() -> None:
    config = load_config(TEXT)
    assert load_config(config.to_yaml()) == config
    plain = config.to_dict()
    assert load_config(plain) == config
    assert plain == yaml.safe_load(config.to_yaml())
    # Defaults are written out.
    inner = plain.get("daqiri", {"cfg": plain})["cfg"]
    assert inner["rx_meta_buffers"] == 256
    assert inner["interfaces"][0]["tx"]["accurate_send"] is False


@pytest.mark.parametrize("kind", [str, Path])
def test_files(tmp_path: Path, kind: type[str] | type[Path]) -> None:
    path = tmp_path / "some.YAML"
    path.write_text(TEXT)
    assert load_config(kind(path)) == load_config(TEXT)
    odd = tmp_path / "noextension"
    odd.write_text(TEXT)
    assert load_config(odd) == load_config(TEXT)
    with pytest.raises(ConfigError, match=r"missing.yml"):
        load_config(kind(tmp_path / "missing.yml"))
    bad = tmp_path / "bad.yaml"
    bad.write_text(TEN_MISTAKES)
    assert {problem.file for problem in check_config(kind(bad)).problems} == {str(bad)}


def test_ten_mistakes_are_ten_problems() -> None:
    report = check_config(TEN_MISTAKES, file="ten.yaml")
    assert not report.ok
    assert len(report.errors) == 10
    assert [(problem.line, problem.path) for problem in report.errors] == sorted(
        (problem.line, problem.path) for problem in report.errors
    )
    assert {problem.path for problem in report.errors} == {
        "version",
        "master_core",
        "stream_type",
        "interfaces[0].colour",
        "memory_regions[0].num_bufs",
        "memory_regions[1].kind",
        "interfaces[0].rx.queues[0].cpu_core",
        "interfaces[0].rx.queues[1].batch_size",
        "interfaces[0].rx.flows[0].match.udp_dst",
        "interfaces[0].rx.flows[1].match.ipv4_src",
    }
    lines = report.text().splitlines()
    assert len(lines) == len(report.problems)
    for problem, line in zip(report.problems, lines, strict=True):
        assert line.startswith(f"ten.yaml:{problem.line}:{problem.column}: {problem.severity}: ")
        assert problem.path in line
        assert line.endswith(problem.message)
        assert set(asdict(problem)) == {"severity", "file", "line", "column", "path", "message"}
    with pytest.raises(ConfigError) as caught:
        load_config(TEN_MISTAKES, file="ten.yaml")
    assert caught.value.report == report
    assert str(caught.value) == report.text()


def test_the_same_mistakes_in_a_dict_have_no_lines() -> None:
    report = check_config(yaml.safe_load(TEN_MISTAKES))
    assert [p.path for p in report.errors] == [p.path for p in check_config(TEN_MISTAKES).errors]
    assert {(problem.line, problem.column) for problem in report.problems} == {(0, 0)}
    assert report.text().startswith("<config>: error: ")


def test_adjustments_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    text = TEXT.replace("num_bufs: 4096", "num_bufs: 16")
    report = check_config(text)
    assert report.ok
    unused, warning = report.warnings
    assert unused.path == "memory_regions[0].access"
    assert "no effect on engine 'loopback'" in unused.message
    with caplog.at_level(logging.WARNING):
        config = load_config(text)
    assert warning.message in caplog.text
    assert config.memory_regions[0].num_bufs > 16


def test_values_that_yaml_has_no_word_for() -> None:
    report = check_config({"version": Path("1")})
    assert not report.ok
    assert "PosixPath" in report.text()
    assert "plain Python" in report.text()
    with pytest.raises(ConfigError, match="plain Python"):
        load_config({"version": object()})
    # Tuples and mappings of other kinds are lists and dicts.
    config = load_config(TEXT).to_dict()
    inner = config.get("daqiri", {"cfg": config})["cfg"]
    assert load_config({**inner, "memory_regions": tuple(inner["memory_regions"])})


def test_numbers_of_numpy_are_numbers() -> None:
    document = yaml.safe_load(TEXT)
    plain = load_config(document)
    keys = document["daqiri"]["cfg"]
    keys["tx_meta_buffers"] = np.uint16(plain.tx_meta_buffers)
    keys["debug"] = np.bool_(plain.debug)
    region = keys["memory_regions"][0]
    region["num_bufs"] = np.int64(region["num_bufs"])
    assert load_config(document) == plain


def test_values_of_no_file_are_named_with_their_key() -> None:
    document = yaml.safe_load(TEXT)
    region = document["daqiri"]["cfg"]["memory_regions"][0]
    region["num_bufs"] = object()
    (problem,) = check_config(document).problems
    assert problem.path == "daqiri.cfg.memory_regions[0].num_bufs"
    assert "accepted are plain Python values" in problem.message
    region["num_bufs"] = document
    (problem,) = check_config(document).problems
    assert problem.message == "is nested without end"


def test_an_address_that_a_reader_took_for_a_number() -> None:
    text = TEXT.replace("address: loopback", "address: 0000:03:00.0")
    assert text != TEXT
    assert load_config(text).interfaces[0].address == "0000:03:00.0"
    (problem,) = check_config(yaml.safe_load(text)).errors
    assert problem.path == "interfaces[0].address"
    assert "found '180.0', a number" in problem.message
    assert "quotes" in problem.message
    quoted = text.replace("0000:03:00.0", "'0000:03:00.0'")
    assert load_config(yaml.safe_load(quoted)) == load_config(text)


def test_texts_of_a_dict_keep_all_their_characters() -> None:
    for name in ("\xa0", "\u2028", "ключ", "\U0001f600"):
        document = yaml.safe_load(TEXT)
        document["daqiri"]["cfg"]["interfaces"][0]["name"] = name
        assert load_config(document).interfaces[0].name == name


def test_the_engine_is_shown_also_when_it_was_inferred() -> None:
    config = load_config(TEXT)
    assert config.to_dict()["daqiri"]["cfg"]["engine"] == config.engine == "dpdk"


@pytest.mark.parametrize("source", [None, 5, b"version: 1", ["version"]])
def test_what_is_no_source(source: Any) -> None:
    for call in (check_config, load_config):
        with pytest.raises(InvalidParameterError, match="accepted are a dict"):
            call(source)


@given(st.data())
def test_nothing_that_a_text_holds_raises(data: st.DataObject) -> None:
    text = TEXT
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(begin, min(len(text), begin + 8)))
        text = text[:begin] + data.draw(st.text(max_size=6)) + text[end:]
    report = check_config(text + "\n")
    if report.ok:
        assert isinstance(load_config(text + "\n"), NetworkConfig)
    else:
        assert report.text()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["version", "interfaces", "memory_regions", "rx", "queues", "name"]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=12,
    )
)
def test_nothing_that_a_dict_holds_raises(value: Any) -> None:
    assert check_config({"version": 1, "interfaces": value, "memory_regions": value}).problems


def test_documented_names_are_exported() -> None:
    assert set(daqiri_ophyd.engine.__all__) >= {"NetworkConfig", "RxQueueConfig", "FlowMatch"}
