"""Checks of memory: their results agree with the behaviour of the engine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from daqiri_ophyd.engine import Engine, NoFreePacketBuffersError, load_config
from daqiri_ophyd.host import Status, Step, check_host

MIB = 1 << 20


def config(*regions, engine=None, packets=True):
    """Return a checked configuration with memory regions: kind, affinity, buffers, their size."""
    made = [
        {"name": f"m{n}", "kind": kind, "affinity": node, "num_bufs": count, "buf_size": size}
        for n, (kind, node, count, size) in enumerate(regions)
    ]
    names = [region["name"] for region in made] if packets else []
    made.append({"name": "rest", "kind": "host", "num_bufs": 256, "buf_size": 2048})
    queues = [
        {"name": f"q{n}", "id": n, "cpu_core": "any", "batch_size": 1, "memory_regions": [name]}
        for n, name in enumerate(names or ["rest"])
    ]
    return load_config(
        {
            "version": 1,
            "master_core": 0,
            "stream_type": "raw",
            **({"engine": engine} if engine else {"loopback": "sw"}),
            "memory_regions": made if not names else made[:-1],
            "interfaces": [
                {
                    "name": "p",
                    "address": "0000:01:00.0" if engine else "lo",
                    "rx": {"queues": queues},
                }
            ],
        }
    ).to_dict()


# hugepages


@pytest.fixture
def hugepages(make_host):
    def result_of(pools, config=None, default=2048, **changes):
        host = {"hugepages": pools, "default_hugepage": default, **changes}
        return check_host(config, root=make_host(host), only=["hugepages"])["hugepages"]

    return result_of


@pytest.mark.parametrize(
    ("free", "status", "found"),
    [
        (30, Status.OK, "30 of 40 pages of 2 MiB free"),
        (2, Status.FAIL, "2 of 40 pages of 2 MiB free (need 24)"),
    ],
)
def test_pages_are_counted_where_the_pools_are_hidden(hugepages, free, status, found):
    lines = f"HugePages_Total: 40\nHugePages_Free: {free}\nHugepagesize: 2048 kB"
    files = {"/proc/meminfo": f"MemTotal: 9 kB\n{lines}"}
    result = hugepages({}, config(("huge", 0, 1024, 48 << 10)), files=files)
    assert (result.status, result.found) == (status, found)


def test_pages_reserved_for_the_regions_are_ok(hugepages):
    result = hugepages({2048: [40, 30]}, config(("huge", 0, 1024, 48 << 10)))
    assert (result.status, result.found) == (Status.OK, "30 of 40 pages of 2 MiB free")


def test_as_many_pages_as_the_regions_take_are_enough(hugepages):
    """48 MiB are 24 pages; no floor beyond that."""
    needed = config(("huge", 0, 1024, 48 << 10))
    assert hugepages({2048: [24, 24]}, needed).status is Status.OK
    result = hugepages({2048: [24, 23]}, needed)
    assert (result.status, result.found) == (
        Status.FAIL,
        "23 of 24 pages of 2 MiB free (need 24)",
    )


def test_pages_that_are_not_of_the_default_size_do_not_count(hugepages):
    result = hugepages({2048: [0, 0], 1048576: [4, 4]}, config(("huge", 0, 1024, 16 << 10)))
    assert result.status is Status.FAIL
    assert result.found == (
        "no pages of 2 MiB; not of the default size: 4 of 4 pages of 1 GiB free (need 8)"
    )
    [remedy] = result.remedies
    assert remedy.now == ("sysctl -w vm.nr_hugepages=8",)
    assert remedy.files == (("/etc/sysctl.d/90-daqiri-hugepages.conf", "vm.nr_hugepages=8\n"),)
    assert not remedy.kernel_line


def test_each_region_takes_whole_pages(hugepages):
    two = config(("huge", 0, 512, 64), ("huge", 0, 512, 64))
    pools = {1048576: [1, 1]}
    result = hugepages(pools, two, default=1048576)
    assert (result.status, result.found) == (Status.FAIL, "1 of 1 pages of 1 GiB free (need 2)")
    [remedy] = result.remedies
    assert remedy.step is Step.BOOT_LINE
    assert remedy.kernel_line == "default_hugepagesz=1G hugepagesz=1G hugepages=2"
    assert hugepages({1048576: [2, 2]}, two, default=1048576).status is Status.OK


def uses(**lines):
    """Return the file with what a process uses, in MiB."""
    text = "".join(f"{name}:\t {mib << 10} kB\n" for name, mib in lines.items())
    return {"/proc/self/status": "Uid:\t0\t0\t0\t0\nCapEff:\t0\n" + text}


@pytest.mark.parametrize(
    ("own", "status", "found"),
    [
        (48, Status.OK, "1 of 25 pages of 2 MiB free; this process has 24"),
        (46, Status.FAIL, "1 of 25 pages of 2 MiB free (need 24)"),
    ],
)
def test_pages_of_the_engine_that_is_open_count(hugepages, own, status, found):
    needed = config(("huge", 0, 1024, 48 << 10))
    result = hugepages({2048: [25, 1]}, needed, files=uses(HugetlbPages=own))
    assert (result.status, result.found) == (status, found)


def test_the_remedy_leaves_what_others_use(hugepages):
    result = hugepages({2048: [100, 10]}, config(("huge", 0, 1024, 48 << 10)))
    assert result.remedies[0].now == ("sysctl -w vm.nr_hugepages=114",)


def test_pages_that_the_kernel_may_add_count(hugepages):
    files = {"/proc/sys/vm/nr_overcommit_hugepages": "30"}
    needed = config(("huge", 0, 1024, 48 << 10))
    assert hugepages({2048: [0, 0]}, needed, files=files).status is Status.OK


def test_pages_are_wanted_on_the_nodes_of_the_regions(hugepages):
    pools = {"nodes": ["0-1", "2-3"], "node_hugepages": [{2048: [20, 20]}, {2048: [4, 4]}]}
    result = hugepages({2048: [24, 24]}, config(("huge", 1, 512, 32 << 10)), **pools)
    assert (result.status, result.found) == (
        Status.FAIL,
        "NUMA node 1: 4 of 4 pages of 2 MiB free (need 8)",
    )
    [remedy] = result.remedies
    path = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
    assert remedy.now == (f"echo 8 >{path}",)
    assert remedy.files[0][0] == "/etc/daqiri-host.d/10-hugepages-node1.sh"
    on_the_other = config(("huge", 0, 512, 32 << 10))
    assert hugepages({2048: [24, 24]}, on_the_other, **pools).status is Status.OK


def test_pages_of_a_host_with_several_nodes_are_reserved_where_they_are_wanted(hugepages):
    # A total would be spread over all nodes, and node 1 would have half of it.
    pools = {"nodes": ["0-1", "2-3"], "node_hugepages": [{2048: [0, 0]}, {2048: [0, 0]}]}
    needed = config(("huge", 1, 512, 32 << 10), ("huge", 0, 512, 8 << 10))
    result = hugepages({2048: [0, 0]}, needed, **pools)
    assert result.status is Status.FAIL
    assert [each.subject for each in result.findings] == ["NUMA node 0", "NUMA node 1"]
    folder = "/sys/devices/system/node/node{}/hugepages/hugepages-2048kB/nr_hugepages"
    assert [each.now for each in result.remedies] == [
        (f"echo 2 >{folder.format(0)}",),
        (f"echo 8 >{folder.format(1)}",),
    ]


@pytest.mark.parametrize(("buffers", "size"), [(512, 100), (700, 3000), (257, 4000), (1000, 64)])
def test_the_check_fails_where_the_engine_refuses(buffers, size):
    """On this host: the same number of pages, in the same words."""
    asked = config(("huge", 0, buffers, size), ("huge", 0, 300, size))
    result = check_host(asked, only=["hugepages"])["hugepages"]
    try:
        Engine.open(load_config(asked)).close()
    except NoFreePacketBuffersError as error:
        assert result.status is Status.FAIL
        needed = result.found.rpartition("need ")[2].rstrip(")")
        assert f" need {needed} hugepages" in str(error)
    else:
        assert result.status is Status.OK


def nr_hugepages(count):
    Path("/proc/sys/vm/nr_hugepages").write_text(str(count))


@pytest.mark.root
@pytest.mark.skipif(not os.access("/proc/sys/vm/nr_hugepages", os.W_OK), reason="needs /proc/sys")
def test_after_the_remedy_the_engine_opens():
    before = int(Path("/proc/sys/vm/nr_hugepages").read_text())
    asked = config(("huge", 0, 1500, 4000), ("huge", 0, 300, 64))
    result = check_host(asked, only=["hugepages"])["hugepages"]
    try:
        if result.status is Status.FAIL:
            total = int(result.remedies[0].now[0].rpartition("=")[2])
            nr_hugepages(total)
            if int(Path("/proc/sys/vm/nr_hugepages").read_text()) < total:
                pytest.skip("this host has no memory for huge pages")
        assert check_host(asked, only=["hugepages"])["hugepages"].status is Status.OK
        Engine.open(load_config(asked)).close()
    finally:
        nr_hugepages(before)


def test_without_a_configuration_pages_matter_beside_a_nic_for_them(hugepages, describe):
    nic = {"pci": [{"path": "pci0000:00/0000:01:00.0", "ids": "15b3:1021", "kind": "0200"}]}
    result = hugepages({2048: [0, 0]}, **nic)
    assert (result.status, result.found) == (Status.WARN, "no pages of 2 MiB (need 250)")
    [remedy] = result.remedies
    # As the vendor's guides begin, and only where it is named.
    assert remedy.kernel_line == "default_hugepagesz=2M hugepagesz=2M hugepages=2048"
    assert remedy.step is Step.BOOT_LINE
    result = hugepages({2048: [0, 0], 1048576: [1, 1]})
    assert (result.status, result.found) == (
        Status.SKIP,
        "no configuration; 1 of 1 pages of 1 GiB free",
    )


@pytest.mark.parametrize(
    ("pools", "default", "memory", "size", "count"),
    [
        ({2048: [0, 0], 1048576: [0, 0]}, 2048, 64 << 20, "1G", 4),
        # At most half of the memory.
        ({2048: [0, 0], 1048576: [0, 0]}, 2048, 5 << 20, "1G", 2),
        ({2048: [0, 0], 1048576: [0, 0]}, 2048, 3 << 19, "2M", 384),
        # As on Arm with pages of 64 KiB, where 1 GiB does not exist.
        ({2048: [0, 0], 524288: [0, 0], 16777216: [0, 0]}, 524288, 64 << 20, "512M", 8),
        # Other programs use those of the default size.
        ({2048: [100, 0], 1048576: [0, 0]}, 2048, 64 << 20, "2M", 2048),
        ({2048: [3000, 0], 1048576: [0, 0]}, 2048, 64 << 20, "2M", 3250),
    ],
)
def test_a_start_is_of_pages_and_memory_that_the_host_has(
    hugepages, pools, default, memory, size, count
):
    nic = {"pci": [{"path": "pci0000:00/0000:01:00.0", "ids": "15b3:1021", "kind": "0200"}]}
    [remedy] = hugepages(pools, default=default, memory=memory, **nic).remedies
    words = f"default_hugepagesz={size} hugepagesz={size} hugepages={count}"
    assert remedy.kernel_line == words


@pytest.mark.parametrize("default", [2048, 1048576])
def test_more_pages_than_memory_are_not_reserved(hugepages, default):
    """4 GiB of 4.2: the host would not boot."""
    asked = config(("huge", 0, 1 << 19, 8 << 10))
    result = hugepages({default: [0, 0]}, asked, default=default, memory=42 * (1 << 20) // 10)
    assert result.status is Status.FAIL
    [remedy] = result.remedies
    assert "more than this host's memory has room for" in remedy.note
    assert not (remedy.now or remedy.files or remedy.lasting or remedy.kernel_line)
    result = hugepages({default: [0, 0]}, asked, default=default, memory=46 * (1 << 20) // 10)
    assert result.remedies[0].now


def test_more_pages_than_memory_are_not_reserved_on_a_node_either(hugepages):
    pools = {"nodes": ["0-1", "2-3"], "node_hugepages": [{2048: [2048, 2048]}, {2048: [0, 0]}]}
    asked = config(("huge", 1, 1 << 19, 8 << 10))
    result = hugepages({2048: [2048, 2048]}, asked, memory=42 * (1 << 20) // 10, **pools)
    [remedy] = result.remedies
    assert not (remedy.now or remedy.files) and "more than this host's memory" in remedy.note


def test_a_small_host_is_not_told_to_reserve_for_a_start(hugepages):
    nic = {"pci": [{"path": "pci0000:00/0000:01:00.0", "ids": "15b3:1021", "kind": "0200"}]}
    [remedy] = hugepages({2048: [0, 0]}, memory=900 << 10, **nic).remedies
    assert not (remedy.now or remedy.kernel_line)


def test_configurations_without_regions_on_huge_pages(hugepages):
    result = hugepages({2048: [0, 0]}, config())
    assert result.status is Status.SKIP
    assert "no region of kind huge" in result.found


@pytest.mark.parametrize("text", ["", "many", "-", "0x", "99999999999999999999999"])
def test_malformed_pools_are_skipped_or_read(make_host, text):
    files = {"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": text}
    result = check_host(root=make_host({"files": files}), only=["hugepages"])["hugepages"]
    assert "at fault" not in result.found


@pytest.mark.parametrize("count", ["-5", "0xffffffffffffffffff"])
def test_absurd_numbers_of_pages_are_not_believed(make_host, count):
    files = {"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": count}
    result = check_host(root=make_host({"files": files}), only=["hugepages"])["hugepages"]
    assert result.status is Status.SKIP
    assert "nr_hugepages: holds" in result.found


# memory


@pytest.mark.parametrize(
    ("total", "available", "status", "found"),
    [
        (4 << 20, 2 << 20, Status.OK, "1.0 GiB needed; 2.0 GiB available"),
        (4 << 20, 1 << 19, Status.FAIL, "1.0 GiB needed; 512 MiB available"),
        (1 << 20, 1 << 19, Status.FAIL, "1.0 GiB needed; this host has 1.0 GiB"),
    ],
)
def test_memory_for_the_regions(result_of, total, available, status, found):
    files = {"/proc/meminfo": f"MemTotal: {total} kB\nMemAvailable: {available} kB"}
    asked = config(("host", 0, 1 << 18, 4096))
    result = result_of("memory", {"files": files}, asked)
    assert (result.status, result.found) == (status, found)


def test_copies_of_a_gpus_packets_take_memory_of_the_host(result_of):
    packets = config(("device", 0, 1 << 18, 4096))
    result = result_of("memory", {}, packets)
    assert result.found.startswith("1.0 GiB needed, 1.0 GiB of it pinned for a GPU; ")
    frames = config(("device", 0, 1 << 18, 4096), packets=False)
    assert "pinned" not in result_of("memory", {}, frames).found
    written_by_the_nic = config(("device", 0, 1 << 18, 4096), engine="ibverbs")
    assert "pinned" not in result_of("memory", {}, written_by_the_nic).found


def test_regions_on_huge_pages_take_no_other_memory(result_of):
    files = {"/proc/meminfo": "MemTotal: 4000000 kB\nMemAvailable: 100000 kB"}
    asked = config(("huge", 0, 1 << 18, 4096))
    assert result_of("memory", {"files": files}, asked).status is Status.OK


def test_memory_that_is_not_known(result_of):
    result = result_of("memory", {"files": {"/proc/meminfo": "MemFree: 5 kB"}}, config())
    assert (result.status, result.found) == (
        Status.SKIP,
        "not known: /proc/meminfo: has no MemTotal",
    )


@pytest.mark.parametrize(("total", "status"), [(2 << 20, Status.OK), (1 << 19, Status.FAIL)])
def test_without_what_is_available_the_host_must_have_it(result_of, total, status):
    asked = config(("host", 0, 1 << 17, 4096))
    result = result_of("memory", {"files": {"/proc/meminfo": f"MemTotal: {total} kB"}}, asked)
    assert result.status is status
    assert "; this host has " in result.found


GROUPS = [
    # The process's own group, and one above it.
    ("0::/a/b", "/sys/fs/cgroup/a/b/memory.max"),
    ("0::/a/b", "/sys/fs/cgroup/a/memory.max"),
    # A container sees its own group at the top, and maybe the host's path.
    ("0::/", "/sys/fs/cgroup/memory.max"),
    ("0::/../x", "/sys/fs/cgroup/memory.max"),
    ("1:name=systemd:/\n4:cpu,memory:/a/b", "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes"),
    ("4:memory:/docker/1f", "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ("4:cpu:/\n0::/a", "/sys/fs/cgroup/unified/a/memory.max"),
]


@pytest.mark.parametrize(("groups", "path"), GROUPS)
def test_control_groups_limit_memory(result_of, groups, path):
    files = {"/proc/self/cgroup": groups, path: str(256 << 20)}
    result = result_of("memory", {"files": files}, config(("host", 0, 1 << 17, 4096)))
    assert (result.status, result.found) == (
        Status.FAIL,
        "513 MiB needed; the control group of this process may use 256 MiB",
    )


@pytest.mark.parametrize("limit", ["max", str((1 << 63) - 4096), str((1 << 63) - 65536), "?"])
@pytest.mark.parametrize(("groups", "path"), GROUPS)
def test_control_groups_without_a_limit(result_of, groups, path, limit):
    files = {"/proc/self/cgroup": groups, path: limit}
    result = result_of("memory", {"files": files}, config(("host", 0, 1 << 17, 4096)))
    assert (result.status, result.found.partition("; ")[2]) == (Status.OK, "16.0 GiB available")


@pytest.mark.parametrize(
    ("groups", "folder", "limit", "use", "droppable"),
    [
        ("0::/a", "/sys/fs/cgroup/a", "memory.max", "memory.current", "inactive_file"),
        ("0::/a/b", "/sys/fs/cgroup/a", "memory.max", "memory.current", "inactive_file"),
        (
            *("4:memory:/a", "/sys/fs/cgroup/memory/a", "memory.limit_in_bytes"),
            *("memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
)
def test_others_use_memory_of_a_control_group(result_of, groups, folder, limit, use, droppable):
    asked = config(("host", 0, 1 << 17, 4096))
    files = {
        "/proc/self/cgroup": groups,
        f"{folder}/{limit}": str(1 << 30),
        f"{folder}/{use}": str(768 << 20),
        f"{folder}/memory.stat": f"anon 1\n{droppable} {128 << 20}\nactive_file 0",
    }
    result = result_of("memory", {"files": files}, asked)
    assert (result.status, result.found) == (
        Status.FAIL,
        "513 MiB needed; the control group of this process has 384 MiB left",
    )
    assert "MemoryMax= of systemd" in result.remedies[0].note
    # Files that nobody reads make room.
    files[f"{folder}/memory.stat"] = f"anon 1\n{droppable} {512 << 20}\nactive_file 0"
    result = result_of("memory", {"files": files}, asked)
    assert (result.status, result.found) == (Status.OK, "513 MiB needed; 768 MiB available")


@pytest.mark.parametrize(("own", "status"), [(0, Status.FAIL), (600, Status.OK)])
def test_memory_of_the_engine_that_is_open_counts(result_of, own, status):
    asked = config(("host", 0, 1 << 17, 4096))
    meminfo = "MemTotal: 2097152 kB\nMemAvailable: 204800 kB"
    files = {"/proc/meminfo": meminfo, **uses(RssAnon=own)}
    assert result_of("memory", {"files": files}, asked).status is status
    group = {
        "/proc/self/cgroup": "0::/a",
        "/sys/fs/cgroup/a/memory.max": str(1 << 30),
        "/sys/fs/cgroup/a/memory.current": str(900 << 20),
    }
    files = {**group, **uses(RssAnon=own)}
    assert result_of("memory", {"files": files}, asked).status is status


def limits(address_space, size_kib):
    """Return the files with a limit on address space, and what is mapped."""
    return {
        "/proc/self/status": "Uid:\t0\t0\t0\t0\nCapEff:\t0\n" + f"VmSize:\t  {size_kib} kB",
        "/proc/self/limits": f"Max address space         {address_space} unlimited bytes",
    }


def test_a_limit_on_address_space(result_of):
    asked = config(("host", 0, 1 << 17, 4096))
    result = result_of("memory", {"files": limits(1 << 30, 600 << 10)}, asked)
    assert result.status is Status.FAIL
    assert result.found.startswith("RLIMIT_AS: ")
    assert result.found.endswith("of address space needed; this process may map 424 MiB more")
    assert "ulimit -v unlimited" in result.remedies[0].note
    for enough in (limits(2 << 30, 600 << 10), limits("unlimited", 600 << 10)):
        assert result_of("memory", {"files": enough}, asked).status is Status.OK


LIMITED = """
import resource, sys
from daqiri_ophyd.engine import DaqiriError, Engine, load_config
from daqiri_ophyd.host import check_host
config = load_config(sys.argv[1])
with open("/proc/self/statm") as statm:
    mapped = int(statm.read().split()[0]) * resource.getpagesize()
# Until here all libraries are loaded.
check_host(config.to_dict(), only=["memory"])
limit = mapped + (int(sys.argv[2]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(check_host(config.to_dict(), only=["memory"])["memory"].status)
try:
    Engine.open(config).close()
    print("opened")
except DaqiriError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("more", "status", "verdict"),
    [(200, "fail", "NoFreePacketBuffersError"), (2000, "ok", "opened")],
)
def test_the_check_agrees_with_the_engine_of_a_limited_process(more, status, verdict):
    text = json.dumps(config(("host", 0, 1 << 17, 4096)))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, text, str(more)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    found, _, opened = done.stdout.partition("\n")
    assert found == status, done.stderr
    assert opened.startswith(verdict)
    if verdict != "opened":
        assert "this process may map" in opened
        assert "ulimit -v unlimited" in opened


def test_other_control_groups_do_not_matter(result_of):
    files = {"/proc/self/cgroup": "0::/a", "/sys/fs/cgroup/b/memory.max": "4096"}
    assert result_of("memory", {"files": files}, config()).status is Status.OK


# numa


def test_regions_on_nodes_of_the_host_are_ok(result_of):
    result = result_of("numa", {"nodes": ["0-1", "2-3"]}, config(("host", 1, 512, 2048)))
    assert (result.status, result.found) == (Status.OK, "m0: node 1")


def test_a_node_that_is_not_there_fails(result_of):
    result = result_of("numa", {"nodes": ["0-3"]}, config(("host", 1, 512, 2048)))
    assert (result.status, result.found) == (Status.FAIL, "m0: affinity 1: no such NUMA node")
    assert result.remedies[0].note == "Set affinity to one of 0."


def test_regions_far_from_the_nic_warn(result_of):
    nic = {"path": "pci0000:80/0000:01:00.0", "ids": "15b3:1021", "kind": "0200", "numa": 1}
    host = {"nodes": ["0-1", "2-3"], "pci": [nic]}
    result = result_of("numa", host, config(("host", 0, 512, 2048), engine="dpdk"))
    assert (result.status, result.found) == (Status.WARN, "m0: on NUMA node 0, the NIC on 1")
    # Of a GPU's regions, affinity names the GPU.
    result = result_of("numa", host, config(("device", 0, 512, 2048), engine="dpdk"))
    assert result.status is Status.SKIP


def test_nodes_without_a_configuration(result_of):
    result = result_of("numa", {"nodes": ["0-1", "2-3"]})
    assert (result.status, result.found) == (Status.SKIP, "no configuration; 2 NUMA nodes")
