"""Catalog of runs, opened now. The first opening creates its databases, which takes a while."""

# ruff: noqa: F821
# pyright: reportUndefinedVariable=false
import os

from daqiri_ophyd import setup
from daqiri_ophyd.catalog import Catalog

if not isinstance(globals().get("catalog"), Catalog):
    server = os.environ.get("DAQIRI_CATALOG")
    if server:
        catalog = Catalog.connect(
            server, readable=[data / "captures"], backup_directory=data / "backup"
        )
    else:
        # If another session, such as a queue server, has it open, that session's server is used.
        catalog = Catalog.open(data / "catalog", readable=[data / "captures"])
    setup(RE, daq, catalog)
