"""A Tiled server inside this process, for a catalog that needs no separate server."""

import fcntl
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

__all__ = ["CatalogError", "EmbeddedServer"]

_STARTUP_S = 30.0
_SHUTDOWN_S = 10
# One key for all servers of this process: they share Tiled's settings, so the last key wins.
_API_KEY = secrets.token_hex(32)
# Loggers of the server; they log to a file instead of the terminal.
_LOGGERS = ("uvicorn", "tiled.server", "tiled.catalog")


class CatalogError(RuntimeError):
    """A catalog cannot be opened or used."""


class _ServerLog(logging.FileHandler):
    """The server's log file; on a full disk, records are dropped."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Drop the record: the default would print a traceback to the terminal."""


class EmbeddedServer:
    """Tiled on SQLite (runs) and DuckDB (event tables) in one directory, on 127.0.0.1.

    It is stopped by `close`, or when the main thread ends, so that the interpreter can exit.

    Parameters
    ----------
    directory : Path
        For the databases, the data and ``server.log``. Created if missing.
    readable : iterable of Path
        Directories of captures that the server may read.

    Raises
    ------
    CatalogError
        If the server's packages are not installed, the directory cannot be written, another
        process has it open, or the server does not start.
    """

    def __init__(self, directory: Path, readable: Iterable[Path]) -> None:
        self._lock = _lock(directory)
        try:
            self.api_key = _API_KEY
            self._log = _ServerLog(directory / "server.log", delay=True)
            self._log.setLevel(logging.WARNING)
            self._log.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
            for name in _LOGGERS:
                logging.getLogger(name).addHandler(self._log)
            try:
                self._start(directory, readable)
            except BaseException:
                self._stop_logging()
                raise
        except BaseException:
            self._lock.close()
            raise

    def _start(self, directory: Path, readable: Iterable[Path]) -> None:
        app = _build_app(directory, readable, self.api_key)
        self._server = _make_server(app)
        listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1"
        self._thread = threading.Thread(
            target=self._server.run, args=([listener],), name=f"catalog-{directory.name}"
        )
        self._thread.start()
        deadline = time.monotonic() + _STARTUP_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self._server.should_exit = True
                self._thread.join()
                listener.close()
                raise CatalogError(
                    f"The catalog in {directory} did not start; see {directory / 'server.log'}."
                )
            time.sleep(0.01)

    def close(self) -> None:
        """Finish current requests (10 s at most), stop the threads, unlock the directory."""
        if self._lock.closed:
            return
        self._server.should_exit = True
        self._thread.join()
        self._stop_logging()
        self._lock.close()

    def _stop_logging(self) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self._log)
        self._log.close()


def _lock(directory: Path) -> IO[str]:
    """Lock a directory. DuckDB allows one process, and its own error comes later and is unclear."""
    try:
        (directory / "data").mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("a+")
        try:
            _acquire(lock, directory)
        except BaseException:
            lock.close()
            raise
    except OSError as error:
        raise CatalogError(
            f"The catalog directory {directory} cannot be written ({error.strerror}). "
            "Choose another, or connect to a server: Catalog.connect(uri)."
        ) from error
    return lock


def _acquire(lock: IO[str], directory: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        raise CatalogError(
            f"The catalog in {directory} is open already, in process {holder}. Close it there, or "
            "connect to it: Catalog.connect(uri, api_key) with its catalog.uri and catalog.api_key."
        ) from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()


def _build_app(directory: Path, readable: Iterable[Path], api_key: str) -> Any:
    try:
        from bluesky_tiled_plugins.routers.validator import router
        from tiled.catalog import from_uri
        from tiled.config import Authentication, StreamingCacheConfig
        from tiled.server.app import build_app
    except ImportError as error:
        raise CatalogError(
            f"An embedded catalog needs the Tiled server ({error}). "
            "Install it: pip install 'daqiri-ophyd[catalog]'"
        ) from error
    # Below this level it prints its version to the terminal.
    logging.getLogger("tiled.server.app").setLevel(logging.WARNING)
    database = directory / "catalog.db"
    try:
        tree = from_uri(
            str(database),
            writable_storage=[str(directory / "data"), f"duckdb:///{directory / 'storage.duckdb'}"],
            readable_storage=[str(path) for path in readable],
            # Creating the tables takes a subprocess and several seconds.
            init_if_not_exists=not database.exists(),
            cache_config=StreamingCacheConfig(uri="memory").model_dump(),
        )
    except Exception as error:
        raise CatalogError(f"The catalog database {database} cannot be created: {error}") from error
    return build_app(
        tree,
        authentication=Authentication(single_user_api_key=api_key),
        include_routers=[router],
    )


def _make_server(app: Any) -> Any:
    import uvicorn

    class Server(uvicorn.Server):
        async def on_tick(self, counter: int) -> bool:
            done = await super().on_tick(counter)
            # At exit, the interpreter joins this thread before it runs exit handlers.
            return done or not threading.main_thread().is_alive()

    config = uvicorn.Config(
        app,
        loop="asyncio",
        log_config=None,  # do not change the logging of this process
        access_log=False,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    return Server(config)
