import pytest
from hypothesis import given
from hypothesis import strategies as st
from ophyd import Device

from daqiri_ophyd.devices.tree._naming import attribute_name, attribute_names, require_column


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("frames", "frames"),
        ("rx-queue 0", "rx_queue_0"),
        ("0", "queue_0"),
        ("0000:03:00.0", "queue_0000_03_00_0"),
        ("_hidden", "queue_hidden"),
        ("größe", "gro_e"),
        ("détecteur 1", "detecteur_1"),
        ("検出器", "queue_"),
        ("class", "class_"),
        ("stage", "stage_"),
        ("name", "name_"),
    ],
)
def test_names_become_attributes(name, attribute):
    assert attribute_names([name], "queue", Device) == {name: attribute}


def test_names_that_collide_are_both_named():
    with pytest.raises(ValueError, match="'a-b' and 'a b' would both be the attribute 'a_b'"):
        attribute_names(["a-b", "a b"], "flow", Device)


@given(st.text(min_size=1))
def test_every_name_has_an_attribute(name):
    attribute = attribute_name(name, "flow", frozenset(dir(Device)))
    assert attribute.isidentifier()
    assert not attribute.startswith("_")
    assert attribute not in dir(Device)


@pytest.mark.parametrize("key", ["k" * 60, "é" * 30])
def test_the_longest_column(key):
    require_column(key, "it", "Fix it.")
    with pytest.raises(ValueError, match=rf"^it: the data key '{key}a' has 61 bytes.*60\. Fix it"):
        require_column(key + "a", "it", "Fix it.")
