"""The status of every check on every described host."""

import pytest

from daqiri_ophyd.engine import capabilities
from daqiri_ophyd.host import CHECKS, check_host

STATUSES = """
                    igx   spark a100  laptop container
engine              skip  skip  skip  skip  skip
nic-driver          ok    ok    ok    skip  skip
connectx            ok    ok    ok    skip  skip
link-layer          ok    ok    ok    skip  skip
carrier             ok    ok    ok    warn  ok
physical-port       skip  skip  skip  skip  skip
ip-address          ok    ok    ok    skip  skip
mtu                 ok    ok    ok    ok    ok
nic-settings        skip  ok    ok    warn  ok
nic-firmware        skip  skip  ok    skip  skip
pcie-payload        warn  ok    ok    skip  skip
pcie-link           ok    ok    ok    skip  skip
pcie-read-request   ok    ok    ok    skip  skip
memory              skip  skip  skip  skip  skip
hugepages           ok    ok    ok    skip  skip
numa                skip  skip  skip  skip  skip
cpu-isolation       ok    ok    ok    skip  skip
queue-cores         skip  skip  skip  skip  skip
cpu-governor        ok    ok    ok    warn  skip
cpu-idle            skip  skip  skip  skip  skip
gpu-driver          ok    ok    ok    skip  skip
gpu-persistence     ok    ok    ok    skip  skip
gpu-clocks          ok    ok    ok    skip  skip
gpudirect           ok    skip  ok    skip  skip
pcie-topology       ok    skip  warn  skip  skip
bar1                ok    skip  ok    skip  skip
acs                 ok    skip  ok    skip  skip
iommu               ok    ok    ok    skip  skip
gdrcopy             skip  skip  ok    skip  skip
gpu-without-root    skip  skip  ok    skip  skip
secure-boot         skip  skip  skip  ok    skip
capabilities        skip  skip  skip  skip  skip
socket-buffers      skip  skip  skip  skip  skip
clocks              skip  ok    ok    ok    warn
storage             skip  ok    ok    ok    skip
"""

# With a configuration, where it differs. DPDK: ok where this build has it; elsewhere no NIC writes
# to a GPU.
CONFIGURED = """
                    igx/igx spark/spark a100/igx a100/jungfrau-gpu laptop/udp container/udp
engine              DPDK    DPDK        DPDK     ok                ok         ok
nic-driver          ok      ok          skip     skip              skip       skip
connectx            ok      ok          skip     skip              skip       skip
link-layer          ok      ok          skip     skip              skip       skip
carrier             ok      ok          fail     ok                ok         ok
physical-port       ok      ok          skip     skip              skip       skip
ip-address          skip    skip        skip     skip              skip       skip
mtu                 ok      ok          skip     ok                ok         ok
nic-settings        skip    skip        skip     skip              skip       skip
nic-firmware        skip    skip        skip     skip              skip       skip
pcie-payload        warn    ok          skip     skip              skip       skip
pcie-link           ok      ok          skip     skip              skip       skip
pcie-read-request   ok      ok          skip     skip              skip       skip
memory              ok      ok          ok       ok                ok         ok
hugepages           ok      ok          ok       skip              skip       skip
numa                ok      ok          ok       ok                ok         ok
cpu-isolation       ok      ok          warn     skip              skip       skip
queue-cores         ok      ok          ok       ok                ok         ok
gpu-driver          ok      ok          ok       ok                skip       skip
gpudirect           ok      skip        ok       skip             skip       skip
pcie-topology       ok      skip        skip     skip             skip       skip
bar1                ok      skip        ok       skip             skip       skip
acs                 ok      skip        skip     skip             skip       skip
iommu               ok      skip        ok       skip             skip       skip
gdrcopy             skip    skip        ok       skip             skip       skip
gpu-without-root    skip    skip        ok       skip             skip       skip
capabilities        skip    ok          ok       ok                warn       warn
socket-buffers      skip    skip        skip     skip              warn       warn
"""

# NICs write to GPUs.
IBVERBS = """
                    igx/igx:ibverbs a100/igx:ibverbs
engine              fail            fail
nic-driver          ok              ok
connectx            ok              fail
link-layer          ok              skip
carrier             ok              fail
physical-port       ok              skip
ip-address          ok              skip
mtu                 ok              skip
nic-settings        skip            skip
nic-firmware        skip            skip
pcie-payload        warn            skip
pcie-link           ok              skip
pcie-read-request   ok              skip
memory              ok              ok
hugepages           ok              ok
numa                ok              ok
cpu-isolation       ok              warn
queue-cores         ok              ok
gpu-driver          ok              ok
gpudirect           ok              ok
pcie-topology       ok              skip
bar1                ok              ok
acs                 ok              skip
iommu               ok              ok
gdrcopy             skip            ok
gpu-without-root    skip            ok
capabilities        skip            skip
socket-buffers      skip            skip
"""


# Checks for NICs that write to GPUs.
WRITES_TO_GPUS = [
    *("gpudirect", "pcie-topology", "bar1", "acs", "iommu", "gdrcopy", "gpu-without-root"),
]


def rows(table):
    head, *lines = table.strip("\n").splitlines()
    for line in lines:
        name, *statuses = line.split()
        yield name, dict(zip(head.split(), statuses, strict=True))


def test_the_table_names_every_check_and_host(describe, host_name):
    assert [name for name, _ in rows(STATUSES)] == list(CHECKS)
    assert all(host_name in statuses for _, statuses in rows(STATUSES))


def test_statuses_without_a_configuration(make_host, host_name):
    report = check_host(root=make_host(host_name), folder="/data")
    wanted = {name: statuses[host_name] for name, statuses in rows(STATUSES)}
    assert {result.check: str(result.status) for result in report.results} == wanted


@pytest.mark.parametrize(
    ("table", "column"),
    [(table, column) for table in (CONFIGURED, IBVERBS) for column in table.split("\n")[1].split()],
)
def test_statuses_with_a_configuration(make_host, profile, table, column):
    host, config = column.split("/")
    report = check_host(profile(config), root=make_host(host), folder="/data")
    wanted = {name: statuses[host] for name, statuses in rows(STATUSES)}
    wanted |= {name: statuses[column] for name, statuses in rows(table)}
    if wanted["engine"] == "DPDK":
        available = capabilities()["dpdk"] == "available"
        wanted["engine"] = "ok" if available else "fail"
        if not available:
            wanted |= dict.fromkeys(WRITES_TO_GPUS, "skip")
    assert {result.check: str(result.status) for result in report.results} == wanted
