from daqiri_ophyd.devices import PacketLossError
from daqiri_ophyd.devices._losses import LossWatch, lost_by_reason


def test_intended_drops_are_no_losses():
    dropped = {"ring_full": 3, "flushed": 5, "filtered": 7, "nic": 0}
    assert lost_by_reason(dropped) == {"ring_full": 3}


def test_only_what_is_lost_from_now_on_counts():
    counts = {"ring_full": 10, "kernel": 0, "flushed": 0}
    watch = LossWatch("port0/frames", lambda: dict(counts))
    assert watch.error() is None
    counts["flushed"] = 100
    assert watch.error() is None
    counts |= {"ring_full": 12, "kernel": 30}

    error = watch.error()
    assert isinstance(error, PacketLossError)
    assert "port0/frames dropped 32 packets (2 ring_full, 30 kernel)" in str(error)
    assert "on_drop" in str(error)


def test_what_is_lost_from_a_given_moment_on_counts():
    watch = LossWatch("port0/frames", lambda: {"ring_full": 10}, {"ring_full": 7})
    assert watch.lost() == {"ring_full": 3}
