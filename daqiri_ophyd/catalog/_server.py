"""A Tiled server inside this process, for a catalog that needs no separate server.

Tiled's own `SimpleTiledServer` creates its tree itself, so files could not be confined and runs not
be validated. It also replaces the logging of the process, and keeps a process from ending.
"""

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from ._address import (
    DATABASE,
    CatalogError,
    ServerAddress,
    find_server,
    is_served,
    lock_directory,
)
from ._confine import whereabouts
from ._moved import MovedFolders
from ._places import settle

__all__ = ["EmbeddedServer", "SharedServer"]

_STARTUP_S = 30.0
_SHUTDOWN_S = 10
_NAME = re.compile(r"name = '(.*?)', errno")
# Loggers of the server; they log to a file instead of the terminal.
_LOGGERS = ("uvicorn", "tiled.server", "tiled.catalog")


class _ServerLog(logging.FileHandler):
    """The server's log file; on a full disk, records are dropped."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Drop the record: the default would print a traceback to the terminal."""


class EmbeddedServer:
    """Tiled on SQLite (runs) and DuckDB (event tables) in one directory, on 127.0.0.1.

    It is stopped by `close`, or when the main thread ends, so that the interpreter can exit. Its
    address and key are stored in the directory, and reused by the next server if the port is free.

    Parameters
    ----------
    directory : Path
        Directory of the databases, the data and ``server.log``.
    lock : file
        Lock of the directory; it is released by `close`, or at once if the server does not start.
    readable : iterable of Path
        Directories of captures that the server may read, as given and without links.
    moved : callable
        Returns the new places of folders, when the directory is ready.
    stores : iterable of str
        Addresses of object stores that the server may read.

    Raises
    ------
    CatalogError
        If the server's packages are not installed, the directory cannot be written, or the server
        does not start.
    """

    def __init__(
        self,
        directory: Path,
        lock: IO[str],
        readable: Iterable[Path],
        moved: Callable[[], MovedFolders] = MovedFolders,
        stores: Iterable[str] = (),
    ) -> None:
        self._directory = directory
        self._moved = moved
        self._stores = tuple(stores)
        self._lock = lock
        try:
            self._log = _ServerLog(directory / "server.log", delay=True)
            self._log.setLevel(logging.WARNING)
            self._log.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
            for name in _LOGGERS:
                logging.getLogger(name).addHandler(self._log)
            try:
                self._start(list(readable))
            except BaseException:
                self._stop_logging()
                raise
        except BaseException:
            self._lock.close()
            raise

    def _start(self, readable: list[Path]) -> None:
        directory, names = self._directory, [str(path) for path in readable]
        # A copy has its own address and key: the original may be open, too.
        is_elsewhere = settle(directory, readable)
        kept = ServerAddress() if is_elsewhere else ServerAddress.read(directory)
        # Clients must not send the key to a port where no server, or another program, listens.
        address = replace(kept, process=0, readable=tuple(names), stores=self._stores)
        address.write(directory)
        app = _build_app(directory, names, self._moved(), address)
        self._server = _make_server(app)
        listener = _listen(address.port)
        self._thread = threading.Thread(
            target=self._serve, args=(listener,), name=f"catalog-{directory.name}"
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
        self.address = replace(address, port=listener.getsockname()[1], process=os.getpid())
        self.address.write(directory)

    def _serve(self, listener: socket.socket) -> None:
        # If it cannot start, it exits; packages of the server print that with a traceback.
        with suppress(SystemExit):
            self._server.run([listener])

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


class SharedServer:
    """The server of another process, which this process succeeds when that one ends.

    It then runs a server at the same address: clients of both continue.

    Parameters
    ----------
    directory : Path
        The catalog directory.
    address : ServerAddress
        Address of the server.
    start : callable
        ``start(lock)`` runs the server in this process.
    """

    def __init__(
        self,
        directory: Path,
        address: ServerAddress,
        start: Callable[[IO[str]], EmbeddedServer],
    ) -> None:
        self._directory = directory
        self.address = address
        self._start_own = start
        self._changing = threading.Lock()
        self._is_closed = False
        self.own: EmbeddedServer | None = None

    def require(self) -> None:
        """Return if a server answers at the address; start one if that of the process has ended.

        Raises
        ------
        CatalogError
            If another server has another address, or none can be started there.
        """
        if self.own is not None or is_served(self._directory, self.address):
            return
        with self._changing:
            if self.own is not None:
                return
            found = None
            while found is None and not self._is_closed:
                if lock := lock_directory(self._directory):
                    own = self._start_own(lock)
                    if self._is_same(own.address):
                        self.own = own
                        return
                    own.close()
                    break
                found = find_server(self._directory)
            if found is not None and self._is_same(found):
                self.address = found
                return
        raise CatalogError(
            f"The catalog in {self._directory} was open in process {self.address.process}, which "
            "has closed it or ended, and its server cannot be continued at "
            f"{self.address.uri}. Open it again: Catalog.open(directory)."
        )

    def _is_same(self, address: ServerAddress) -> bool:
        return (address.uri, address.api_key) == (self.address.uri, self.address.api_key)

    def close(self) -> None:
        """Stop the server that this process has started, if any."""
        with self._changing:
            self._is_closed = True
            own, self.own = self.own, None
        if own is not None:
            own.close()


def _listen(port: int) -> socket.socket:
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError:  # in use
        listener = socket.create_server(("127.0.0.1", 0))
    # asyncio sets TCP_NODELAY only on sockets whose protocol is named, and accepted sockets inherit
    # the listener's. Else the end of each answer waits 40 ms, for a delayed acknowledgement.
    return socket.socket(
        socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listener.detach()
    )


def _build_app(
    directory: Path, readable: list[str], moved: MovedFolders, address: ServerAddress
) -> Any:
    try:
        # Tiled imports it for the first table; during a scan, that would block its thread.
        import adbc_driver_duckdb.dbapi  # noqa: F401
        from tiled.config import Authentication, StreamingCacheConfig
        from tiled.server.app import build_app
        from tiled.server.settings import get_settings

        from ._database import create_database
        from ._tree import confined_tree
    except ImportError as error:
        raise CatalogError(
            f"An embedded catalog needs the Tiled server ({error}). "
            "Install it: pip install 'tiled[server]' 'databroker[server]'"
        ) from error
    # Below this level, it prints its version to the terminal.
    logging.getLogger("tiled.server.app").setLevel(logging.WARNING)
    database = directory / DATABASE
    try:
        if not database.exists():
            create_database(database)
        tree = confined_tree(
            str(database),
            writable_storage=[str(directory / "data"), f"duckdb:///{directory / 'storage.duckdb'}"],
            readable_storage=readable,
            readable_stores=address.stores,
            cache_config=StreamingCacheConfig(uri="memory").model_dump(),
            moved=moved,
        )
        # Whoever has its key is the user of this process.
        tree.context.explains = True
    except Exception as error:
        # The text of SQLAlchemy's errors has the statement, too.
        cause = getattr(error, "orig", None) or error
        raise CatalogError(f"The catalog database {database} cannot be created: {cause}") from error
    app = build_app(tree, authentication=Authentication(single_user_api_key=address.api_key))
    app.add_exception_handler(FileNotFoundError, _missing_file)
    # All servers of a process share one settings object: the last key would apply to all.
    settings = app.dependency_overrides[get_settings]().model_copy(deep=True)
    app.dependency_overrides[get_settings] = lambda: settings
    return app


def _missing_file(_request: Any, error: Any) -> Any:
    """Answer a request that needs a file that does not exist.

    Tiled would answer 500, after which clients repeat requests. After 404 and 410, they leave the
    reason out.
    """
    from fastapi import status
    from fastapi.responses import JSONResponse

    # HDF5's errors have the name in their text only.
    name = error.filename or next(iter(_NAME.findall(str(error))), "")
    logging.getLogger("tiled.server").warning("%s", error)
    detail = f"A file cannot be read: {error}."
    if name:
        detail = f"{name} cannot be read. {whereabouts(Path(name))}"
    return JSONResponse({"detail": detail}, status.HTTP_424_FAILED_DEPENDENCY)


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
