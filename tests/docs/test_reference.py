"""Everything public is in the tables of the reference."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from daqiri_ophyd import profiles

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
# Modules with a separate section, modules for checks only, a type of documents, and what another
# package describes.
LEFT_OUT = {
    "documents": {"StreamAsset"},
    "engine": {"ethernet", "events"},
    "host": {"Context", "Needs"},
    "plans": {"Packets", "packet_source"},
}
PACKAGES = sorted(page.stem for page in (REFERENCE / "python").glob("*.md") if page.stem != "index")


def names_in_tables(page: str) -> list[str]:
    tables = re.findall(r"\.\. autosummary::\n   :nosignatures:\n\n((?:   \S+\n)+)", page)
    return [name for table in tables for name in table.split() if "." not in name]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_tables_of_a_package_have_all_its_names(package: str) -> None:
    page = (REFERENCE / "python" / f"{package}.md").read_text()
    public = import_module(f"daqiri_ophyd.{package}").__all__
    assert sorted(names_in_tables(page)) == sorted(set(public) - LEFT_OUT.get(package, set()))


def test_the_page_of_the_profiles_has_them_all() -> None:
    page = (REFERENCE / "python" / "profiles.md").read_text()
    assert sorted(re.findall(r"^\| `(\S+)` \|", page, re.MULTILINE)) == profiles.names()


def test_pages_and_tables_of_the_cpp_interface_have_all_groups_of_its_headers() -> None:
    headers = [*(ROOT / "native" / "include").rglob("*.h*"), ROOT / "native/cmake/version.h.in"]
    text = "\n".join(header.read_text() for header in headers)
    groups = sorted(re.findall(r"\\defgroup (\w+)", text))
    pages = "\n".join(page.read_text() for page in (REFERENCE / "cpp").glob("*.md"))
    assert sorted(re.findall(r"\{doxygengroup\} (\w+)", pages)) == groups
    tables = re.findall(r"\.\. cpp-functions:: (.*)", pages)
    assert sorted(" ".join(tables).split()) == groups
    # Doxygen keeps what is in no group off these pages.
    assert "\\name" not in text
    for header in headers:
        if re.search(r"^namespace daqiri \{", header.read_text(), re.MULTILINE):
            assert re.search(r"\\(addto|def)group", header.read_text()), header.name
