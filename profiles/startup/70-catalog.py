"""Catalog of runs: opened by the first run, or by the first call of ``catalog()``."""

# ruff: noqa: F821
# pyright: reportUndefinedVariable=false
import functools
import os

from daqiri_ophyd.catalog import Catalog


@functools.cache
def catalog() -> Catalog:
    """Return the catalog of runs: ``catalog().client[-1]``."""
    server = os.environ.get("DAQIRI_CATALOG")
    if server:
        return Catalog.connect(server, backup_directory=data / "backup")
    return Catalog.open(data / "catalog", readable=[data / "captures"])


@functools.cache
def _writer():
    return catalog().writer()


def _store(name: str, doc: dict) -> None:
    _writer()(name, doc)


RE.subscribe(_store)
