"""What tests of several parts share."""

import shutil
from pathlib import Path

import pytest

from daqiri_ophyd.catalog import Catalog


@pytest.fixture(scope="session")
def empty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog directory as the first opening leaves it; making its tables takes seconds."""
    directory = tmp_path_factory.mktemp("empty") / "catalog"
    Catalog.open(directory).close()
    return directory


@pytest.fixture
def made_catalog(tmp_path: Path, empty_catalog: Path) -> None:
    """The catalogs of the commands, which take seconds to make."""
    for folder in ("daqiri-demo", "daqiri-data"):
        shutil.copytree(empty_catalog, tmp_path / folder / "catalog")
