"""Catalog of runs, opened now: the first time, its databases are created, which takes a while."""

# ruff: noqa: F821
# pyright: reportUndefinedVariable=false
import os

from daqiri_ophyd.catalog import Catalog

server = os.environ.get("DAQIRI_CATALOG")
if server:
    catalog = Catalog.connect(
        server, readable=[data / "captures"], backup_directory=data / "backup"
    )
else:
    # Another session, such as that of a queue server, may have it open: its server is used then.
    catalog = Catalog.open(data / "catalog", readable=[data / "captures"])
RE.subscribe(catalog.writer())
