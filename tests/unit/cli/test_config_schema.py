"""The JSON Schema of configurations has the keys and values of the parser, and no others."""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from daqiri_ophyd import profiles
from daqiri_ophyd.cli import _main
from daqiri_ophyd.cli._config_schema import config_schema
from daqiri_ophyd.engine import check_config

SCHEMA = config_schema()
DEFINITIONS = SCHEMA["definitions"]
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
# What the parser says that it accepts, of values with a form.
FORMS = {
    "batch_step": "an integer from 1 to 4294967295, or 'any' for numbers that grow irregularly",
    "core": "a core number from 0 to 8191, or 'any' for a thread that is not pinned",
    "endpoint": "tcp://ip:port, udp://ip:port or roce://ip[:port] with a numeric address",
    "ip": "a numeric IPv4 or IPv6 address",
    "ipv4": "an IPv4 address such as 192.168.1.10",
    "mac": "an Ethernet address such as 02:00:00:00:00:01",
    "name": "a text of up to 200 bytes that is not '.' or '..'",
    "ports": "a UDP port from 0 (any) to 65535, or a range such as 1000-1010",
    "real": "a number, or nan",
    "rotation": "0, 90, 180 and 270 (degrees, counterclockwise)",
    "store": "the address of an object store: s3://bucket/prefix, gs:// or az://",
}
TUNNELS = [{"type": kind} for kind in ("vxlan", "gre", "nvgre")]
# Where a definition is used: path of the map, and maps that have all of its keys together, if
# they depend on others.
RX, TX = "interfaces.0.rx", "interfaces.0.tx"
PLAN = f"{RX}.reorder_configs.0"
PLACES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "configuration": ("", [{}]),
    "memory_region": ("memory_regions.0", [{}]),
    "interface": ("interfaces.0", [{}]),
    "socket_config": ("interfaces.0.socket_config", [{}]),
    "roce_config": ("interfaces.0.roce_config", [{}]),
    "rx": (RX, [{}]),
    "rx_queue": (f"{RX}.queues.0", [{}, {"poll_mode": "direct"}]),
    "flex_item": (f"{RX}.flex_items.0", [{}]),
    "rx_flow": (f"{RX}.flows.0", [{}, {"actions": []}]),
    "rx_match": (f"{RX}.flows.0.match", [{}]),
    "ecpri": (f"{RX}.flows.0.match.ecpri", [{}]),
    "rx_action": (
        f"{RX}.flows.0.actions.0",
        [
            {"type": "queue"},
            {"type": "queue", "ids": [0]},
            {"type": "tunnel_decap", "tunnel_type": "gre"},
        ],
    ),
    "tx": (TX, [{}]),
    "tx_queue": (f"{TX}.queues.0", [{}, {"poll_mode": "direct"}]),
    "tx_flow": (f"{TX}.flows.0", [{}, {"actions": []}]),
    "tx_match": (f"{TX}.flows.0.match", [{}]),
    "tx_action": (
        f"{TX}.flows.0.actions.0",
        [
            {"type": "vlan_push"},
            {"type": "vlan_push", "vlan": {}},
            {"type": "tunnel_encap", "tunnel_type": "gre"},
        ],
    ),
    "vlan": (f"{TX}.flows.0.actions.0.vlan", [{}]),
    "tunnel": (f"{RX}.flows.0.actions.0.tunnel", TUNNELS),
    "reorder_config": (PLAN, [{}]),
    "joint_reorder_config": ("reorder_configs.0", [{}]),
    "data_types": (f"{PLAN}.data_types", [{}, {"input": 0, "output": 0, "input_endianness": 0}]),
    "method": (f"{PLAN}.method", [{}]),
    **{
        name: (f"{PLAN}.method.{name}", [{}])
        for name in ("seq_batch_number", "seq_packets_per_batch")
        + ("batch_packet_number", "batch_byte_offset")
    },
    "batch_number": (f"{PLAN}.method.batch_byte_offset.batch_number", [{}]),
    "packet_number": (f"{PLAN}.method.batch_packet_number.packet_number", [{}]),
    "byte_offset": (f"{PLAN}.method.batch_byte_offset.byte_offset", [{}]),
    "condition": (f"{PLAN}.conditions.0", [{"equal": 0}, {"at_least": 0, "mask": 1}]),
    "column": (f"{PLAN}.columns.pulse_id", [{}]),
    "frame": (f"{PLAN}.frame", [{}]),
    "modules": (f"{PLAN}.frame.modules", [{}]),
    "position": (f"{PLAN}.frame.modules.positions.0", [{}]),
}
AROUND = {
    "vlan": {"type": "vlan_push"},
    "tunnel": {"type": "tunnel_decap"},
}


def config_with(path: str, inside: Any, name: str) -> dict[str, Any]:
    """Return a configuration that has only what leads to a map."""
    made: Any = inside
    steps = path.split(".") if path else []
    for place in range(len(steps) - 1, -1, -1):
        made = [made] if steps[place] == "0" else {steps[place]: made}
        if place == len(steps) - 1 and name in AROUND:
            made |= AROUND[name]
    return {"daqiri": {"cfg": made}}


def messages(path: str, inside: Any, name: str) -> dict[str, str]:
    """Return what the parser says about the keys of a map."""
    dotted = re.sub(r"\.(\d)", r"[\1]", path)
    found: dict[str, str] = {}
    for problem in check_config(config_with(path, inside, name)).errors:
        if problem.path.startswith(f"{dotted}." if dotted else ""):
            found.setdefault(
                problem.path.removeprefix(f"{dotted}." if dotted else ""), problem.message
            )
    return found


def accepted_in(message: str) -> str:
    return message.partition("; accepts ")[2]


def inline(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the properties of a definition, with what `$ref` names in place of the reference."""
    for key, value in DEFINITIONS[name]["properties"].items():
        (each,) = value.get("allOf", [value])
        yield key, each


def expected(leaf: dict[str, Any]) -> str:
    """Return what the parser says that it accepts, for a value of the schema."""
    if "$ref" in leaf:
        return FORMS.get(leaf["$ref"].rpartition("/")[2], "a map")
    if "anyOf" in leaf:
        one, _ = leaf["anyOf"]
        return "a list of integers" if "type" in one else f"a list of: {FORMS['core']}"
    if "enum" in leaf:
        # Log levels are accepted in upper case, too.
        words = [
            f"'{word}'"
            for word in leaf["enum"]
            if word.lower() not in leaf["enum"] or word == word.lower()
        ]
        return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    kind = leaf["type"][0] if isinstance(leaf["type"], list) else leaf["type"]
    if kind == "array":
        items = leaf["items"]
        if "$ref" in items:
            return "a list of maps"
        return "a list of integers" if items.get("type") == "integer" else "a list of texts"
    if kind == "integer":
        first, last = leaf["minimum"], leaf["maximum"]
        return str(first) if first == last else f"an integer from {first} to {last}"
    return {"boolean": "true or false", "string": "a text", "object": "a map"}[kind]


@pytest.mark.parametrize("name", PLACES)
def test_a_map_of_the_schema_has_the_keys_of_the_parser(name: str) -> None:
    path, maps = PLACES[name]
    known: set[str] = set()
    for inside in maps:
        found = messages(path, inside | {"no_such_key": 1}, name)
        known |= set(accepted_in(found["no_such_key"]).split(", "))
    assert set(DEFINITIONS[name]["properties"]) == known


@pytest.mark.parametrize("name", PLACES)
def test_a_key_is_required_if_the_parser_always_requires_it(name: str) -> None:
    path, maps = PLACES[name]
    required = [
        {key for key, text in messages(path, each, name).items() if text.startswith("required")}
        # Without `type`, the parser knows no other key of an action.
        for each in ([{}] if name.endswith("_action") else maps)
    ]
    always = set.intersection(*required)
    assert set(DEFINITIONS[name]["required"]) == always


@pytest.mark.parametrize("name", PLACES)
def test_a_value_is_what_the_parser_accepts(name: str) -> None:
    path, maps = PLACES[name]
    for key, leaf in inline(name):
        if (name, key) == ("configuration", "engine"):
            continue  # modules add engines
        nested = leaf.get("type") in ("object", ["object", "null"], "array", ["array", "null"])
        reference = leaf.get("$ref", "").rpartition("/")[2]
        wrong = 5 if nested or (reference and reference not in FORMS) else {}
        found = [messages(path, inside | {key: wrong}, name).get(key, "") for inside in maps]
        text = accepted_in(next(each for each in found if each.startswith("found")))
        wanted = expected(leaf)
        # A unit follows the numbers.
        assert text == wanted or text.startswith(f"{wanted} ("), (key, text, wanted)


@pytest.mark.parametrize("name", PLACES)
def test_elements_of_a_list_are_what_the_parser_accepts(name: str) -> None:
    path, maps = PLACES[name]
    for key, leaf in inline(name):
        items = leaf.get("items", {})
        if "enum" not in items and items.get("type") != "integer":
            continue
        texts = [messages(path, inside | {key: [{}]}, name).get(f"{key}[0]") for inside in maps]
        text = accepted_in(next(text for text in texts if text))
        assert text == expected(items) or text.startswith(f"{expected(items)} ("), key


def test_every_map_of_the_schema_is_compared() -> None:
    maps = {name for name, each in DEFINITIONS.items() if "properties" in each}
    assert maps == set(PLACES)
    assert set(DEFINITIONS) - maps == set(FORMS)


@pytest.mark.parametrize("name", profiles.names())
def test_profiles_are_valid_and_a_misspelled_key_is_not(name: str) -> None:
    document = yaml.safe_load(profiles.path(name).read_text())
    VALIDATOR.validate(document)
    # At the top of the file, too.
    VALIDATOR.validate(document["daqiri"]["cfg"])
    for change in (
        {"version": 2},
        {"interfaces": []},
        {"memory_regions": [{"name": "a"}]},
        {"log_level": "loud"},
    ):
        wrong = copy.deepcopy(document)
        wrong["daqiri"]["cfg"] |= change
        assert not VALIDATOR.is_valid(wrong)
        assert not check_config(wrong).ok
    wrong = copy.deepcopy(document)
    wrong["daqiri"]["cfg"]["interfaces"][0]["adress"] = "eth0"
    assert not VALIDATOR.is_valid(wrong)


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert _main._run(["config", "schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == SCHEMA
    jsonschema.Draft7Validator.check_schema(printed)
