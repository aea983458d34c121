"""Checks of the kernel, of what it grants, of clocks, and of where captures are written."""

import os

import pytest

from daqiri_ophyd.engine import load_config
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
    """Return the files that say what a process may do."""
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


def raw(address="eth0", priority=0, timestamps=False, path="af_packet"):
    """Return a checked configuration with a receive and a transmit queue on a port."""
    rx = {"name": "r", "id": 0, "cpu_core": 1, "batch_size": 64, "memory_regions": ["m"]}
    region = {"name": "m", "kind": "host", "num_bufs": BUFFERS, "buf_size": 2048}
    tx = {"name": "t", "id": 0, "cpu_core": 2, "batch_size": 64, "memory_regions": ["m"]}
    return load_config(
        {
            "version": 1,
            "stream_type": "raw",
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
        ("0600000001", Status.WARN, "on"),
        ("06000000", Status.SKIP, "the EFI variable has 4 bytes; five are expected"),
    ],
)
def test_secure_boot(result_of, digits, status, found):
    result = result_of("secure-boot", {"hex": {SECURE_BOOT: digits}}, platform="igx")
    assert (result.status, result.found) == (status, found)
    notes = [remedy.note for remedy in result.remedies]
    wanted = "Disable it in the firmware setup for the change, and enable it again afterwards."
    assert notes == ([wanted] if status is Status.WARN else [])


def test_secure_boot_where_there_is_none(result_of):
    result = result_of("secure-boot", {}, platform="spark")
    assert (result.status, result.found) == (Status.SKIP, "no such EFI variable")
    result = result_of("secure-boot", {"hex": {SECURE_BOOT: "0600000001"}})
    assert (result.status, result.found) == (Status.SKIP, "does not apply to platform generic")


# capabilities


def test_packet_sockets_need_a_right(result_of):
    result = result_of("capabilities", {"files": process(RAW)}, raw())
    assert (result.status, result.found) == (Status.OK, "CAP_NET_RAW: present, for packet sockets")
    result = result_of("capabilities", {"files": process()}, raw())
    assert result.status is Status.FAIL
    assert result.found == "CAP_NET_RAW: missing, for packet sockets"
    [remedy] = result.remedies
    assert remedy.now == ('setcap cap_net_raw+ep "$(readlink -f "$(command -v python3)")"',)
    assert remedy.lasting == remedy.now and "--copies" in remedy.note


def test_af_xdp_needs_more_rights(result_of):
    result = result_of("capabilities", {"files": process(RAW)}, raw(path="af_xdp"))
    assert result.status is Status.FAIL
    assert "CAP_NET_ADMIN, CAP_BPF: missing, for receive_path: af_xdp" in result.found
    [remedy] = result.remedies
    assert remedy.now[0].startswith("setcap cap_bpf,cap_net_admin,cap_net_raw+ep ")
    result = result_of("capabilities", {"files": process(RAW | ADMIN | BPF)}, raw(path="af_xdp"))
    assert result.status is Status.OK


def test_rights_are_granted_together_as_each_grant_replaces_the_last(result_of):
    config = raw("0005:03:00.0", priority=50)
    result = result_of("capabilities", {"files": process(RAW, memlock=4096)}, config)
    assert result.found == (
        "CAP_IPC_LOCK: missing, for registered memory; CAP_SYS_NICE: missing, for realtime_priority"
    )
    [remedy] = result.remedies
    [command] = remedy.now
    assert command.startswith("setcap cap_ipc_lock,cap_net_raw,cap_sys_nice+ep ")


@pytest.mark.parametrize(
    "granted", [{"memlock": "unlimited", "priority": 50}, {"memlock": 48 << 20}]
)
def test_limits_do_instead_of_rights(result_of, granted):
    priority = granted.get("priority", 0)
    files = process(RAW, **granted)
    result = result_of("capabilities", {"files": files}, raw("0005:03:00.0", priority=priority))
    assert result.status is Status.OK, result.found


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
    assert remedy.now == ('setcap cap_bpf+ep "$(readlink -f "$(command -v python3)")"',)
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


def test_buffers_that_take_a_queue_are_ok(result_of):
    result = result_of("socket-buffers", {"files": buffers(48 << 20, 8 << 20, 10_000)}, raw())
    assert result.status is Status.OK
    assert result.found == ("rmem_max: 50331648; wmem_max: 8388608; netdev_max_backlog: 10000")


def test_buffers_too_small_are_named_with_the_setting(result_of):
    result = result_of("socket-buffers", {"files": buffers()}, raw())
    assert result.status is Status.WARN
    assert result.found == (
        "rmem_max: 212992 (need 50331648); wmem_max: 212992 (need 8388608); "
        "netdev_max_backlog: 1000 (need 10000)"
    )
    first = result.remedies[0]
    assert first.now == ("sysctl -w net.core.rmem_max=50331648",)
    assert first.files == (
        ("/etc/sysctl.d/90-daqiri-rmem_max.conf", "net.core.rmem_max=50331648\n"),
    )


def test_with_a_right_the_engine_goes_beyond_the_buffers(result_of):
    files = buffers(backlog=10_000, capabilities=ADMIN)
    result = result_of("socket-buffers", {"files": files}, raw())
    assert result.status is Status.OK
    assert "rmem_max, wmem_max: 212992; CAP_NET_ADMIN lets the engine exceed it" in result.found


def test_buffers_on_loopback_need_no_longer_backlog(result_of, profile):
    files = buffers(1 << 30, 1 << 30, 1000)
    assert result_of("socket-buffers", {"files": files}, profile("udp")).status is Status.OK


def test_buffers_where_no_socket_is(result_of, profile):
    result = result_of("socket-buffers", {"files": buffers()}, profile("igx"))
    assert (result.status, result.found) == (Status.SKIP, "engine dpdk uses none")
    result = result_of("socket-buffers", {"files": process()}, profile("udp"))
    assert result.status is Status.SKIP
    assert result.found == "not known: /proc/sys/net/core/rmem_max: no such file or directory"


# clocks

NIC = {
    "pci": [{"path": "pci0000:00/0000:01:00.0", "ids": "8086:1592", "kind": "0200"}],
    "net": {"eth0": {"pci": "0000:01:00.0"}},
}
STAMPS = {"eth0": {"clock": 2, "hardware_receive": True, "hardware_send": True}}


def test_clocks_kept_on_time_are_ok(result_of):
    recorded = {
        "ethtool": STAMPS,
        "clock": {"synchronized": True, "max_error": 900, "services": ["chronyd"]},
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
    assert remedy.now == ("systemctl enable --now chronyd",)


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
    assert result.remedies[0].now == ("mount -o remount,rw '/data/run 1'",)


def test_file_systems_that_nobody_knows_are_skipped(storage):
    result = storage("overlay / overlay rw 0 0\n")
    assert result.status is Status.SKIP
    assert "overlay on /: whether it has O_DIRECT is not known" in result.found
    result = storage("")
    assert result.found == "not known: /proc/mounts: nothing is mounted above /data/run 1"


@pytest.mark.parametrize(
    ("kind", "modules", "status", "found"),
    [
        ("xfs", ["nvidia_fs"], Status.OK, "GPUDirect Storage: nvidia-fs loaded, xfs"),
        ("xfs", [], Status.WARN, "GPUDirect Storage: nvidia-fs is not loaded"),
        (
            "btrfs",
            ["nvidia_fs"],
            Status.WARN,
            "GPUDirect Storage: btrfs cannot; ext4 with data=ordered and xfs can",
        ),
    ],
)
def test_storage_from_gpu_memory(storage, profile, kind, modules, status, found):
    result = storage(f"/dev/a / {kind} rw 0 0\n", profile("igx"), modules=modules)
    assert result.status is status
    assert found in result.found
    if kind == "xfs" and status is Status.WARN:
        [remedy] = result.remedies
        assert remedy.now == ("modprobe nvidia-fs",)
        assert remedy.files == (("/etc/modules-load.d/daqiri-nvidia-fs.conf", "nvidia-fs\n"),)


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
