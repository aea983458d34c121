"""Rules ask what an engine declares; engines are told apart by name in few places only."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "native" / "src"
ENGINES = {"dpdk", "ibverbs", "socket", "packet", "loopback"}

# The engines themselves, and the words of the documented enumerators.
NAME_ENGINES = ("engines/", "config/formats.", "config/words.cpp")
BY_ENUMERATOR = re.compile(r"EngineType::(?!DEFAULT\b|UNKNOWN\b|OTHER\b)\w+")
BY_WORD = re.compile(r"\b(?:engine|name)\w*\s*[!=]=\s*\"(?:" + "|".join(sorted(ENGINES)) + r")\"")
# Prints the snapshots of other processes, which have names only; and the documented enumerators.
PYTHON_NAMES_ENGINES = {"daqiri_ophyd/cli/_stats_engines.py", "daqiri_ophyd/compat/_enums.py"}


def comparisons(source: str) -> Iterator[int]:
    """Lines that compare something with the name of an engine."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Compare):
            continue
        text = ast.unparse(node)
        words = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
        if "engine" in re.sub(r"'[^']*'", "", text) and words & ENGINES:
            yield node.lineno


def test_the_engine_is_told_apart_by_its_traits() -> None:
    found = [
        f"{path.relative_to(SRC)}:{number}: {line.strip()}"
        for path in sorted([*SRC.rglob("*.h"), *SRC.rglob("*.cpp")])
        if not str(path.relative_to(SRC)).startswith(NAME_ENGINES)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if BY_ENUMERATOR.search(line) or BY_WORD.search(line)
    ]
    assert not found, "ask a trait of engine/traits.h instead"


def test_python_asks_the_engine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in ("daqiri_ophyd", "plans", "profiles")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in PYTHON_NAMES_ENGINES
        for line in comparisons(path.read_text())
    ]
    assert not found, "ask daqiri_ophyd.host._engine_rules.engine_traits instead"


def test_a_list_of_engines_is_found() -> None:
    assert [*comparisons('x = needs.engine in ("dpdk", "ibverbs")')] == [1]
    assert [*comparisons("x = 'packet' != self.engine")] == [1]
    assert not [*comparisons("x = stream_type == 'socket'")]
    assert BY_ENUMERATOR.search("if (engine == EngineType::RDMA)")
    assert not BY_ENUMERATOR.search("return EngineType::OTHER;")
    assert BY_WORD.search('traits.name == "packet"')
    assert not BY_WORD.search('interface.address_ == "loopback"')
