"""Interfaces whose offloads merge datagrams of other hosts into one frame."""

from typing import Any

import pytest
from networks import Network

from daqiri_ophyd.engine import Engine, NotSupportedError
from daqiri_ophyd.host import Needs

pytestmark = pytest.mark.root
Config = dict[str, Any]


def receiver(path: str) -> Config:
    queue = {
        "name": "rx0",
        "id": 0,
        "cpu_core": "any",
        "batch_size": 1,
        "memory_regions": ["buffers"],
    }
    port: Config = {"name": "port0", "address": "near", "rx": {"queues": [queue]}}
    if path == "dpdk":
        port["address"] = "net_af_packet0,iface=near,framesz=16384,blocksz=65536,framecnt=64"
    else:
        port["rx"]["receive_path"] = path
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "engine": "dpdk" if path == "dpdk" else "packet",
        "memory_regions": [
            {"name": "buffers", "kind": "host", "affinity": 0, "num_bufs": 256, "buf_size": 16384}
        ],
        "interfaces": [port],
    }


@pytest.fixture(params=["af_packet", "dpdk"])
def merged(request: pytest.FixtureRequest) -> Config:
    """A receiver behind the part of the kernel that merges."""
    if request.param == "dpdk":
        request.getfixturevalue("has_dpdk")
    return receiver(request.param)


@pytest.mark.parametrize("offload", ["rx-udp-gro-forwarding", "rx-gro-list"])
def test_an_interface_that_merges_datagrams_is_refused(
    cable: Network, merged: Config, offload: str
):
    config = merged
    cable.call(Engine.open, config).close()
    cable.run(f"ethtool -K near {offload} on")
    with pytest.raises(NotSupportedError, match=f"'near' merges.*ethtool -K near {offload} off`"):
        cable.call(Engine.open, config)
    cable.run(f"ethtool -K near {offload} off")
    cable.call(Engine.open, config).close()


@pytest.mark.usefixtures("has_af_xdp")
def test_af_xdp_receives_frames_before_they_could_be_merged(cable: Network):
    cable.run("ethtool -K near rx-gro-list on")
    cable.call(Engine.open, receiver("af_xdp")).close()


def test_the_host_check_reports_it(cable: Network, merged: Config):
    cable.run("ethtool -K near rx-gro-list on")
    needs = Needs.of(merged)
    [reason] = cable.call(needs.rejected_here)
    assert "ethtool -K near rx-gro-list off" in reason
