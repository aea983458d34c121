"""All documented spellings are read as documented; a mistake is reported at its place."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daqiri_ophyd.engine import check_config, load_config

ABSENT = object()
"""The key is left out."""


@dataclass(frozen=True)
class Value:
    """A value of a key: how it is spelled, what it is read as, and what would be a mistake."""

    spelled: Any
    read: Any
    wrong: tuple[Any, ...] = ()


Keys = dict[str, st.SearchStrategy[Any]]


def fixed(value: Any, *wrong: Any) -> st.SearchStrategy[Value]:
    return st.just(Value(value, value, wrong))


def optional(values: st.SearchStrategy[Value], default: Any) -> st.SearchStrategy[Value]:
    return values | st.just(Value(ABSENT, default))


def integer(
    first: int, last: int, accepted: tuple[int, int] | None = None
) -> st.SearchStrategy[Value]:
    """`accepted`: not a mistake, if values are adjusted or cause a warning."""
    least, most = accepted or (first, last)
    wrong = (least - 1, most + 1, "many", 1.5, None, [])
    return st.integers(first, last).flatmap(
        lambda number: st.sampled_from([number, str(number), hex(number)]).map(
            lambda spelled: Value(spelled, number, wrong)
        )
    )


def flag() -> st.SearchStrategy[Value]:
    spellings = {True: (True, "true", "Yes", "on"), False: (False, "FALSE", "no", "off")}
    return st.booleans().flatmap(
        lambda value: st.sampled_from(spellings[value]).map(
            lambda spelled: Value(spelled, value, ("maybe", 2, None, {}))
        )
    )


def word(*words: str) -> st.SearchStrategy[Value]:
    return st.sampled_from(words).map(lambda text: Value(text, text, ("nonsense", 7, None, [text])))


def texts() -> st.SearchStrategy[Value]:
    letters = st.characters(codec="utf-8", exclude_categories=("C",), exclude_characters="<>")
    return st.text(letters, min_size=1, max_size=6).map(
        lambda text: Value(text, text, ("", None, [], "two\tcolumns", "<a name>"))
    )


def core() -> st.SearchStrategy[Value]:
    wrong = (-1, 8192, "4,5", "all", None, [4])
    numbers = st.integers(0, 8191).flatmap(
        lambda number: st.sampled_from([number, str(number)]).map(
            lambda spelled: Value(spelled, number, wrong)
        )
    )
    return numbers | fixed("any", *wrong)


def ports() -> st.SearchStrategy[Value]:
    wrong = (65536, "7-3", "1000-70000", "http", -1, [5000])
    one = st.integers(1, 65535).map(lambda port: Value(port, port, wrong))
    several = st.tuples(st.integers(1, 65535), st.integers(1, 65535)).map(sorted)
    return (
        one
        | several.filter(lambda ends: ends[0] < ends[1]).map(
            lambda ends: Value(f"{ends[0]}-{ends[1]}", f"{ends[0]}-{ends[1]}", wrong)
        )
        | st.just(Value(0, ABSENT, wrong))
    )


def ipv4() -> st.SearchStrategy[Value]:
    wrong = ("1.2.3", "::1", "example.org", 17.5, None)
    return (
        st.ip_addresses(v=4)
        .map(str)
        .filter(lambda text: text != "0.0.0.0")
        .map(lambda text: Value(text, text, wrong))
    )


def names(taken: list[str], most: int) -> st.SearchStrategy[Value]:
    """Some of them, as a list."""
    return st.lists(st.sampled_from(taken), min_size=1, max_size=most, unique=True).map(
        lambda chosen: Value(chosen, chosen, (["nowhere"], [], taken[0]))
    )


def keys(table: Keys) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(table)


def common(stream: str, engines: list[str], resolved: str) -> Keys:
    levels = ["trace", "debug", "info", "warn", "error", "critical", "off"]
    level = st.sampled_from(levels).flatmap(
        lambda text: st.sampled_from([text, text.upper(), text.title()]).map(
            lambda spelled: Value(spelled, text, ("loud", 7, None))
        )
    )
    engine = st.sampled_from([*engines, "default"]).map(
        lambda text: Value(text, resolved if text == "default" else text, ("rdma", 7, []))
    )
    return {
        "version": fixed(1, 2, 0, "one", None),
        "master_core": integer(0, 8191),
        "stream_type": fixed(stream, "stream", 5, None),
        "engine": optional(engine, resolved),
        "log_level": optional(level, "warn"),
        "debug": optional(flag(), False),
        "loopback": optional(fixed("", "cable", 7), ""),
        "loopback_drops": optional(fixed(False, "maybe", 2, None), False),
        "ship_to": optional(fixed("s3://b/a", "s3:/b", "http://a/b", "s3://b/../c", 5), ABSENT),
        "tx_meta_buffers": optional(integer(1, 1048576), 256),
        "rx_meta_buffers": optional(integer(1, 1048576), 256),
    }


def region(name: str, least: int, kinds: tuple[str, ...]) -> Keys:
    access = ["local", "rdma_read", "rdma_write"]
    return {
        "name": fixed(name, "", None, []),
        "kind": word(*kinds),
        "affinity": optional(integer(0, 1023), 0),
        "access": optional(
            st.lists(st.sampled_from(access), min_size=1, unique=True).map(
                lambda some: Value(
                    some,
                    # In the order of the bits.
                    [each for each in ("local", "rdma_write", "rdma_read") if each in some],
                    ([], "local", ["none"]),
                )
            ),
            ["local"],
        ),
        "num_bufs": integer(least, 2**31, (1, 2**31)),
        "buf_size": integer(1, 2**32 - 1),
        "owned": optional(flag(), True),
    }


def queue(number: int, regions: list[str], most: int, direct: bool) -> Keys:
    table: Keys = {
        "name": fixed(f"queue {number}", "", None),
        "id": fixed(number, 65536, -1, "first", None),
        "cpu_core": core(),
        "batch_size": integer(1, 1048576),
        "memory_regions": names(regions, most),
        "timeout_us": optional(integer(0, 2**32 - 1), 0),
        "poll_mode": optional(word("indirect"), "indirect"),
    }
    if direct:
        for key in ("cpu_core", "batch_size", "timeout_us"):
            table[key] = st.just(Value(ABSENT, ABSENT))
        table["poll_mode"] = fixed("direct", "polled", None)
    return table


def flow(number: int, queues: int) -> Keys:
    match = keys(
        {
            "udp_src": optional(ports(), ABSENT),
            "udp_dst": optional(ports(), ABSENT),
            "ipv4_len": optional(
                st.integers(1, 65535).map(lambda n: Value(n, n, (-1, 65536, "long"))), ABSENT
            ),
            "ipv4_src": optional(ipv4(), ABSENT),
            "ipv4_dst": optional(ipv4(), ABSENT),
        }
    )
    target = st.integers(0, queues - 1).map(
        lambda each: {"type": Value("queue", "queue"), "id": Value(each, each, (queues, -1, "q"))}
    )
    return {
        "name": fixed(f"flow {number}", "", None),
        "id": fixed(number + 1, 8388608, -1, "first"),
        "match": match,
        "action": target,
    }


def tag(number: int) -> st.SearchStrategy[dict[str, Any]]:
    """A transmit flow; its tag is given next to the type, or in a map."""
    fields = keys(
        {
            "vlan_id": integer(0, 4095),
            "pcp": optional(integer(0, 7), 0),
            "dei": optional(integer(0, 1), 0),
            "ethertype": optional(integer(1, 65535), 0x8100),
        }
    )
    kind = {"type": Value("vlan_push", "vlan_push", ("vlan_pop", "push", None))}

    def build(tag: dict[str, Any], inside: bool) -> dict[str, Any]:
        flow = {"name": Value(f"tag {number}", f"tag {number}"), "id": Value(0, 0)}
        action: dict[str, Any] = {**kind, **({"vlan": tag} if inside else tag)}
        return {**flow, "actions": [action]}

    return st.builds(build, fields, st.booleans())


@st.composite
def raw(draw: st.DrawFn) -> dict[str, Any]:
    direct = draw(st.booleans())
    regions = ["region 0", "region 1", "region 2"][: draw(st.integers(1, 3))]
    kinds = ("huge", "device", "host_pinned", "host")
    count = draw(st.integers(1, 3))
    rx_queues = [
        draw(keys({**queue(i, regions, 2, direct), "split_boundary": optional(fixed(0), 0)}))
        for i in range(count)
    ]
    tx_queues = [
        draw(
            keys(
                {
                    **queue(i, regions, 2, False),
                    "offloads": optional(fixed(["tx_eth_src"], ["checksum"], "tx_eth_src"), []),
                    "pacing_mbps": optional(integer(0, 2**32 - 1), 0),
                    "realtime_priority": optional(integer(0, 99), 0),
                }
            )
        )
        for i in range(draw(st.integers(1, 2)))
    ]
    rx: dict[str, Any] = {
        "flow_isolation": draw(optional(flag(), False)),
        "hardware_timestamps": draw(optional(flag(), False)),
        "dynamic_flow_capacity": draw(optional(integer(0, 8388608), 0)),
        "filter": draw(optional(fixed("udp and port 5000"), ABSENT)),
        "receive_path": draw(optional(fixed("af_packet", "af_inet", 2), "af_packet")),
        "queues": rx_queues,
        "flex_items": Value(ABSENT, []),
        "flows": [draw(keys(flow(i, count))) for i in range(draw(st.integers(0, 3)))],
        "reorder_configs": Value(ABSENT, []),
    }
    tx: dict[str, Any] = {
        "accurate_send": draw(optional(flag(), False)),
        "queues": tx_queues,
        "flows": [draw(tag(i)) for i in range(draw(st.integers(0, 2)))],
    }
    interface = {
        "name": draw(texts()),
        "address": draw(fixed("0000:03:00.0", 180.0, "eth/0", None)),
        "rx": rx,
        "tx": tx,
    }
    engines = common("raw", ["ibverbs"] if direct else ["dpdk", "ibverbs"], "dpdk")
    if direct:
        engines["engine"] = fixed("ibverbs", "rdma", 7)
    return {
        **draw(keys(engines)),
        "memory_regions": [draw(keys(region(name, 12288, kinds))) for name in regions],
        "interfaces": [interface],
    }


@st.composite
def sockets(draw: st.DrawFn) -> dict[str, Any]:
    scheme = draw(st.sampled_from(["udp", "tcp"]))
    wrong = ("127.0.0.1:5000", f"{scheme}://localhost:5000", "http://127.0.0.1:80", 5000)

    def endpoint(address: str, port: int) -> st.SearchStrategy[Value]:
        return fixed(f"{scheme}://{address}:{port}", *wrong)

    regions = ["buffers"]
    kinds = ("huge", "host_pinned", "host")
    mode = draw(st.sampled_from(["server", "client"]))
    port = draw(st.integers(1, 65535))
    address = draw(st.sampled_from(["127.0.0.1", "[::1]", "10.0.0.7"]))
    socket = draw(
        keys(
            {
                "mode": fixed(mode, "peer", None),
                "local_addr" if mode == "server" else "remote_addr": endpoint(address, port),
                "max_payload_size": optional(integer(0, 65507, (0, 2**32 - 1)), 0),
                "max_burst_interval_ms": optional(integer(0, 2**32 - 1), 0),
                "min_ipg_ns": optional(integer(0, 2**32 - 1), 0),
                "retry_connect_s": optional(
                    st.integers(1, 86400).map(lambda s: Value(s, s, (86401, "soon", 1.5)))
                    | st.integers(-9, 0).map(lambda s: Value(s, 1)),
                    1,
                ),
            }
        )
    )
    rx: dict[str, Any] = {
        "flow_isolation": draw(optional(flag(), False)),
        "hardware_timestamps": Value(ABSENT, False),
        "dynamic_flow_capacity": Value(ABSENT, 0),
        "filter": Value(ABSENT, ABSENT),
        "receive_path": Value(ABSENT, "af_packet"),
        "queues": [
            draw(keys({**queue(0, regions, 1, False), "split_boundary": optional(fixed(0), 0)}))
        ],
        "flex_items": Value(ABSENT, []),
        "flows": [draw(keys(flow(i, 1))) for i in range(draw(st.integers(0, 2)))],
        "reorder_configs": Value(ABSENT, []),
    }
    interface = {
        "name": draw(texts()),
        "address": draw(fixed("127.0.0.1", 180.0, None, [])),
        "socket_config": socket,
        "rx": rx,
    }
    return {
        **draw(keys(common("socket", ["socket"], "socket"))),
        "memory_regions": [draw(keys(region("buffers", 1, kinds)))],
        "interfaces": [interface],
    }


def spelled(node: Any) -> Any:
    """The document."""
    if isinstance(node, Value):
        return node.spelled
    if isinstance(node, list):
        return [spelled(item) for item in node]
    return {key: text for key in node if (text := spelled(node[key])) is not ABSENT}


def meant(node: Any) -> Any:
    """What it is read as, with all defaults."""
    if isinstance(node, Value):
        return node.read
    if isinstance(node, list):
        return [meant(item) for item in node]
    values = {key: value for key in node if (value := meant(node[key])) is not ABSENT}
    if values.get("type") == "vlan_push":
        values.update(values.pop("vlan", {}))
    if values.get("match") == {}:
        del values["match"]
    return values


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, list[Any], Value]]:
    """Values that are spelled, with their paths and the keys that lead to them."""

    def walk(node: Any, path: str, way: list[Any]) -> Iterator[tuple[str, list[Any], Value]]:
        if isinstance(node, Value):
            if node.spelled is not ABSENT:
                yield path, way, node
        elif isinstance(node, list):
            for index, item in enumerate(node):
                yield from walk(item, f"{path}[{index}]", [*way, index])
        else:
            for key, item in node.items():
                yield from walk(item, f"{path}.{key}" if path else key, [*way, key])

    yield from walk(node, path, [])


@pytest.mark.parametrize("documents", [raw(), sockets()], ids=["raw", "sockets"])
@settings(max_examples=60)
@given(data=st.data())
def test_what_the_documented_keys_allow_is_read_as_it_is_meant(
    documents: st.SearchStrategy[dict[str, Any]], data: st.DataObject
) -> None:
    document = data.draw(documents)
    expected = meant(document)
    for flow in [f for i in expected["interfaces"] for f in i.get("tx", {}).get("flows", [])]:
        flow.pop("match", None)
    config = load_config(spelled(document))
    read = config.to_dict()["daqiri"]["cfg"]
    for interface in [*read["interfaces"], *expected["interfaces"]]:
        interface.pop("socket_config") if interface.get("socket_config") == {} else None
    assert read == expected
    assert load_config(config.to_dict()) == config
    assert load_config(config.to_yaml()) == config


@pytest.mark.parametrize("documents", [raw(), sockets()], ids=["raw", "sockets"])
@settings(max_examples=60)
@given(data=st.data())
def test_a_mistake_is_named_with_its_place_what_was_found_and_what_is_accepted(
    documents: st.SearchStrategy[dict[str, Any]], data: st.DataObject
) -> None:
    document = data.draw(documents)
    path, way, value = data.draw(
        st.sampled_from([leaf for leaf in leaves(document) if leaf[2].wrong])
    )
    wrong = data.draw(st.sampled_from(value.wrong))
    broken = copy.deepcopy(spelled(document))
    holder = broken
    for key in way[:-1]:
        holder = holder[key]
    holder[way[-1]] = wrong
    report = check_config(broken)
    assert not report.ok
    told = [problem for problem in report.errors if problem.path.startswith(path)]
    assert told, report.text()
    assert "accepts" in told[0].message
    if isinstance(wrong, str) and wrong.isprintable():
        assert wrong in told[0].message
    if isinstance(wrong, int | float):
        assert str(wrong) in told[0].message
