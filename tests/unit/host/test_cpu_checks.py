"""Checks of processors, and how lists of processors are read."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daqiri_ophyd.engine import load_config
from daqiri_ophyd.host import FactError, Facts, Status, Step
from daqiri_ophyd.host.facts import cpu_list, cpu_ranges

ISOLATED = "isolcpus={0} nohz_full={0} rcu_nocbs={0} rcu_nocb_poll irqaffinity={1}"


def config(*cores, master=0, socket=None):
    """Return a checked configuration with a receive queue on each of these cores."""
    queues = [
        {
            "name": f"q{number}",
            "id": number,
            "cpu_core": core,
            "batch_size": 64,
            "memory_regions": ["m"],
        }
        for number, core in enumerate(cores)
    ]
    flows = [
        {"name": f"f{q['id']}", "id": q["id"] + 1, "match": {"udp_dst": 5000 + q["id"]}}
        | {"action": {"type": "queue", "id": q["id"]}}
        for q in queues
    ]
    return load_config(
        {
            "version": 1,
            "stream_type": "socket" if socket else "raw",
            "master_core": master,
            "memory_regions": [{"name": "m", "kind": "host", "num_bufs": 32768, "buf_size": 2048}],
            "interfaces": [
                {"name": "p", "address": "eth0", "rx": {"queues": queues, "flows": flows}}
                | ({"socket_config": socket} if socket else {})
            ],
        }
    ).to_dict()


# cpu-isolation


def test_queue_cores_that_are_isolated_are_ok(result_of):
    host = {"cmdline": "quiet " + ISOLATED.format("2-3", "0-1")}
    result = result_of("cpu-isolation", host, config(2, 3))
    assert (result.status, result.found) == (Status.OK, "isolcpus=2-3")
    assert not result.remedies


def test_flags_before_the_isolated_processors_are_no_processors(result_of):
    line = ISOLATED.format("2-3", "0-1").replace("isolcpus=", "isolcpus=managed_irq,domain,")
    assert result_of("cpu-isolation", {"cmdline": line}, config(2)).status is Status.OK


def test_queue_cores_that_are_not_isolated_are_named_with_the_words_to_add(result_of):
    host = {"cmdline": "isolcpus=1 nohz_full=1-3 irqaffinity=0,3", "cpus": 4}
    result = result_of("cpu-isolation", host, config(1, 3))
    assert result.status is Status.WARN
    assert result.found == ("without rcu_nocbs, rcu_nocb_poll; isolcpus lacks 3; irqaffinity has 3")
    [remedy] = result.remedies
    assert remedy.step is Step.BOOT_LINE
    assert remedy.kernel_line == (
        "isolcpus=1,3 nohz_full=1,3 rcu_nocbs=1,3 rcu_nocb_poll irqaffinity=0,2"
    )
    assert (remedy.now, remedy.files, remedy.lasting) == ((), (), ())
    assert "Remove isolcpus, nohz_full, irqaffinity where the kernel command" in remedy.note


@pytest.mark.parametrize("written", ["all", "0-N", "2-N", "2,N"])
def test_lists_of_the_kernel_may_name_all_and_the_last(result_of, written):
    line = ISOLATED.format("2-3", "0-1").replace("rcu_nocbs=2-3", f"rcu_nocbs={written}")
    assert result_of("cpu-isolation", {"cmdline": line}, config(2, 3)).status is Status.OK


def test_siblings_are_isolated_together(result_of):
    host = {"cpus": 8, "smt": 2, "cmdline": ISOLATED.format("2-3", "0-1,4-7")}
    result = result_of("cpu-isolation", host, config(2, 3))
    assert result.status is Status.WARN
    assert result.found == (
        "isolcpus lacks 6-7; nohz_full lacks 6-7; rcu_nocbs lacks 6-7; irqaffinity has 6-7"
    )
    [remedy] = result.remedies
    assert remedy.kernel_line.startswith("isolcpus=2-3,6-7 ")
    assert remedy.kernel_line.endswith(" irqaffinity=0-1,4-5")
    # Without a configuration, those that are isolated count.
    assert result_of("cpu-isolation", host).status is Status.WARN
    host["cmdline"] = ISOLATED.format("2-3,6-7", "0-1,4-5")
    assert result_of("cpu-isolation", host, config(2, 3)).status is Status.OK


def test_irqbalance_leaves_isolated_cpus_alone(result_of):
    recorded = {"services": ["irqbalance"]}
    result = result_of("cpu-isolation", {"cmdline": "quiet"}, config(2), recorded=recorded)
    assert result.findings[1].found == "irqbalance moves interrupts to 2"
    assert result.findings[1].remedy.now == ("systemctl stop irqbalance",)
    host = {"cmdline": ISOLATED.format("2", "0-1,3")}
    assert result_of("cpu-isolation", host, config(2), recorded=recorded).status is Status.OK


def test_words_after_the_double_dash_are_not_the_kernels(result_of):
    host = {"cmdline": "quiet -- " + ISOLATED.format("2-3", "0-1")}
    result = result_of("cpu-isolation", host, config(2))
    assert result.found.startswith("without isolcpus")


@pytest.mark.parametrize("host", [{"cpus": 1}, {"cpus": 2, "smt": 2}])
def test_the_cpu_that_boots_is_not_isolated(result_of, host):
    result = result_of("cpu-isolation", host, config(*range(host["cpus"])))
    [remedy] = result.remedies
    assert result.status is Status.WARN
    assert result.found.endswith(": the CPU that boots cannot be isolated")
    assert not remedy.kernel_line and "other cores" in remedy.note


def test_beside_the_cpu_that_boots_the_others_are_isolated(result_of):
    result = result_of("cpu-isolation", {"cpus": 8, "smt": 2}, config(0, 1))
    first, second = result.remedies
    assert not first.kernel_line
    assert second.kernel_line == (
        "isolcpus=1,5 nohz_full=1,5 rcu_nocbs=1,5 rcu_nocb_poll irqaffinity=0,2-4,6-7"
    )
    # Its sibling is the same core.
    host = {"cpus": 8, "smt": 2, "cmdline": "isolcpus=0,4"}
    assert result_of("cpu-isolation", host, config(0)).status is Status.WARN
    result = result_of("cpu-isolation", {"cpus": 8, "smt": 2}, config(4))
    assert result.found == "0,4: the CPU that boots cannot be isolated"
    assert not result.remedies[0].kernel_line


def test_cores_that_are_not_there_are_not_isolated(result_of):
    result = result_of("cpu-isolation", {"cpus": 4}, config(2, 9))
    assert result.remedies[0].kernel_line.startswith("isolcpus=2 ")
    # A good isolation stays.
    host = {"cpus": 4, "cmdline": ISOLATED.format("2-3", "0-1")}
    assert result_of("cpu-isolation", host, config(2, 9)).status is Status.OK
    result = result_of("cpu-isolation", {"cpus": 4}, config(9))
    assert (result.status, bool(result.remedies)) == (Status.SKIP, False)
    # As with a core that was switched off.
    files = {"/sys/devices/system/cpu/online": "0-2,4-7"}
    result = result_of("cpu-isolation", {"cpus": 8, "smt": 2}, config(7), files=files)
    assert result.remedies[0].kernel_line.startswith("isolcpus=7 ")


def test_where_only_the_cpu_that_boots_is_left_nothing_is_isolated(result_of):
    result = result_of("cpu-isolation", {"cpus": 2, "smt": 2}, platform="igx")
    [remedy] = result.remedies
    assert not remedy.kernel_line and "use fewer cores" in remedy.note


def test_queues_that_are_not_pinned_need_no_isolation(result_of):
    result = result_of("cpu-isolation", {}, config("any"))
    assert result.status is Status.SKIP
    assert result.found == "no queue of the configuration is pinned to a core"


def test_without_a_configuration_isolation_matters_on_hosts_made_for_it(result_of):
    result = result_of("cpu-isolation", {"cpus": 20}, platform="spark")
    assert result.status is Status.WARN
    assert "isolcpus=16-19 " in result.remedies[0].kernel_line
    result = result_of("cpu-isolation", {"cpus": 8, "smt": 2}, platform="igx")
    # The last three cores, each with its sibling.
    assert "isolcpus=1-3,5-7 " in result.remedies[0].kernel_line
    result = result_of("cpu-isolation", {"cpus": 20})
    assert result.status is Status.SKIP
    assert result.found.endswith("give a configuration to check whether it matters")


# queue-cores


def test_cores_of_their_own_are_ok(result_of):
    result = result_of("queue-cores", {"cpus": 4}, config(2, 3))
    assert (result.status, result.found) == (Status.OK, "p/q0: core 2; p/q1: core 3")


def test_queues_of_one_core_share_a_thread(result_of):
    assert result_of("queue-cores", {"cpus": 4}, config(2, 2)).found == "p/q0, p/q1: core 2"


def test_a_core_that_is_offline_fails(result_of):
    result = result_of("queue-cores", {"cpus": 4}, config(1, 7))
    assert (result.status, result.found) == (Status.FAIL, "p/q1: core 7 is not online")
    assert result.remedies[0].note == "Use cores that are online: 0-3."


def test_a_core_that_is_offline_is_a_warning_for_sockets(result_of):
    socket = {"mode": "server", "local_addr": "udp://127.0.0.1:5000"}
    result = result_of("queue-cores", {"cpus": 4}, config(1, 7, socket=socket))
    assert result.status is Status.WARN
    assert "p/q1: core 7 is not online" in result.found


def allowed(cores):
    """Return files of a host whose process may use these cores."""
    return {"/proc/self/status": f"Cpus_allowed:\tff\nCpus_allowed_list:\t{cores}\nSeccomp:\t0"}


def test_a_core_that_the_process_may_not_use_fails(result_of):
    result = result_of("queue-cores", {"cpus": 4, "files": allowed("0,2-3")}, config(1, 2))
    assert (result.status, result.found) == (
        Status.FAIL,
        "p/q0: core 1 is not available to this process",
    )
    assert result.remedies[0].note == "Use 0,2-3, or let the process use more: taskset, cpuset."


def test_a_core_that_the_process_may_not_use_is_a_warning_for_sockets(result_of):
    socket = {"mode": "server", "local_addr": "udp://127.0.0.1:5000"}
    host = {"cpus": 4, "files": allowed("0")}
    result = result_of("queue-cores", host, config(1, socket=socket))
    assert result.status is Status.WARN
    assert "p/q0: core 1 is not available to this process" in result.found


def test_cores_of_this_process_are_the_kernels():
    assert Facts("/").allowed_cpus == os.sched_getaffinity(0)


def test_a_process_may_ask_for_isolated_cores(result_of):
    # As with isolcpus=2-3: the kernel leaves these out of the affinity of every program.
    isolated = {"/sys/devices/system/cpu/isolated": "2-3"}
    host = {"cpus": 4, "files": allowed("0-1") | isolated}
    result = result_of("queue-cores", host, config(2, 3))
    assert (result.status, result.found) == (Status.OK, "p/q0: core 2; p/q1: core 3")


# What the kernel writes where core 1 is isolated, in place of its own file.
ISOLATED_CORE = """
import os
from daqiri_ophyd.host import Facts
os.sched_setaffinity(0, {0})
print(sorted(Facts("/").allowed_cpus), os.sched_getaffinity(0))
"""


@pytest.mark.root
@pytest.mark.parametrize(("isolated", "cores"), [("1", "[0, 1]"), ("", "[0]"), ("7000", "[0]")])
def test_isolated_cores_of_this_host(tmp_path, isolated, cores):
    if not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("needs cores 0 and 1")
    file = tmp_path / "isolated"
    file.write_text(f"{isolated}\n")
    mounted = 'mount --bind "$1" /sys/devices/system/cpu/isolated; shift; exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, "sh", file]
        + [sys.executable, "-c", ISOLATED_CORE],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stdout == f"{cores} {{0}}\n", done.stderr


def test_siblings_are_one_core(result_of):
    result = result_of("queue-cores", {"cpus": 8, "smt": 2}, config(1, 5))
    assert result.status is Status.WARN
    assert result.found == "p/q0, p/q1: cores 1,5 are one physical core"
    assert "lscpu -e" in result.remedies[0].note


def test_the_master_cores_sibling_is_taken(result_of):
    result = result_of("queue-cores", {"cpus": 8, "smt": 2}, config(5, master=1))
    assert result.status is Status.WARN
    assert result.found == "p/q0: core 1 is also the master core"
    assert result.remedies[0].note == "Give master_core another core."


def test_cores_far_from_the_nic_are_named_with_those_near(result_of):
    host = {
        "cpus": 8,
        "nodes": ["0-3", "4-7"],
        "pci": [{"path": "pci0000:80/0000:81:00.0", "ids": "8086:1592", "kind": "0200", "numa": 1}],
        "net": {"eth0": {"pci": "0000:81:00.0"}},
    }
    result = result_of("queue-cores", host, config(2, 5))
    assert result.status is Status.WARN
    assert result.found == "p/q0: core 2 is on NUMA node 0, the NIC on 1"
    assert result.remedies[0].note == "Use cores of node 1: 4-7."
    assert result_of("queue-cores", host, config(5)).status is Status.OK


def test_small_cores_are_slow(result_of):
    host = {"cpus": 4, "capacities": [1024, 1000, 500, 500]}
    assert result_of("queue-cores", host, config(1)).status is Status.OK
    result = result_of("queue-cores", host, config(2))
    assert (result.status, result.found) == (Status.WARN, "p/q0: core 2 is a small core")
    assert result.remedies[0].note == "Use a fast core: 0-1."


@pytest.mark.parametrize("core", [2, 18])
def test_a_spark_has_fast_and_small_cores(result_of, core):
    result = result_of("queue-cores", "spark", config(core))
    assert result.status is (Status.WARN if core == 2 else Status.OK)


def test_cores_are_not_looked_at_without_queues_on_them(result_of):
    result = result_of("queue-cores", {})
    assert (result.status, result.found) == (Status.SKIP, "no configuration")
    result = result_of("queue-cores", {}, config("any"))
    assert (result.status, result.found) == (Status.OK, "p/q0: not pinned")


# cpu-governor


def test_governors_at_performance_are_ok(result_of):
    result = result_of("cpu-governor", {"governor": "performance", "cpus": 6})
    assert (result.status, result.found) == (Status.OK, "performance on all 6 CPUs")


def test_other_governors_are_a_warning_with_a_unit_that_changes_them(result_of):
    files = {"/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance"}
    result = result_of("cpu-governor", {"governor": "powersave", "cpus": 3, "files": files})
    assert result.status is Status.WARN
    assert result.found == "performance on 1 CPU, powersave on 2 CPUs"
    [remedy] = result.remedies
    assert remedy.now == ("cpupower frequency-set -g performance",)
    assert remedy.files[0][0] == "/etc/daqiri-host.d/20-cpu-governor.sh"
    assert remedy.files[0][1].startswith("set -e\ncpupower frequency-set -g performance\n")
    assert remedy.lasting == (
        "systemctl daemon-reload",
        "systemctl enable daqiri-host.service",
    )


def test_processors_of_a_fixed_frequency_are_skipped(result_of):
    result = result_of("cpu-governor", {})
    assert result.status is Status.SKIP
    assert "does not scale the frequency" in result.found


def test_without_processors_nothing_is_known(result_of):
    result = result_of("cpu-governor", {"files": {"/sys/devices/system/cpu/online": "all of them"}})
    assert result.status is Status.SKIP
    assert result.found == "not known: /sys/devices/system/cpu/online: lists no CPU"


# cpu-idle


def idle(cpu, *states):
    """Return the files with the idle states of a CPU: name, latency, disable."""
    folder = f"/sys/devices/system/cpu/cpu{cpu}/cpuidle/state"
    return {
        f"{folder}{n}/{file}": str(value)
        for n, state in enumerate(states)
        for file, value in zip(("name", "latency", "disable"), state, strict=True)
    }


def test_deep_idle_states_of_queue_cores_warn(result_of):
    files = idle(2, ("C1", 2, 0), ("C6", 133, 0)) | idle(3, ("C6", 133, 0))
    result = result_of("cpu-idle", {"files": files}, config(2))
    assert (result.status, result.found) == (Status.WARN, "core 2: C6 takes 133 us")
    [remedy] = result.remedies
    assert remedy.now == ("cpupower idle-set -D 11",)


def test_idle_states_that_are_off_or_short_are_ok(result_of):
    files = idle(2, ("C1", 2, 0), ("C6", 133, 1))
    result = result_of("cpu-idle", {"files": files}, config(2))
    assert (result.status, result.found) == (Status.OK, "core 2: at most 2 us")


def test_idle_states_that_nobody_asks_about(result_of):
    assert result_of("cpu-idle", {}).found == "no configuration"
    assert result_of("cpu-idle", {}, config("any")).status is Status.SKIP
    assert "not reported by the kernel" in result_of("cpu-idle", {}, config(2)).found


# Lists


@given(st.frozensets(st.integers(0, 1 << 16), max_size=200))
def test_a_list_says_which_processors_it_was_made_of(numbers):
    assert cpu_list(cpu_ranges(numbers)) == numbers


@given(st.text("0123456789,-:/ abc", max_size=60))
def test_lists_of_any_text_are_read_or_refused(text):
    numbers = cpu_list(text)
    assert all(0 <= number <= 1 << 16 for number in numbers)
    assert cpu_list(cpu_ranges(numbers)) == numbers


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", set()),
        ("0-3,8", {0, 1, 2, 3, 8}),
        (" 1 , 2 ", {1, 2}),
        ("3-1", set()),
        ("0-9:2/5", {0, 1, 5, 6}),
        ("0-3:1/0", {0, 1, 2, 3}),
        ("all", set()),
        ("-1", set()),
        ("٣", set()),
        ("9" * 5000, set()),
    ],
)
def test_what_lists_mean(text, numbers):
    assert cpu_list(text) == numbers


def test_a_range_ends_where_no_kernel_has_processors():
    assert len(cpu_list("0-4294967295")) == (1 << 16) + 1


def test_a_list_that_names_processors_over_and_over_is_refused():
    with pytest.raises(FactError, match="is not a list of CPUs"):
        cpu_list(",".join(["0-65535"] * 1000))
