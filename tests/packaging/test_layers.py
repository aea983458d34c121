"""The layout drawn from the imports of the code equals the one in the documentation."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("grimp", reason="the import graph needs import-linter; 'make test' installs it")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanations" / "layout.md"

CONTRACT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
# From top to bottom, as lint-imports enforces it.
ORDER = re.findall(r"\w+", " ".join(CONTRACT["contracts"][0]["layers"]))
HOST_IS_READ_BY = {"cli", "plans", "devices", "field_test"}

# Runs in a separate interpreter, without the editable install.
GRAPH = """
import json, grimp
graph = grimp.build_graph("daqiri_ophyd", cache_dir=None)
print(json.dumps({m: sorted(graph.find_modules_directly_imported_by(m)) for m in graph.modules}))
"""


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else "daqiri_ophyd"


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """Imports between modules of different folders, but for the version and the command."""
    layout = tmp_path_factory.mktemp("layout") / "packages"
    subprocess.run([ROOT / ".ci" / "layout", layout], check=True)
    environment = os.environ | {"SKBUILD_EDITABLE_SKIP": str(ROOT / "build" / "native")}
    graph = json.loads(
        subprocess.check_output([sys.executable, "-c", GRAPH], cwd=layout, env=environment)
    )
    assert {"cli", "plans", "engine", "profiles"} <= {room(module) for module in graph}
    pairs = ((importer, imported) for importer in graph for imported in graph[importer])
    return [
        (importer, imported)
        for importer, imported in pairs
        if room(importer) != room(imported)
        and imported != "daqiri_ophyd"
        and room(importer) != "__main__"
    ]


def drawing(pairs: list[tuple[str, str]], order: list[str]) -> str:
    width = max(map(len, order))
    reads = {name: {other for reader, other in pairs if reader == name} for name in order}
    return "".join(
        f"{name:<{width}} -> {' '.join(other for other in order if other in reads[name])}\n"
        for name in order
        if reads[name]
    )


def shown() -> str:
    found = re.search(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    return found[1]


def test_the_page_shows_the_packages(imports: list[tuple[str, str]]) -> None:
    rooms = [(room(importer), room(imported)) for importer, imported in imports]
    drawn = drawing(rooms, ORDER)
    assert shown() == drawn, f"{PAGE} is out of date; the imports are:\n{drawn}"


def test_host_stands_alone(imports: list[tuple[str, str]]) -> None:
    assert not [pair for pair in imports if room(pair[0]) == "host"]
    assert {room(a) for a, b in imports if room(b) == "host"} <= HOST_IS_READ_BY


def test_rooms_use_each_others_public_names_only(imports: list[tuple[str, str]]) -> None:
    private = [pair for pair in imports if any(p.startswith("_") for p in pair[1].split(".")[2:])]
    assert not private
