"""Recorders of several queues whose files belong together, from Python."""

import pytest

from daqiri_ophyd.engine import Engine, InvalidParameterError, RecorderGroup

from ..plans.conftest import loopback


def test_the_limit_of_a_group(tmp_path):
    with Engine.open(loopback()) as engine:
        group = RecorderGroup(max_packets=100)
        queues = engine.port("port0").rx
        recorders = [queue.record(tmp_path, queue.name, group=group) for queue in queues]
        for recorder in recorders:
            recorder.stop()
            assert [file.packets for file in recorder.files()] == [0]
            assert recorder.files()[0].path.is_file()


@pytest.mark.parametrize(
    "limits",
    [{"max_packets": -1}, {"roll_bytes": -1}, {"roll_seconds": -1.0}, {"max_seconds": -1.0}],
)
def test_refused(limits):
    with pytest.raises(InvalidParameterError, match=f"{next(iter(limits))} is -1"):
        RecorderGroup(**limits)


def test_a_limit_besides_those_of_the_group(tmp_path):
    with Engine.open(loopback()) as engine:
        queue = engine.port("port0").rx[0]
        with pytest.raises(InvalidParameterError, match="set limits on the group"):
            queue.record(tmp_path, roll_packets=5, group=RecorderGroup())


def test_a_group_has_no_first_packet_to_begin_with(tmp_path):
    with Engine.open(loopback()) as engine:
        queue = engine.ports[0].rx[0]
        with pytest.raises(InvalidParameterError, match="start_flow is 1 for a recorder"):
            queue.record(tmp_path, start_flow=1, group=RecorderGroup())
        with pytest.raises(InvalidParameterError, match="start_flow is -1; accepted is 0 or more"):
            queue.record(tmp_path, start_flow=-1)
    assert not list(tmp_path.iterdir())
