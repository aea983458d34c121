"""Queues on cores that the kernel isolates (isolcpus), as the host check asks for."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.vm, pytest.mark.timeout(300)]
# On its kernel command line.
LINE = "isolcpus=1 nohz_full=1 rcu_nocbs=1 rcu_nocb_poll irqaffinity=0"


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores for the guest")
def test_a_queue_has_an_isolated_core(in_guest: Callable[..., Any]) -> None:
    job = Path(__file__).with_name("isolated_cores_job.py")
    found = in_guest(job, command_line=LINE)
    # The kernel leaves the core out of the affinity of every program.
    assert found["affinity"] == [0]
    assert found["threads"].count("1") == 1
    assert found["checks"]["queue-cores"] == ["ok", "p/q: core 1"]
    assert found["checks"]["cpu-isolation"] == ["ok", "isolcpus=1"]
