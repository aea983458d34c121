"""Configurations that no host opens: the check reports what the engine raises, before it opens."""

import copy

import pytest

from daqiri_ophyd.engine import (
    ConnectFailureError,
    DaqiriError,
    Engine,
    GenericFailureError,
    InvalidParameterError,
    NotSupportedError,
    load_config,
)
from daqiri_ophyd.host import Status, check_host

QUEUE = {"cpu_core": "any", "batch_size": 1, "memory_regions": ["m"]}


def queues(*names, **changes):
    """Return queues of these names; a change is a value for all, or a list of one for each."""
    made = []
    for n, name in enumerate(names):
        own = {
            key: value[n] if isinstance(value, tuple) else value for key, value in changes.items()
        }
        made.append({**QUEUE, "name": name, "id": n, **own})
        if own.get("poll_mode") == "direct":
            del made[-1]["cpu_core"], made[-1]["batch_size"]
    return {"queues": made}


def config(*interfaces, **changes):
    """Return a configuration with two memory regions."""
    region = {"kind": "host", "num_bufs": 1024, "buf_size": 2048}
    return {
        "version": 1,
        "master_core": 0,
        "memory_regions": [{"name": "m", **region}, {"name": "n", **region}],
        "interfaces": [{"name": f"p{n}", **each} for n, each in enumerate(interfaces)],
        **changes,
    }


def raw(*interfaces, **changes):
    return config(*interfaces, stream_type="raw", **changes)


def packet(**rx):
    return raw({"address": "lo", "rx": {**queues("a"), **rx}})


def sockets(*interfaces):
    return config(*({"address": "127.0.0.1", **each} for each in interfaces), stream_type="socket")


def server(local="udp://127.0.0.1:47801", **changes):
    socket = {"mode": "server", "local_addr": local}
    return {"socket_config": socket, "rx": queues("a"), **changes}


def client(remote="udp://127.0.0.1:47802", local=None, **changes):
    socket = {"mode": "client", "remote_addr": remote, **({"local_addr": local} if local else {})}
    return {"socket_config": socket, "tx": queues("t"), **changes}


FLOW = {
    "name": "f",
    "id": 1,
    "match": {"udp_dst": 5000},
    "action": {"type": "queue", "id": 0},
}
TIMED = {"accurate_send": True}

REJECTED = {
    "poll modes": (
        raw({"address": "lo", "rx": queues("a", "b", poll_mode=("indirect", "direct"))}),
        NotSupportedError,
        "'a' and 'b' have different poll_modes",
    ),
    "filter of af_xdp": (
        packet(receive_path="af_xdp", filter="udp"),
        NotSupportedError,
        "af_xdp does not support rx.filter ('udp')",
    ),
    "long filter": (
        packet(filter="udp" + " or udp" * 1200),
        InvalidParameterError,
        "rx.filter: found a text of 8403 bytes; accepts 8192 at most",
    ),
    "two of af_xdp": (
        raw(*2 * [{"address": "lo", "rx": {**queues("a"), "receive_path": "af_xdp"}}]),
        GenericFailureError,
        "'p1': rx.receive_path: af_xdp: interface 'p0' already receives from 'lo'",
    ),
    "unheard": (
        raw({"address": "a", "tx": queues("t")}, loopback="sw"),
        InvalidParameterError,
        "'p0' transmits, but no interface of this loopback receives",
    ),
    "launch times of a server": (
        sockets(server(tx={**queues("t"), **TIMED})),
        NotSupportedError,
        "tx.accurate_send is true, but the peers of a server",
    ),
    "launch times of TCP": (
        sockets(client("tcp://127.0.0.1:47802", tx={**queues("t"), **TIMED})),
        NotSupportedError,
        "accurate_send: true, which TCP does not have",
    ),
    "launch times of two queues": (
        sockets(client(tx={**queues("t", "u"), **TIMED})),
        NotSupportedError,
        "it has 2 transmit queues on one socket",
    ),
    "launch times of a paced queue": (
        sockets(client(tx={**queues("t", pacing_mbps=100), **TIMED})),
        NotSupportedError,
        "queue 't' has pacing_mbps 100",
    ),
    "cores of a client": (
        sockets(client(rx=queues("a", "b", cpu_core=(0, 1)))),
        InvalidParameterError,
        "'a' and 'b' read one socket and must have the same cpu_core; found '0' and '1'. A client",
    ),
    "a group on two cores, with flows": (
        sockets(
            server(
                "udp://239.1.2.3:47801",
                rx={**queues("a", "b", cpu_core=(0, 1)), "flows": [FLOW]},
            )
        ),
        InvalidParameterError,
        "2 rx queues on different cores would each receive all packets of the group 239.1.2.3",
    ),
    "regions of one core among several": (
        sockets(
            server(
                rx={
                    **queues(
                        "a", "b", "c", cpu_core=(0, 1, 1), memory_regions=(["m"], ["m"], ["n"])
                    ),
                    "flows": [FLOW],
                }
            )
        ),
        InvalidParameterError,
        "'b' and 'c' read one socket and must have the same memory_regions, in the same order",
    ),
    "regions": (
        sockets(server(rx=queues("a", "b", memory_regions=(["m"], ["n"])))),
        InvalidParameterError,
        "read one socket and must have the same memory_regions, in the same order",
    ),
    "split": (
        sockets(server(rx=queues("a", "b", memory_regions=["m", "n"], split_boundary=(64, 128)))),
        InvalidParameterError,
        "read one socket and must have the same split_boundary",
    ),
    "group on two cores": (
        sockets(server("udp://239.1.2.3:47801", rx=queues("a", "b", cpu_core=(0, 1)))),
        InvalidParameterError,
        "2 rx queues on different cores would each receive all packets of the group 239.1.2.3",
    ),
    "one address": (
        sockets(server(), server()),
        ConnectFailureError,
        "'p1': cannot bind udp://127.0.0.1:47801: interface 'p0' has udp://127.0.0.1:47801",
    ),
    "one address of TCP": (
        sockets(*2 * [server("tcp://127.0.0.1:47801")]),
        ConnectFailureError,
        "'p1': cannot bind tcp://127.0.0.1:47801",
    ),
    "a wildcard": (
        sockets(server("udp://0.0.0.0:47801"), server()),
        ConnectFailureError,
        "'p0' has udp://0.0.0.0:47801",
    ),
    "a server and a client": (
        sockets(server(), client(local="udp://127.0.0.1:47801")),
        ConnectFailureError,
        "'p1': cannot bind udp://127.0.0.1:47801",
    ),
    "IPv4 in IPv6": (
        sockets(server("udp://[::ffff:127.0.0.1]:47801")),
        ConnectFailureError,
        "local_addr is an IPv4 address in the form of IPv6",
    ),
    "a peer of IPv4 in IPv6": (
        sockets(client("udp://[::ffff:127.0.0.1]:47802")),
        ConnectFailureError,
        "remote_addr is an IPv4 address in the form of IPv6",
    ),
    "no scope": (
        sockets(server("udp://[fe80::1]:47801")),
        ConnectFailureError,
        "cannot bind udp://[fe80::1]:47801: Invalid argument: an IPv6 link-local address needs",
    ),
    "a group without a scope": (
        sockets(server("udp://[ff02::5]:47801")),
        ConnectFailureError,
        "cannot bind udp://[ff02::5]:47801: Invalid argument",
    ),
    "a peer without a scope": (
        sockets(client("udp://[fe80::1]:47802")),
        ConnectFailureError,
        "cannot connect to udp://[fe80::1]:47802: Invalid argument",
    ),
    "a broadcast": (
        sockets(client("udp://255.255.255.255:47802")),
        ConnectFailureError,
        "cannot connect to udp://255.255.255.255:47802: Permission denied",
    ),
    "a group of TCP": (
        sockets(server("tcp://[ff05::1]:47801")),
        ConnectFailureError,
        "TCP has no multicast groups",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_the_check_reports_what_the_engine_raises(name):
    asked, error, text = REJECTED[name]
    asked = load_config(asked)
    result = check_host(asked.to_dict(), only=["engine"])["engine"]
    with pytest.raises(error) as raised:
        Engine.open(asked).close()
    assert text in str(raised.value)
    assert result.status is Status.FAIL
    assert [finding.found for finding in result.findings] == str(raised.value).splitlines()


ACCEPTED = {
    "groups share an address": sockets(*2 * [server("udp://239.1.2.3:47803", address="lo")]),
    "other ports": sockets(server(), server("udp://127.0.0.1:47802")),
    "other addresses": sockets(server(), server("udp://127.0.0.2:47801")),
    "both families": sockets(server("udp://0.0.0.0:47801"), server("udp://[::]:47801")),
    "clients of TCP from one address": sockets(
        *2 * [client("tcp://127.0.0.1:47802", "tcp://127.0.0.1:47805")]
    ),
    "a spread server": sockets(server(rx=queues("a", "b", cpu_core=(0, 1)))),
    "queues of one core": sockets(server(rx={**queues("a", "b"), "flows": [FLOW]})),
    "a port that hears itself": raw(
        {"address": "a", "rx": queues("a"), "tx": queues("t")}, loopback="sw"
    ),
    "two ports of a cable": raw(
        {"address": "a", "tx": queues("t")}, {"address": "b", "rx": queues("a")}, loopback="sw"
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_check_accepts_the_engine_opens(name):
    asked = load_config(copy.deepcopy(ACCEPTED[name]))
    assert check_host(asked.to_dict(), only=["engine"])["engine"].status is Status.OK
    Engine.open(asked).close()


def test_all_reasons_are_reported_at_once():
    asked = load_config(
        raw(
            {"address": "lo", "rx": queues("a", "b", poll_mode=("indirect", "direct"))},
            {
                "address": "lo",
                "rx": {**queues("a"), "hardware_timestamps": True, "receive_path": "af_xdp"},
            },
        )
    )
    result = check_host(asked.to_dict(), only=["engine"])["engine"]
    with pytest.raises(DaqiriError) as raised:
        Engine.open(asked)
    assert len(result.findings) == 2
    assert [finding.found for finding in result.findings] == str(raised.value).splitlines()
