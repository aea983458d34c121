"""What the server of `preloaded_processes` imports before it forks."""

import contextlib
import importlib
import sys

_NAMES = [
    "adbc_driver_duckdb.dbapi",
    "aiosqlite",
    "anyio._backends._asyncio",
    "bluesky.plans",
    "bluesky_tiled_plugins",
    "databroker",
    "h5py",
    "httptools",
    "ophyd.sim",
    "ophyd_async.core",
    "pint",
    "tiled.catalog.alembic_constants",
    "tiled.client",
    "tiled.commandline._serve",
    "tiled.commandline.main",
    "tiled.server.app",
    "tiled.server.simple",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
    "zarr",
    "daqiri_ophyd.catalog",
    "daqiri_ophyd.catalog._server",
    "daqiri_ophyd.cli._main",
    "daqiri_ophyd.devices",
    "daqiri_ophyd.plans",
    "daqiri_ophyd.profiles",
]

# Dask imports cupy where it is installed, which loads the host's GPU driver: tests with a driver of
# their own would not get it.
sys.modules["cupy"] = None  # type: ignore[assignment]
for _name in _NAMES:
    with contextlib.suppress(ImportError):
        importlib.import_module(_name)
del sys.modules["cupy"]
