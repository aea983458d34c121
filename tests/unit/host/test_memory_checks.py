"""Checks of memory."""

import pytest

from daqiri_ophyd.host import Status, check_host

DPDK = {
    "stream_type": "raw",
    "master_core": 0,
    "memory_regions": [
        {"name": "big", "kind": "huge", "affinity": 0, "num_bufs": 1 << 20, "buf_size": 2048}
    ],
    "interfaces": [{"name": "p", "address": "0005:03:00.0", "rx": {"queues": []}}],
}


@pytest.fixture
def hugepages(make_host):
    def result_of(pools, config=None):
        root = make_host({"hugepages": pools})
        return check_host(config, root=root, only=["hugepages"])["hugepages"]

    return result_of


def test_hugepages_reserved_for_the_regions_are_ok(hugepages):
    result = hugepages({2048: [0, 0], 1048576: [4, 3]}, DPDK)
    assert result.status is Status.OK
    assert result.found == "3 of 4 pages of 1 GiB free"


def test_too_few_hugepages_fail_and_the_remedy_says_how_many(hugepages):
    result = hugepages({2048: [0, 0], 1048576: [4, 1]}, DPDK)
    assert result.status is Status.FAIL
    assert result.found == "1 of 4 pages of 1 GiB free (need 2048 MiB)"
    [remedy] = result.remedies
    assert remedy.now == ("echo 5 > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",)
    [(path, text)] = remedy.files
    assert path == "/etc/default/grub.d/daqiri-hugepages.cfg"
    assert "default_hugepagesz=1G hugepagesz=1G hugepages=5" in text


def test_without_a_configuration_no_hugepages_are_a_warning(hugepages):
    assert hugepages({2048: [0, 0]}).status is Status.WARN


def test_sockets_need_no_hugepages(hugepages):
    config = {"stream_type": "socket", "master_core": 0, "memory_regions": [], "interfaces": []}
    result = hugepages({2048: [0, 0]}, config)
    assert result.status is Status.SKIP
    assert "no region of kind huge" in result.found


@pytest.mark.parametrize("text", ["", "many", "-", "0x", "99999999999999999999999"])
def test_malformed_pools_are_skipped_or_read(make_host, text):
    files = {"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": text}
    result = check_host(root=make_host({"files": files}), only=["hugepages"])["hugepages"]
    assert "at fault" not in result.found


@pytest.mark.parametrize(
    ("sizes", "command"),
    [
        ([64], "echo 8000 > /sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages"),
        ([2048, 16777216], "echo 250 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"),
    ],
)
def test_the_remedy_takes_pages_that_a_host_can_spare(hugepages, sizes, command):
    [remedy] = hugepages({size: [0, 0] for size in sizes}).remedies
    assert remedy.now == (command,)
    size = f"{sizes[0]}K" if sizes[0] < 1024 else f"{sizes[0] >> 10}M"
    assert f"hugepagesz={size} " in remedy.files[0][1]


@pytest.mark.parametrize("count", ["-5", "0xffffffffffffffffff"])
def test_absurd_numbers_of_pages_are_not_believed(make_host, count):
    files = {"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": count}
    result = check_host(root=make_host({"files": files}), only=["hugepages"])["hugepages"]
    assert result.status is Status.SKIP
    assert "nr_hugepages: holds" in result.found


# numa


def test_one_node_needs_no_library(result_of):
    result = result_of("numa", {})
    assert (result.status, result.found) == (Status.SKIP, "one node")


@pytest.mark.parametrize("folder", ["/usr/lib", "/usr/lib64", "/usr/lib/aarch64-linux-gnu"])
def test_the_library_of_several_nodes(result_of, folder):
    nodes = {"cpus": 4, "nodes": ["0-1", "2-3"]}
    result = result_of("numa", {**nodes, "files": {f"{folder}/libnuma.so.1": "ELF"}})
    assert (result.status, result.found) == (Status.OK, "2 nodes, libnuma is installed")
    result = result_of("numa", nodes)
    assert (result.status, result.found) == (Status.WARN, "2 nodes, no libnuma")
    assert [remedy.now for remedy in result.remedies] == [("apt-get install libnuma1",)]
