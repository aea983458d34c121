"""A catalog of runs: embedded in this process, or on a server."""

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from bluesky_tiled_plugins import BlueskyRun, CatalogOfBlueskyRuns
from tiled.client import from_context
from tiled.client.context import Context
from tiled.structures.core import Spec
from tiled.utils import OneShotCachedMap

from ._register import register
from ._server import CatalogError, EmbeddedServer
from ._writer import RunWriter, ingest_backup

__all__ = ["Catalog"]

_RUNS = "runs"
_RUNS_SPEC = Spec("CatalogOfBlueskyRuns", "3.0")


class Catalog:
    """Stored runs: written by a RunEngine, read with a Tiled client or with databroker.

    Created by `open` or `connect`. Use it in a ``with`` block, or call `close`.

    Examples
    --------
    >>> with Catalog.open("/data/catalog", readable=["/data/captures"]) as catalog:
    ...     RE.subscribe(catalog.writer())
    ...     RE(plan)
    ...     catalog.client[-1].primary.read()
    """

    def __init__(
        self,
        client: CatalogOfBlueskyRuns,
        *,
        backup_directory: Path | None = None,
        server: EmbeddedServer | None = None,
        readable: Iterable[Path] | None = None,
    ) -> None:
        self._client = client
        self._backup_directory = backup_directory
        self._server = server
        self._readable = readable

    @classmethod
    def open(
        cls,
        directory: str | Path,
        readable: Iterable[str | Path] = (),
        *,
        backup_directory: str | Path | None = None,
    ) -> Self:
        """Open the catalog in a directory, with a server embedded in this process.

        Open the same directory again to read its runs later. Only one process at a time can have
        it open; others `connect` to its ``uri``.

        Parameters
        ----------
        directory : str or Path
            For the databases: SQLite for runs, DuckDB for event tables. Created if missing.
        readable : iterable of str or Path
            Directories that contain captures.
        backup_directory : str or Path, optional
            For runs that cannot be stored, preferably on another disk. Default: ``backup`` in
            ``directory``.

        Raises
        ------
        CatalogError
            If the Tiled server is not installed, the directory cannot be written, another process
            has it open, or the server does not start.
        """
        register()
        directory = Path(directory).resolve()
        given = [Path(path).absolute() for path in readable]
        # Tiled compares paths as text, and captures may be named by either form.
        both = list(dict.fromkeys([*given, *(path.resolve() for path in given)]))
        server = EmbeddedServer(directory, both)
        try:
            # Do not use a proxy from the environment: the server is in this process.
            client = _runs(server.uri, server.api_key, trust_env=False)
        except BaseException:
            server.close()
            raise
        backup = directory / "backup" if backup_directory is None else backup_directory
        return cls(client, backup_directory=Path(backup).resolve(), server=server, readable=both)

    @classmethod
    def connect(
        cls,
        uri: str,
        api_key: str | None = None,
        *,
        backup_directory: str | Path | None = None,
    ) -> Self:
        """Connect to a catalog on a Tiled server.

        Parameters
        ----------
        uri : str
            The server, or a catalog of runs on it. On a server without one, ``runs`` is created.
        api_key : str, optional
            Default: environment variable ``TILED_API_KEY``.
        backup_directory : str or Path, optional
            For runs that cannot be stored; needed by `writer`.

        Raises
        ------
        CatalogError
            If there is no Tiled server, or it refuses access.
        """
        register()
        backup = Path(backup_directory).resolve() if backup_directory is not None else None
        return cls(_runs(uri, api_key), backup_directory=backup)

    @property
    def client(self) -> CatalogOfBlueskyRuns:
        """Tiled client of the runs: ``client[-1]``, ``client[scan_id]``, ``client[uid]``."""
        return self._client

    @property
    def uri(self) -> str:
        """Address of the runs, for `connect` in another process."""
        return self._client.uri

    @property
    def api_key(self) -> str | None:
        """Key for `uri`."""
        return self._client.context.api_key

    @property
    def backup_directory(self) -> Path | None:
        """Directory for the documents of runs that could not be stored."""
        return self._backup_directory

    def writer(self, *, batch_size: int = 10_000) -> RunWriter:
        """Return a subscriber for a RunEngine: ``RE.subscribe(catalog.writer())``.

        Parameters
        ----------
        batch_size : int
            Rows to collect before they are sent; 1 shows rows while a run is in progress.

        Raises
        ------
        CatalogError
            If no backup directory is set, it cannot be written, or the catalog does not answer.
        """
        directory = self._backup_directory
        if directory is None:
            raise CatalogError(
                "A writer needs a directory for runs that the catalog cannot store: "
                "Catalog.connect(uri, api_key, backup_directory=...)."
            )
        try:
            directory.mkdir(parents=True, exist_ok=True)
            probe = directory / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise CatalogError(
                f"The backup directory {directory} cannot be written ({error.strerror})."
            ) from error
        try:
            return RunWriter(
                self._client, directory, batch_size=batch_size, readable=self._readable
            )
        except httpx.HTTPError as error:
            raise CatalogError(f"The catalog at {self.uri} does not answer: {error}") from error

    def databroker(self) -> Any:
        """Return a `databroker.Broker` for this catalog: ``db[-1].table()``."""
        from databroker.v1 import Broker

        return Broker(_independent(self._client))

    def ingest_backup(self, path: str | Path) -> str:
        """Store the run of a backup file; returns its uid. See `ingest_backup`."""
        return ingest_backup(self._client, path)

    def close(self) -> None:
        """Close the connection, and stop an embedded server. Idempotent."""
        self._client.context.close()
        if self._server is not None:
            self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _runs(uri: str, api_key: str | None, *, trust_env: bool = True) -> CatalogOfBlueskyRuns:
    """Return a client for the runs at or below an address."""
    try:
        context, path = Context.from_any_uri(uri, api_key=api_key, trust_env=trust_env)
        try:
            runs = _find_or_make_runs(from_context(context, node_path_parts=path))
        except BaseException:
            context.close()
            raise
    except httpx.HTTPError as error:
        raise CatalogError(f"The catalog at {uri} cannot be used: {error}") from error
    return _independent(runs)


def _find_or_make_runs(node: Any) -> CatalogOfBlueskyRuns:
    if isinstance(node, CatalogOfBlueskyRuns):
        return node
    if _RUNS not in node:
        node.create_container(_RUNS, specs=[_RUNS_SPEC])
    runs = node[_RUNS]
    if not isinstance(runs, CatalogOfBlueskyRuns):
        raise CatalogError(
            f"{runs.uri} is no catalog of runs: its specs are {list(runs.specs)}, "
            f"expected {_RUNS_SPEC.name} {_RUNS_SPEC.version}. Give the address of one that is."
        )
    return runs


def _independent(client: CatalogOfBlueskyRuns) -> CatalogOfBlueskyRuns:
    """Return the client with its own table of client classes.

    databroker replaces the class of runs in that table, which Tiled shares in a process.
    """
    shared = client.structure_clients
    table: Any = OneShotCachedMap({name: lambda name=name: shared[name] for name in shared})
    table.set("BlueskyRun", lambda: BlueskyRun)
    return client.new_variation(structure_clients=table)
