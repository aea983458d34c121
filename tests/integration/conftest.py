"""What tests of several parts share."""

from pathlib import Path

import pytest

from daqiri_ophyd.catalog import Catalog


@pytest.fixture(scope="session")
def empty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog directory as the first opening leaves it; making its tables takes seconds."""
    directory = tmp_path_factory.mktemp("empty") / "catalog"
    Catalog.open(directory).close()
    return directory
