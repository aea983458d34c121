"""The engine configurations that come with the package."""

import pytest
import yaml

from daqiri_ophyd import profiles


def test_names_lists_every_profile() -> None:
    assert {"igx", "loopback", "spark", "tcp", "udp"} <= set(profiles.names())
    assert profiles.names() == sorted(profiles.names())


@pytest.mark.parametrize("name", profiles.names())
def test_path_is_a_configuration(name: str) -> None:
    document = yaml.safe_load(profiles.path(name).read_text())
    assert document["daqiri"]["cfg"]["version"] == 1


@pytest.mark.parametrize("name", profiles.names())
def test_profiles_do_not_take_frames_from_the_kernel(name: str) -> None:
    document = yaml.safe_load(profiles.path(name).read_text())
    for interface in document["daqiri"]["cfg"]["interfaces"]:
        assert interface.get("rx", {}).get("receive_path", "af_packet") == "af_packet"


def test_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        ValueError, match="no profile 'igz'; accepts .*igx, .*loopback, .*spark, .*tcp, udp"
    ):
        profiles.path("igz")
