"""What the host check reports, in a network of its own, is what the engine then does there."""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.root

SCRIPT = """
import json, sys
from daqiri_ophyd.engine import DaqiriError, Engine, load_config
from daqiri_ophyd.host import Status, check_host
config = load_config(sys.argv[1])
report = check_host(config.to_dict())
failed = [result for result in report.results if result.status is Status.FAIL]
try:
    Engine.open(config).close()
    error = None
except DaqiriError as raised:
    error = str(raised)
print(json.dumps([
    {result.check: result.found for result in failed},
    {result.check: result.found for result in report.results if result.status is Status.WARN},
    error,
]))
"""
OFF = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1"
CABLE = (
    "ip link add near type veth peer name far; ip link set near up; ip link set far up; "
    "until ip link show near | grep -q 'state UP'; do sleep 0.01; done"
)


def verdict(
    setup: str, config: dict[str, Any], program: tuple[str, ...] = ()
) -> tuple[dict[str, str], dict[str, str], str]:
    """Return the checks that fail and that warn, and the engine's error, after shell commands.

    A program may start the process that asks.
    """
    # /sys shows the interfaces of the namespace in which it is mounted.
    script = f'mount -t sysfs sysfs /sys; {setup}; exec "$@"'
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-ec", script, "sh"]
        + [*program, sys.executable, "-c", SCRIPT, json.dumps(config)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    if "qdisc kind is unknown" in done.stderr:
        pytest.skip("needs a kernel with the queueing discipline fq")
    assert done.returncode == 0, done.stderr
    failed, warned, error = json.loads(done.stdout.splitlines()[-1])
    return failed, warned, error


def config(interface: dict[str, Any], stream: str) -> dict[str, Any]:
    region = {"name": "m", "kind": "host", "num_bufs": 1024, "buf_size": 2048}
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": stream,
        "log_level": "off",
        "memory_regions": [region],
        "interfaces": [{"name": "p", **interface}],
    }


QUEUE = {"name": "q", "id": 0, "cpu_core": "any", "batch_size": 1, "memory_regions": ["m"]}


def server(local: str, address: str = "0.0.0.0") -> dict[str, Any]:
    socket = {"mode": "server", "local_addr": local}
    interface = {"address": address, "socket_config": socket, "rx": {"queues": [QUEUE]}}
    return config(interface, "socket")


def both(first: str, second: str) -> dict[str, Any]:
    """Return two servers."""
    asked = server(first)
    asked["interfaces"].append({**server(second)["interfaces"][0], "name": "p1"})
    return asked


def client(address: str) -> dict[str, Any]:
    socket = {"mode": "client", "remote_addr": address}
    interface = {"address": "0.0.0.0", "socket_config": socket, "tx": {"queues": [QUEUE]}}
    return config(interface, "socket")


def timed(remote: str) -> dict[str, Any]:
    """Return a client whose launch times the kernel keeps."""
    asked = client(remote)
    asked["interfaces"][0]["tx"]["accurate_send"] = True
    return asked


def packet(address: str, **rx: Any) -> dict[str, Any]:
    return config({"address": address, "rx": {"queues": [QUEUE], **rx}}, "raw")


@pytest.mark.parametrize(
    ("setup", "asked", "check", "found", "raised"),
    [
        (
            f"ip link set lo up; {OFF}",
            server("udp://[::1]:5000"),
            "ip-address",
            "::1: IPv6 is switched off on all interfaces",
            "cannot bind udp://[::1]:5000",
        ),
        (
            "ip link set lo up; sysctl -qw net.ipv6.conf.lo.disable_ipv6=1; " + CABLE,
            server("tcp://[::1]:5000"),
            "ip-address",
            "::1: IPv6 is switched off on lo",
            "cannot listen at tcp://[::1]:5000",
        ),
        (
            f"ip link set lo up; {OFF}",
            client("udp://[::1]:5000"),
            "ip-address",
            "::1: IPv6 is switched off on all interfaces",
            "cannot connect to udp://[::1]:5000",
        ),
        (
            f"ip link set lo up; {OFF}",
            client("udp://[ff05::5]:5000"),
            "ip-address",
            "ff05::5: IPv6 is switched off on all interfaces",
            "cannot connect to udp://[ff05::5]:5000",
        ),
        (
            "ip link set lo up",
            client("udp://192.0.2.1:5000"),
            "engine",
            "Network is unreachable",
            "cannot connect to udp://192.0.2.1:5000: Network is unreachable",
        ),
        (
            # A broadcast.
            CABLE + "; ip address add 192.0.2.1/24 dev near",
            client("udp://192.0.2.255:5000"),
            "engine",
            "cannot connect to udp://192.0.2.255:5000: Permission denied",
            "",
        ),
        (
            "ip link set lo up",
            server("tcp://192.0.2.1:5000"),
            "engine",
            "cannot listen at tcp://192.0.2.1:5000: Cannot assign requested address",
            "",
        ),
        (
            # Down, it has no route, though it has its addresses.
            ":",
            client("udp://127.0.0.1:5000"),
            "engine",
            "Network is unreachable",
            "cannot connect to udp://127.0.0.1:5000: Network is unreachable",
        ),
        (
            CABLE + "; ip link set far down",
            packet("far", filter="udp"),
            "carrier",
            "far: switched off",
            "'far' is down",
        ),
        (
            CABLE + "; ip address add 192.0.2.1/24 dev near",
            timed("udp://192.0.2.2:5000"),
            "engine",
            "'near' to udp://192.0.2.2:5000 has the queueing discipline 'noqueue'",
            "",
        ),
        (
            "ip link set lo up",
            server("udp://[fe80::1%eth9]:5000"),
            "engine",
            "socket_config.local_addr: 'fe80::1%eth9': this host has no network interface 'eth9'",
            "",
        ),
        (
            "ip link set lo up",
            server("udp://239.1.2.3:5000", address="192.0.2.9"),
            "engine",
            "no network interface of this host has the address 192.0.2.9",
            "",
        ),
        (
            CABLE,
            server("udp://239.1.2.3:5000"),
            "engine",
            "cannot join the group of udp://239.1.2.3:5000: No such device",
            "",
        ),
        (
            CABLE + f"; {OFF}",
            server("udp://[ff05::5]:5000"),
            "engine",
            "cannot join the group of udp://[ff05::5]:5000: No such device",
            "",
        ),
        (
            # The kernel ignores the scope of this address.
            "ip link set lo up",
            both("udp://[::1]:5000", "udp://[::1%lo]:5000"),
            "engine",
            "cannot bind udp://[::1]:5000: interface 'p' has udp://[::1]:5000",
            "",
        ),
        (
            CABLE,
            packet("far", filter="udp port nothing"),
            "engine",
            "rx.filter: 'udp port nothing': libpcap reports: ",
            "",
        ),
        (
            "ip tuntap add tun0 mode tun; ip link set tun0 up",
            packet("tun0"),
            "carrier",
            "tun0: no Ethernet frames (link type 65534)",
            "'tun0' has no Ethernet frames (link type 65534)",
        ),
    ],
)
def test_where_a_check_fails_the_engine_does_not_open(
    has_af_xdp: None, setup: str, asked: dict[str, Any], check: str, found: str, raised: str
) -> None:
    failed, _, error = verdict(setup, asked)
    assert error is not None and raised in error
    assert found in failed[check]
    if check == "engine":
        assert error == failed[check]


@pytest.mark.parametrize(
    ("setup", "asked", "warning"),
    [
        # The kernel binds it, and no packet arrives.
        (
            f"ip link set lo up; {OFF}",
            server("udp://[::]:5000"),
            ("ip-address", "p: ::: IPv6 is switched off on all interfaces"),
        ),
        # It tries again and again.
        (
            f"ip link set lo up; {OFF}",
            client("tcp://[::1]:5000"),
            ("ip-address", "p: ::1: IPv6 is switched off on all interfaces"),
        ),
        (
            CABLE + "; ip address add 192.0.2.1/24 dev near; tc qdisc add dev near root fq",
            timed("udp://192.0.2.2:5000"),
            None,
        ),
        ("ip link set lo up", server("udp://[::1]:5000"), None),
        ("ip link set lo up", client("udp://[::1]:5000"), None),
        ("ip link set lo up", client("udp://127.0.0.1:5000"), None),
        (CABLE + "; ip link set far down", packet("far"), ("carrier", "far: switched off")),
        (
            CABLE + "; ip link set far down",
            packet("far", receive_path="af_xdp"),
            ("carrier", "far: switched off"),
        ),
        (CABLE, packet("far", receive_path="af_xdp"), None),
        # AF_XDP receives a frame in several pieces.
        (CABLE + "; ip link set far mtu 65535", packet("far", receive_path="af_xdp"), None),
        ("ip link set lo up", packet("lo", receive_path="af_xdp"), None),
        (CABLE + "; ip route add default dev near", server("udp://239.1.2.3:5000"), None),
        # Where it has no address of its own.
        (
            "sysctl -qw net.ipv6.conf.default.addr_gen_mode=1; " + CABLE,
            server("udp://[ff05::5]:5000"),
            None,
        ),
        (CABLE, packet("far", filter="udp"), None),
    ],
)
def test_where_no_check_fails_the_engine_opens(
    has_af_xdp: None, setup: str, asked: dict[str, Any], warning: tuple[str, str] | None
) -> None:
    failed, warned, error = verdict(setup, asked)
    assert error is None
    assert not failed
    if warning is not None:
        check, found = warning
        assert warned[check] == found


# Root of a user namespace: of the host's network, and of a network of its own.
OUTSIDE, INSIDE = ("unshare", "-Ur"), ("unshare", "-Urn")


@pytest.mark.parametrize(
    ("program", "asked", "missing", "raised"),
    [
        (OUTSIDE, packet("lo"), "CAP_NET_RAW", "cannot open a packet socket on 'lo'"),
        (OUTSIDE, server("udp://127.0.0.1:80"), "CAP_NET_BIND_SERVICE", "Permission denied"),
        (INSIDE, packet("lo", receive_path="af_xdp"), "CAP_BPF", "cannot make a map"),
        (INSIDE, packet("lo"), "", ""),
        (INSIDE, server("udp://0.0.0.0:80"), "", ""),
    ],
)
def test_privileges_of_a_user_namespace_are_those_of_its_network(
    has_af_xdp: None, program: tuple[str, ...], asked: dict[str, Any], missing: str, raised: str
) -> None:
    if subprocess.run([*program, "true"], capture_output=True).returncode != 0:
        pytest.skip("needs user namespaces")
    failed, _, error = verdict("ip link set lo up", asked, program)
    if not missing:
        assert (failed, error) == ({}, None)
        return
    assert f"{missing}: missing" in failed["capabilities"]
    assert raised in error
