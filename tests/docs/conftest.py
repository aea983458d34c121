"""The built site that tests look at."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def site(pytestconfig: pytest.Config) -> Path:
    """The folder of the built site."""
    given = pytestconfig.getoption("--site")
    if not given:
        pytest.skip("needs the built site: run `make docs`")
    folder = Path(given).absolute()
    if not (folder / "index.html").is_file():
        raise pytest.UsageError(f"--site {given}: there is no site in this folder")
    return folder


@pytest.fixture(scope="session")
def pages(site: Path) -> list[Path]:
    """The pages of the site, without templates that come with its theme."""
    return [page for page in sorted(site.rglob("*.html")) if "_static" not in page.parts]
