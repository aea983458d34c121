"""Requests for receive times of network cards, where there is no card.

`tests/vm` has a card that can be asked.
"""

from collections.abc import Callable
from typing import Any

import pytest
from networks import Network

from daqiri_ophyd.engine import Engine, NotSupportedError, load_config
from daqiri_ophyd.host import Needs

pytestmark = pytest.mark.root
Config = dict[str, Any]
WORDS = (
    "interface 'receiver': hardware_timestamps: true, which '{}' does not have; set it to false, "
    "for timestamps in software"
)


@pytest.fixture
def timed(packet: Callable[..., Config]) -> Callable[..., Config]:
    def build(address: str = "far", path: str = "af_packet") -> Config:
        config = packet()
        receiver, _ = config["interfaces"]
        receiver["address"] = address
        receiver["rx"] |= {"hardware_timestamps": True, "receive_path": path}
        config["interfaces"] = [receiver]
        return config

    return build


@pytest.mark.parametrize("address", ["far", "lo"])
@pytest.mark.parametrize("path", ["af_packet", "auto"])
def test_an_interface_without_a_card_is_refused(
    cable: Network, timed: Callable[..., Config], address: str, path: str
) -> None:
    config = timed(address, path)
    assert cable.call(Needs.of(load_config(config).to_dict()).rejected_here) == [
        WORDS.format(address)
    ]
    with pytest.raises(NotSupportedError) as raised:
        cable.call(Engine.open, config)
    assert str(raised.value) == WORDS.format(address)


def test_af_xdp_has_no_times_of_a_card(cable: Network, timed: Callable[..., Config]) -> None:
    with pytest.raises(NotSupportedError, match="af_xdp does not support hardware_timestamps"):
        cable.call(Engine.open, timed(path="af_xdp"))
