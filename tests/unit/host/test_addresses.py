"""Addresses of a host, in any form."""

import pytest

from daqiri_ophyd.host import is_unspecified, listens_at

OWN = {"lo": ["127.0.0.1/8", "::1/128"], "eth0": ["192.168.10.1/24", "fe80::5/64"]}
ANY = "0.0.0.0"  # noqa: S104


@pytest.mark.parametrize(
    ("local", "address", "listens"),
    [
        ("192.168.10.1", "192.168.10.1", True),
        ("192.168.10.1", "127.0.0.1", False),
        (ANY, ANY, True),
        (ANY, "192.168.10.1", True),
        (ANY, "127.9.9.9", True),
        (ANY, "192.168.10.2", False),
        (ANY, "192.168.10.255", False),
        (ANY, "255.255.255.255", False),
        (ANY, "239.1.2.3", False),
        (ANY, "::1", False),
        ("::", "::1", True),
        ("0:0::", "fe80:0::5%eth0", True),
        ("::", "fe80::6%eth0", False),
        # Sockets of IPv6 do not take IPv4 packets.
        ("::", "::ffff:127.0.0.1", False),
        ("::", "127.0.0.1", False),
        ("fe80::5%eth0", "FE80::5", True),
        ("fe80::5%eth0", "fe80::5%eth1", False),
        ("a name", "a name", True),
        ("a name", "127.0.0.1", False),
    ],
)
def test_sockets_get_what_is_sent_to_their_address(local: str, address: str, listens: bool) -> None:
    assert listens_at(local, address, OWN) == listens


def test_groups_are_not_unspecified() -> None:
    found = {each for each in (ANY, "::", "0::0", "239.1.2.3", "ff02::1") if is_unspecified(each)}
    assert found == {ANY, "::", "0::0"}
