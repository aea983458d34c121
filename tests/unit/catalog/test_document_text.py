"""Documents as JSON, whatever their metadata contain."""

import datetime
import decimal
import enum
import json
import pathlib
import types
from typing import Any

import numpy as np
import pytest

from daqiri_ophyd.catalog._document_text import document_text


class Color(enum.Enum):
    RED = 1


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def stored(value: Any) -> tuple[Any, dict[str, str]]:
    text, changed = document_text("start", {"uid": "u", "exposure": value})
    text.encode("ascii")
    return json.loads(text)["exposure"], changed


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ({"a": [1, 2.5, None, True, "text"]}, {"a": [1, 2.5, None, True, "text"]}),
        ((1, 2), [1, 2]),
        (np.float32(0.5), 0.5),
        (np.uint64(2**63), 2**63),
        (np.arange(6).reshape(2, 3), [[0, 1, 2], [3, 4, 5]]),
        (np.array([True, False]), [True, False]),
        (np.bool_(True), True),
        (np.longdouble(0.5), 0.5),
        (np.array([0.5], np.longdouble), [0.5]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.str_("a"), "a"),
        ({1, 2}, [1, 2]),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        ({1: "a", None: "b"}, {"1": "a", "null": "b"}),
        ("größe 😀 \\u0000", "größe 😀 \\u0000"),
    ],
)
def test_plain_values_are_stored_without_a_word(value: Any, plain: Any) -> None:
    assert stored(value) == (plain, {})


@pytest.mark.parametrize(
    ("value", "text", "kind"),
    [
        (decimal.Decimal("1.5"), "1.5", "decimal.Decimal"),
        (datetime.timedelta(seconds=3), "0:00:03", "datetime.timedelta"),
        (1 + 2j, "(1+2j)", "builtins.complex"),
        (np.complex64(1j), "1j", "numpy.complex64"),
        (np.datetime64(5, "ns"), "1970-01-01T00:00:00.000000005", "numpy.datetime64"),
        (pathlib.Path("/data"), "/data", f"{pathlib.PosixPath.__module__}.PosixPath"),
        (b"ab", "b'ab'", "builtins.bytes"),
        (Color.RED, "Color.RED", "Color"),
        (datetime.date(2026, 1, 2), "2026-01-02", "datetime.date"),
    ],
)
def test_values_that_json_does_not_know_are_stored_as_text(
    value: Any, text: str, kind: str
) -> None:
    found, changed = stored({"inner": [0, value]})
    assert found == {"inner": [0, text]}
    assert list(changed) == ["start['exposure']['inner']"]
    assert kind in changed["start['exposure']['inner']"]


def test_arrays_of_such_values_keep_every_element() -> None:
    found, changed = stored(np.arange(2000) * 1j)
    assert len(found) == 2000 and found[2] == "2j"
    assert changed == {"start['exposure']": "text, its type is complex128"}


def test_keys_that_json_does_not_know() -> None:
    found, changed = stored({(1, 2): 3})
    assert found == {"(1, 2)": 3}
    assert list(changed) == ["start['exposure']: the key (1, 2)"]


def test_a_value_without_a_text_and_one_that_contains_itself() -> None:
    endless: list[Any] = [1]
    endless.append(endless)
    found, changed = stored({"mute": Mute(), "endless": endless})
    assert found["mute"].startswith("<") and "Mute object" in found["mute"]
    assert found["endless"] == [1, "[1, [...]]"]
    assert list(changed) == ["start['exposure']['mute']", "start['exposure']['endless']"]


@pytest.mark.parametrize("wrong", ["\0", "\ud800", "\udcff"])
def test_characters_that_databases_do_not_accept(wrong: str) -> None:
    found, changed = stored([f"a{wrong}b"])
    assert found == ["a\ufffdb"]
    assert list(changed) == ["start['exposure']"]
    found, changed = stored({f"a{wrong}": 1})
    assert found == {"a\ufffd": 1}
    assert len(changed) == 1
