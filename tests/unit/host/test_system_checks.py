"""Checks of the kernel, of what it grants, of clocks, and of where captures are written."""

import json
import os
import subprocess
import sys

import pytest

from daqiri_ophyd.engine import Engine, NotSupportedError, load_config
from daqiri_ophyd.host import Status, check_host

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
STATUS = "Name:\tpython\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t{:016x}"
LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max locked memory         {:<20} unlimited            bytes     \n"
    "Max realtime priority     {:<20} 99                   \n"
)
# Of 2048 bytes; as many as its queues need.
BUFFERS = 24576
RAW, LOCK, ADMIN, NICE, BPF = 1 << 13, 1 << 14, 1 << 12, 1 << 23, 1 << 39


def process(capabilities=0, memlock=65536, priority=0):
    """Return the files that describe the privileges of a process."""
    return {
        "/proc/self/status": STATUS.format(capabilities),
        "/proc/self/limits": LIMITS.format(memlock, priority),
    }


def buffers(rmem=212992, wmem=212992, backlog=1000, **files):
    """Return the files with the sizes of socket buffers."""
    core = "/proc/sys/net/core"
    return {
        f"{core}/rmem_max": str(rmem),
        f"{core}/wmem_max": str(wmem),
        f"{core}/netdev_max_backlog": str(backlog),
        **process(**files),
    }


def raw(address="eth0", priority=0, timestamps=False, path="af_packet", engine="default"):
    """Return a checked configuration with a receive and a transmit queue on a port."""
    rx = {"name": "r", "id": 0, "cpu_core": 1, "batch_size": 64, "memory_regions": ["m"]}
    region = {"name": "m", "kind": "host", "num_bufs": BUFFERS, "buf_size": 2048}
    tx = {"name": "t", "id": 0, "cpu_core": 2, "batch_size": 64, "memory_regions": ["m"]}
    return load_config(
        {
            "version": 1,
            "stream_type": "raw",
            "engine": engine,
            "master_core": 0,
            "memory_regions": [region],
            "interfaces": [
                {
                    "name": "p",
                    "address": address,
                    "rx": {
                        "queues": [rx],
                        "hardware_timestamps": timestamps,
                        "receive_path": path,
                    },
                    "tx": {"queues": [{**tx, "realtime_priority": priority}]},
                }
            ],
        }
    ).to_dict()


# secure-boot


@pytest.mark.parametrize(
    ("digits", "status", "found"),
    [
        ("0600000000", Status.OK, "off"),
        ("0600000001", Status.OK, "on; nothing that it prevents has to be changed"),
        ("06000000", Status.SKIP, "the EFI variable has 4 bytes; five are expected"),
    ],
)
def test_secure_boot_of_a_tuned_host(result_of, digits, status, found):
    result = result_of("secure-boot", "igx", hex={SECURE_BOOT: digits})
    assert (result.status, result.found) == (status, found)
    assert not result.remedies


def test_secure_boot_that_is_in_the_way(result_of, describe, device):
    host = describe("igx")
    device(host, "0005:03:00.1")["read_request"] = 512
    result = result_of("secure-boot", host, hex={SECURE_BOOT: "0600000001"})
    assert (result.status, result.found) == (
        Status.WARN,
        "on; it prevents the fixes of pcie-read-request",
    )
    assert [remedy.note for remedy in result.remedies] == [
        "Disable it in the firmware setup for the change, and enable it again afterwards."
    ]


def test_secure_boot_where_there_is_none(result_of):
    result = result_of("secure-boot", {})
    assert result.status is Status.SKIP
    assert result.found == "no EFI variable SecureBoot: this host has no UEFI, or /sys hides it"


# engine


@pytest.mark.parametrize("name", ["udp", "tcp", "loopback", "jungfrau"])
def test_engines_of_this_build_are_ok(result_of, profile, name):
    result = result_of("engine", {}, profile(name))
    assert result.status is Status.OK


@pytest.mark.parametrize("name", ["spark", "igx"])
def test_an_engine_that_this_build_lacks_fails(result_of, profile, name):
    result = result_of("engine", name, profile(f"{name}:ibverbs"))
    assert result.status is Status.FAIL
    assert "engine 'ibverbs' is not part of this build" in result.found
    assert result.remedies


def test_the_engine_check_says_what_the_engine_says(result_of):
    asked = raw("lo", timestamps=True, path="af_xdp")
    result = result_of("engine", {}, asked)
    assert result.status is Status.FAIL
    with pytest.raises(NotSupportedError) as refused:
        Engine.open(load_config(asked))
    assert result.found in str(refused.value)


def test_without_a_configuration_no_engine_is_chosen(result_of):
    result = result_of("engine", {})
    assert (result.status, result.found) == (Status.SKIP, "no configuration")


# capabilities


def test_packet_sockets_need_a_right(result_of):
    result = result_of("capabilities", {"files": process(RAW)}, raw())
    assert (result.status, result.found) == (Status.OK, "CAP_NET_RAW: present, for packet sockets")
    result = result_of("capabilities", {"files": process()}, raw())
    assert result.status is Status.FAIL
    assert result.found == "CAP_NET_RAW: missing, for packet sockets"
    [remedy] = result.remedies
    # A service gets them; an interpreter that has them gives them to every program.
    assert (remedy.now, remedy.files, remedy.lasting) == ((), (), ())
    assert "AmbientCapabilities=CAP_NET_RAW in its unit" in remedy.note
    assert "setcap cap_net_raw+ep" in remedy.note and "--copies" in remedy.note


UNPRIVILEGED = """
import os, sys
from daqiri_ophyd.engine import DaqiriError, Engine, load_config
from daqiri_ophyd.host import check_host
def status():
    config = load_config(sys.argv[1]).to_dict()
    return check_host(config, only=["capabilities"])["capabilities"].status
# Imports what it needs, from folders that others may not read.
status()
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print(status())
try:
    Engine.open(sys.argv[1]).close()
    print("opened")
except DaqiriError as error:
    print("refused")
"""
UDP_SERVER = """
version: 1
stream_type: socket
master_core: 0
memory_regions: [{{name: m, kind: host, num_bufs: 256, buf_size: 2048}}]
interfaces:
- name: p
  address: 127.0.0.1
  socket_config: {{mode: server, local_addr: "{address}"}}
  rx:
    queues: [{{name: q, id: 0, cpu_core: any, batch_size: 1, memory_regions: [m]}}]
"""


@pytest.mark.root
@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (json.dumps(raw("lo")), ["fail", "refused"]),
        (UDP_SERVER.format(address="udp://127.0.0.1:999"), ["fail", "refused"]),
        (UDP_SERVER.format(address="tcp://127.0.0.1:999"), ["fail", "refused"]),
        (UDP_SERVER.format(address="tcp://127.0.0.1:2345"), ["ok", "opened"]),
    ],
)
def test_the_check_agrees_with_the_engine_of_a_process_without_rights(tmp_path, text, verdict):
    # Where ports below 1024 are for root.
    script = (
        'echo 1024 >/proc/sys/net/ipv4/ip_unprivileged_port_start; ip link set lo up; exec "$@"'
    )
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script, "sh", sys.executable, "-c", UNPRIVILEGED, text],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stdout.split() == verdict, done.stderr


def test_ports_for_root_need_a_right(result_of):
    asked = load_config(UDP_SERVER.format(address="tcp://127.0.0.1:80")).to_dict()
    result = result_of("capabilities", {"files": process()}, asked)
    assert (result.status, result.found) == (
        Status.FAIL,
        "CAP_NET_BIND_SERVICE: missing, for port 80",
    )
    files = {**process(), "/proc/sys/net/ipv4/ip_unprivileged_port_start": "80"}
    assert result_of("capabilities", {"files": files}, asked).status is Status.OK
    assert result_of("capabilities", {"files": process(1 << 10)}, asked).status is Status.OK


def test_a_client_that_tries_again_opens_without_its_low_port(result_of):
    text = UDP_SERVER.format(address="tcp://127.0.0.1:80")
    text = text.replace("mode: server", "mode: client, remote_addr: 'tcp://127.0.0.1:5000'")
    asked = load_config(text).to_dict()
    assert result_of("capabilities", {"files": process()}, asked).status is Status.WARN


def test_af_xdp_needs_more_rights(result_of):
    asked = raw(path="af_xdp")
    result = result_of("capabilities", {"files": process(RAW, memlock="unlimited")}, asked)
    assert result.status is Status.FAIL
    assert result.found == "CAP_NET_ADMIN, CAP_BPF: missing, for receive_path: af_xdp"
    [remedy] = result.remedies
    assert "setcap cap_bpf,cap_net_admin,cap_net_raw+ep" in remedy.note
    granted = {"files": process(RAW | ADMIN | BPF, memlock="unlimited")}
    assert result_of("capabilities", granted, asked).status is Status.OK


def test_af_xdp_locks_its_frames(result_of):
    files = process(RAW | ADMIN | BPF, memlock=8 << 20)
    result = result_of("capabilities", {"files": files}, raw(path="af_xdp"))
    assert (result.status, result.found) == (
        Status.FAIL,
        "CAP_IPC_LOCK: missing, for 48 MiB of locked memory (RLIMIT_MEMLOCK is less)",
    )
    files = process(RAW | ADMIN | BPF, memlock=48 << 20)
    assert result_of("capabilities", {"files": files}, raw(path="af_xdp")).status is Status.OK
    files = process(RAW | ADMIN | BPF | LOCK, memlock=0)
    assert result_of("capabilities", {"files": files}, raw(path="af_xdp")).status is Status.OK


def test_a_limit_on_locked_memory_is_for_all_interfaces(result_of):
    asked = raw(path="af_xdp")
    cfg = asked["daqiri"]["cfg"]
    [interface] = cfg["interfaces"]
    cfg["interfaces"] = [interface, {**interface, "name": "p1", "address": "eth1"}]
    files = process(RAW | ADMIN | BPF, memlock=64 << 20)
    result = result_of("capabilities", {"files": files}, asked)
    assert (result.status, result.found) == (
        Status.FAIL,
        "CAP_IPC_LOCK: missing, for 96 MiB of locked memory (RLIMIT_MEMLOCK is less)",
    )
    files = process(RAW | ADMIN | BPF, memlock=96 << 20)
    assert result_of("capabilities", {"files": files}, asked).status is Status.OK


def test_threads_run_without_realtime_priority(result_of):
    result = result_of("capabilities", {"files": process(RAW)}, raw(priority=50))
    assert (result.status, result.found) == (
        Status.WARN,
        "CAP_SYS_NICE: missing, for realtime_priority (RLIMIT_RTPRIO is less)",
    )
    for files in (process(RAW, priority=50), process(RAW | NICE)):
        assert result_of("capabilities", {"files": files}, raw(priority=50)).status is Status.OK


def test_rights_of_engines_that_this_build_lacks_are_not_known(result_of):
    asked = raw("0005:03:00.0", engine="ibverbs")
    result = result_of("capabilities", {"files": process()}, asked)
    assert (result.status, result.found) == (
        Status.SKIP,
        "what engine ibverbs needs is known to a build that has it",
    )


@pytest.mark.parametrize(
    ("address", "capability"),
    [("net_tap0,iface=a", "CAP_NET_ADMIN"), ("net_af_packet0,iface=a", "CAP_NET_RAW")],
)
def test_rights_of_virtual_devices_of_dpdk(result_of, address, capability):
    asked = raw(address, engine="dpdk")
    result = result_of("capabilities", {"files": process()}, asked)
    assert result.status is Status.FAIL
    assert result.found.startswith(f"{capability}: missing, for ")
    result = result_of("capabilities", {"files": process()}, raw("net_ring0", engine="dpdk"))
    assert (result.status, result.found) == (Status.OK, "the configuration needs none")


def test_cards_of_dpdk_need_locked_memory(result_of):
    asked = raw("0005:03:00.0", engine="dpdk")
    result = result_of("capabilities", {"files": process(memlock=8 << 20)}, asked)
    assert result.status is Status.FAIL
    # With headroom. Of its own 512 where this host has no free huge pages.
    region = BUFFERS * (2048 + 128) >> 20
    asked = int(result.found.removeprefix("CAP_IPC_LOCK: missing, for ").split(" MiB")[0])
    assert asked - region in (0, 512)


def test_rights_without_need(result_of, profile):
    result = result_of("capabilities", {"files": process()}, profile("loopback"))
    assert (result.status, result.found) == (Status.OK, "the configuration needs none")
    result = result_of("capabilities", {"files": process(RAW | LOCK)})
    assert result.status is Status.SKIP
    assert result.found == "no configuration; has CAP_IPC_LOCK, CAP_NET_RAW"


def test_losses_of_datagrams_are_counted_with_a_right(result_of, profile):
    result = result_of("capabilities", {"files": process()}, profile("udp"))
    assert result.status is Status.WARN
    assert result.found == (
        "CAP_BPF: missing, for counting each datagram that the kernel drops of a batch"
    )
    [remedy] = result.remedies
    assert "setcap cap_bpf+ep" in remedy.note
    result = result_of("capabilities", {"files": process(BPF)}, profile("udp"))
    assert result.status is Status.OK
    files = {**process(), "/proc/sys/kernel/unprivileged_bpf_disabled": "0\n"}
    result = result_of("capabilities", {"files": files}, profile("udp"))
    assert (result.status, result.found) == (Status.OK, "the configuration needs none")


def test_rights_that_are_not_known(result_of):
    result = result_of("capabilities", {"files": {"/proc/self/status": "State: S"}}, raw())
    assert result.status is Status.SKIP
    assert result.found == "not known: /proc/self/status: lacks Uid or CapEff"


# socket-buffers


def udp(bufs=24576, size=2048, address="udp://10.0.0.1:5000"):
    """Return a checked configuration that receives UDP of other hosts."""
    config = load_config(UDP_SERVER.format(address=address)).to_dict()
    cfg = config["daqiri"]["cfg"]
    cfg["memory_regions"][0] |= {"num_bufs": bufs, "buf_size": size}
    cfg["interfaces"][0]["address"] = "10.0.0.1"
    return load_config(config).to_dict()


def test_buffers_that_take_a_queue_are_ok(result_of):
    result = result_of("socket-buffers", {"files": buffers(48 << 20, 0, 10_000)}, udp())
    assert result.status is Status.OK
    assert result.found == "rmem_max: 50331648; netdev_max_backlog: 10000"


def test_buffers_too_small_are_named_with_the_setting(result_of):
    result = result_of("socket-buffers", {"files": buffers()}, udp())
    assert result.status is Status.WARN
    assert result.found == (
        "rmem_max: 212992 (need 50331648); netdev_max_backlog: 1000 (need 10000)"
    )
    first = result.remedies[0]
    assert first.now == ("sysctl -w net.core.rmem_max=50331648",)
    assert first.files == (
        ("/etc/sysctl.d/90-daqiri-rmem_max.conf", "net.core.rmem_max=50331648\n"),
    )
    assert first.verify == ('test "$(sysctl -n net.core.rmem_max)" -ge 50331648',)


def test_the_engine_asks_for_64_mib_at_most(result_of):
    files = buffers(64 << 20, 0, 10_000)
    assert result_of("socket-buffers", {"files": files}, udp(1 << 17)).status is Status.OK
    files = buffers((64 << 20) - 1, 0, 10_000)
    result = result_of("socket-buffers", {"files": files}, udp(1 << 17))
    assert result.found == "rmem_max: 67108863 (need 67108864)"


@pytest.mark.root
@pytest.mark.parametrize("bufs", [512, 4096, 40000])
def test_the_check_warns_where_the_kernel_grants_the_engine_less(bufs):
    """A real socket, in a namespace, of a process without privileges."""
    asked = json.dumps(udp(bufs, address="udp://127.0.0.1:5000"))
    script = 'ip link set lo up; exec "$@"'
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script, "sh", sys.executable, "-c", GRANTED, asked],
        capture_output=True,
        text=True,
        timeout=200,
    )
    warned, status = done.stdout.split()
    assert status == ("warn" if warned == "True" else "ok"), done.stderr


GRANTED = """
import logging, os, sys
from daqiri_ophyd.engine import Engine
from daqiri_ophyd.host import check_host
from daqiri_ophyd.engine import load_config
said = []
class Keep(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())
logging.getLogger("daqiri_ophyd").addHandler(Keep())
def check():
    config = load_config(sys.argv[1]).to_dict()
    return check_host(config, only=["socket-buffers"])["socket-buffers"]
# Imports what it needs, from folders that others may not read.
check()
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
Engine.open(sys.argv[1]).close()
result = check()
[rmem] = [f for f in result.findings if f.subject == "rmem_max"]
print(any("bytes of receive buffer requested for" in text for text in said), rmem.status)
"""


def test_with_a_right_the_engine_goes_beyond_the_buffers(result_of):
    files = buffers(backlog=10_000, capabilities=ADMIN)
    result = result_of("socket-buffers", {"files": files}, udp())
    assert result.status is Status.OK
    assert "rmem_max: 212992; CAP_NET_ADMIN lets the engine exceed it" in result.found


def test_packet_sockets_have_rings_and_a_send_buffer(result_of):
    result = result_of("socket-buffers", {"files": buffers()}, raw())
    assert (result.status, result.found) == (Status.WARN, "wmem_max: 212992 (need 4194304)")


def test_buffers_on_loopback_need_no_longer_backlog(result_of, profile):
    files = buffers(1 << 30, 1 << 30, 1000)
    assert result_of("socket-buffers", {"files": files}, profile("udp")).status is Status.OK


def test_buffers_where_none_is_asked_for(result_of, profile):
    result = result_of("socket-buffers", {"files": buffers()}, profile("igx"))
    assert result.status is Status.SKIP
    assert result.found == "engine dpdk asks for none with this configuration"
    result = result_of("socket-buffers", {"files": process()}, profile("udp"))
    assert result.status is Status.SKIP
    assert result.found == "not known: /proc/sys/net/core/rmem_max: no such file or directory"


# clocks

NIC = {
    "pci": [{"path": "pci0000:00/0000:01:00.0", "ids": "8086:1592", "kind": "0200"}],
    "net": {"eth0": {"pci": "0000:01:00.0"}},
}
STAMPS = {"eth0": {"clock": 2, "hardware_receive": True}}


def test_clocks_kept_on_time_are_ok(result_of):
    recorded = {
        "ethtool": STAMPS,
        "clock": {"synchronized": True, "max_error": 900},
        "services": ["chronyd"],
    }
    result = result_of("clocks", NIC, raw(timestamps=True), recorded=recorded)
    assert result.status is Status.OK
    assert result.found == (
        "eth0: hardware timestamps, clock /dev/ptp2; "
        "system clock: synchronized to 900 us (chronyd running)"
    )


@pytest.mark.parametrize(
    ("clock", "found"),
    [
        ({"synchronized": False, "max_error": 16000000}, "not synchronized"),
        ({"synchronized": True, "max_error": 200000}, "may be 200000 us off"),
    ],
)
def test_a_clock_that_is_off_is_a_warning(result_of, clock, found):
    result = result_of("clocks", {}, recorded={"clock": clock})
    assert (result.status, result.found) == (Status.WARN, f"system clock: {found}")
    [remedy] = result.remedies
    assert remedy.now == ("systemctl start chronyd",)
    # That it runs is not enough: "fixed" means that the clock is right.
    assert remedy.verify == ("chronyc waitsync 6",)
    assert "the clock may jump" in remedy.note
    assert remedy.lasting == ("systemctl enable chronyd",)
    files = {"/etc/debian_version": "12.9"}
    [remedy] = result_of("clocks", {"files": files}, recorded={"clock": clock}).remedies
    assert remedy.now == ("systemctl start chrony",)


@pytest.mark.parametrize(
    ("services", "asks"),
    [
        (["chronyd"], "`chronyc sources`"),
        (["ptp4l", "phc2sys"], "`journalctl -u 'ptp4l*'`, `journalctl -u 'phc2sys*'`"),
        (["ntpd"], "`ntpq -p`"),
    ],
)
def test_a_second_service_does_not_set_the_clock(result_of, services, asks):
    recorded = {"clock": {"synchronized": False, "max_error": 16000000}, "services": services}
    result = result_of("clocks", {}, recorded=recorded)
    assert result.found == f"system clock: not synchronized ({', '.join(services)} running)"
    [remedy] = result.remedies
    assert (remedy.now, remedy.lasting) == ((), ())
    assert remedy.note.endswith(f": see {asks}.")


@pytest.mark.parametrize("services", [["ptp4l"], ["systemd-timesyncd"]])
def test_chrony_is_started_where_no_other_service_sets_the_clock(result_of, services):
    recorded = {"clock": {"synchronized": False, "max_error": 16000000}, "services": services}
    [remedy] = result_of("clocks", {}, recorded=recorded).remedies
    assert remedy.now == ("systemctl start chronyd",)


def test_hardware_timestamps_without_a_clock(result_of):
    recorded = {
        "ethtool": {"eth0": {"hardware_receive": True}},
        "clock": {"synchronized": True, "max_error": 900},
    }
    result = result_of("clocks", NIC, raw(timestamps=True), recorded=recorded)
    assert result.findings[0].found == "hardware timestamps, no clock"


def test_hardware_timestamps_that_are_asked_for_and_missing_fail(result_of):
    recorded = {"ethtool": {}, "clock": {"synchronized": True, "max_error": 900}}
    result = result_of("clocks", NIC, raw(timestamps=True), recorded=recorded)
    assert (result.status, result.found) == (Status.FAIL, "eth0: no hardware timestamps")
    assert "hardware_timestamps" in result.remedies[0].note
    assert result_of("clocks", NIC, raw(), recorded=recorded).status is Status.OK


def test_clocks_that_were_not_recorded_are_skipped(result_of):
    result = result_of("clocks", {})
    assert result.status is Status.SKIP
    assert result.found == "not known: the clock's state was not recorded"


# storage


@pytest.fixture
def storage(make_host):
    """Return the result for a folder of a host with these mounts."""

    def result_of(mounts, config=None, folder="/data/run 1", **changes):
        root = make_host({"files": {"/proc/mounts": mounts}, **changes})
        return check_host(config, root=root, only=["storage"], folder=folder)["storage"]

    return result_of


ROOT = "/dev/sda1 / ext4 rw,relatime 0 0\n"


def test_a_disk_with_direct_writes_is_ok(storage):
    result = storage(ROOT + "/dev/nvme0n1 /data xfs rw 0 0\n")
    assert result.status is Status.OK
    assert result.found == (
        "/data/run 1: xfs on /data, with O_DIRECT; `daqiri-ophyd host measure` measures its rate"
    )


def test_mounts_with_blanks_and_mounts_over_mounts(storage):
    mounts = ROOT + "/dev/a /data ext4 rw 0 0\n/dev/b /data/run\\0401 xfs rw 0 0\n"
    assert "xfs on /data/run 1" in storage(mounts).found
    assert "ext4 on /data," in storage(mounts, folder="/data/run 10").found
    assert (
        "btrfs on /data," in storage(mounts + "/dev/c /data btrfs rw 0 0\n", folder="/data").found
    )


@pytest.mark.parametrize(
    ("mount", "found", "note"),
    [
        ("tmpfs /data tmpfs rw", "tmpfs on /data: memory, not a disk", "lost at the next boot"),
        ("srv:/x /data nfs4 rw", "nfs4 on /data: over a network", "Capture to a local disk"),
    ],
)
def test_what_is_no_local_disk_is_a_warning(storage, mount, found, note):
    result = storage(f"{ROOT}{mount} 0 0\n")
    assert (result.status, result.found) == (Status.WARN, f"/data/run 1: {found}")
    assert note in result.remedies[0].note


def test_a_disk_that_is_read_only_fails(storage):
    result = storage("/dev/a / ext4 rw 0 0\n/dev/b /data/run\\0401 xfs ro,noatime 0 0\n")
    assert (result.status, result.found) == (Status.FAIL, "/data/run 1: mounted read-only")
    [remedy] = result.remedies
    assert "check `dmesg` first" in remedy.note
    assert "mount -o remount,rw '/data/run 1'" in remedy.note
    assert not remedy.now


def test_file_systems_that_nobody_knows_are_skipped(storage):
    result = storage("overlay / overlay rw 0 0\n")
    assert result.status is Status.SKIP
    assert "overlay on /: whether it has O_DIRECT is not known" in result.found
    result = storage("")
    assert result.found == "not known: /proc/mounts: nothing is mounted above /data/run 1"


@pytest.mark.parametrize(
    ("kind", "modules", "found"),
    [
        ("xfs", ["nvidia_fs"], "cuFile: libcufile, from GPU memory to xfs"),
        ("xfs", [], "cuFile: libcufile in compatibility mode, which copies through the host"),
        ("btrfs", ["nvidia_fs"], "cuFile: libcufile in compatibility mode"),
    ],
)
def test_cufile_works_without_its_module(make_host, profile, kind, modules, found):
    files = {"/proc/mounts": f"/dev/a / {kind} rw 0 0", "/usr/lib64/libcufile.so.0": ""}
    root = make_host({"files": files}, modules=modules)
    result = check_host(profile("jungfrau-gpu"), root=root, only=["storage"])["storage"]
    assert result.status is Status.OK
    assert found in result.found
    assert not result.remedies


def test_without_cufile_the_engine_writes_from_the_host(storage, profile):
    result = storage("/dev/a / xfs rw 0 0\n", profile("jungfrau-gpu"))
    assert result.status is Status.OK
    [cufile] = [finding for finding in result.findings if finding.subject == "cuFile"]
    assert cufile.status is Status.SKIP
    assert "`writer: cufile` fails, `auto` copies to the host" in cufile.found


def test_free_space_of_a_folder_that_does_not_exist_yet(tmp_path):
    result = check_host(only=["storage"], folder=tmp_path / "not" / "yet")["storage"]
    texts = [finding.found for finding in result.findings]
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize / (1 << 30)
    [said] = [text for text in texts if text.endswith("GiB free")]
    assert abs(float(said.split()[0]) - free) < 5


def test_a_link_to_another_disk_is_followed(storage):
    mounts = ROOT + "/dev/b /disk xfs rw 0 0\n"
    result = storage(mounts, folder="/data/run", links={"/data": "/disk"})
    assert "xfs on /disk" in result.found
