from types import SimpleNamespace
from typing import Any

from daqiri_ophyd.devices import PacketLossError
from daqiri_ophyd.devices.recording._losses import PortLossWatch, lost_since, queue_error
from daqiri_ophyd.engine import PortCounters


def test_intended_drops_are_no_losses():
    dropped = {"ring_full": 3, "flushed": 5, "filtered": 7, "nic": 0}
    assert lost_since(dropped, dict.fromkeys(dropped, 0)) == {"ring_full": 3}


def test_only_what_is_lost_from_a_moment_on_counts():
    before = {"ring_full": 10, "kernel": 0, "flushed": 0}
    assert lost_since(before | {"flushed": 100}, before) == {}
    assert queue_error("port0/frames", {}) is None

    lost = lost_since({"ring_full": 12, "kernel": 30, "flushed": 100}, before)
    error = queue_error("port0/frames", lost)
    assert isinstance(error, PacketLossError)
    assert "port0/frames dropped 32 packets (2 ring_full, 30 kernel)" in str(error)
    assert "on_drop" in str(error)


def test_what_a_host_lost_before_the_engine_is_explained_by_reason():
    counted = {"now": PortCounters(7, 5, 1, 1, 3), "recent": PortCounters(7, 5, 1, 1, 3)}
    ages = []

    def counters(max_age: float = 0.0) -> PortCounters:
        ages.append(max_age)
        return counted["recent" if max_age else "now"]

    port: Any = SimpleNamespace(name="port0", counters=counters)
    watch = PortLossWatch(port)
    assert ages == [0.0]
    assert watch.lost() == 0
    assert watch.text() == ""
    assert watch.error() is None
    counted["now"] = PortCounters(20, 10, 3, 7, 3)
    assert watch.lost() == 0  # the kernel's statistics are not read again and again
    assert watch.lost(last=True) == 13
    error = watch.error(last=True)
    assert isinstance(error, PacketLossError)
    text = str(error)
    assert text.startswith(
        "the network interface of port port0 lost 13 packets before the engine, of all that "
        "arrived there (5 card: the ring or memory of the network card was full (a larger ring: "
        "ethtool -G; another core for its interrupts); 2 backlog: "
    )
    assert "; 6 errors: frames arrived damaged, or longer than the MTU (cable" in text
    assert text.endswith("; to continue in spite of losses set on_drop to 'flag' or 'ignore'")


def test_frames_that_no_program_wants_are_not_told_as_losses():
    counts = PortCounters(0, 0, 0, 0, 0)
    port: Any = SimpleNamespace(name="p", counters=lambda _=0.0: PortCounters(0, 0, 0, 0, 9))
    assert PortLossWatch(port, counts).error(last=True) is None
