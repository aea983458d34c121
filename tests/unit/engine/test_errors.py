import pickle

import pytest

from daqiri_ophyd.engine import (
    ConfigError,
    DaqiriError,
    InvalidParameterError,
    NoSpaceAvailableError,
    Status,
    check_config,
)
from daqiri_ophyd.engine._errors import BY_STATUS


def test_every_status_but_success_has_its_class() -> None:
    assert len(set(BY_STATUS)) == len(Status)
    for status, kind in list(zip(Status, BY_STATUS, strict=True))[1:]:
        assert issubclass(kind, DaqiriError)
        assert kind.status is status


def test_statuses_keep_their_documented_order() -> None:
    assert [status.name for status in Status] == [
        "SUCCESS",
        "NULL_PTR",
        "NO_FREE_BURST_BUFFERS",
        "NO_FREE_PACKET_BUFFERS",
        "NOT_READY",
        "INVALID_PARAMETER",
        "NO_SPACE_AVAILABLE",
        "NOT_SUPPORTED",
        "GENERIC_FAILURE",
        "CONNECT_FAILURE",
        "INTERNAL_ERROR",
    ]
    assert [status.value for status in Status] == list(range(11))


@pytest.mark.parametrize("kind", BY_STATUS)
def test_errors_survive_pickling(kind: type[DaqiriError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("what, found, fix")))
    assert type(copy) is kind
    assert str(copy) == "what, found, fix"
    assert copy.status is kind.status


def test_the_number_of_packets_survives_pickling() -> None:
    error = NoSpaceAvailableError("no room")
    error.submitted = 17
    assert pickle.loads(pickle.dumps(error)).submitted == 17


def test_a_configuration_error_carries_its_report() -> None:
    report = check_config("version: 2\n")
    error = ConfigError(report)
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, InvalidParameterError)
    assert copy.report == report
    assert str(copy) == str(error) == report.text()
