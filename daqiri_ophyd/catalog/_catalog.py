"""A catalog of runs: embedded in this process, or on a server."""

import socket
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import IO, Any, Self

import httpx
from bluesky_tiled_plugins import BlueskyRun, CatalogOfBlueskyRuns
from tiled.client import from_context
from tiled.client.context import CannotPrompt, Context
from tiled.structures.core import Spec
from tiled.utils import OneShotCachedMap

from ._address import DATABASE, CatalogError, find_server, lock_directory
from ._backlog import abandon, flush
from ._confine import Folders, set_folders
from ._moved import MovedFolders, Moves
from ._places import known_stores, moved_readable
from ._read_only import copy_catalog, is_writable
from ._register import register
from ._server import EmbeddedServer, SharedServer
from ._stored import split_readable
from ._writer import RunWriter, ingest_backup

__all__ = ["Catalog"]

_RUNS = "runs"
_ANSWER_S = 2.0
_RUNS_SPEC = Spec("CatalogOfBlueskyRuns", "3.0")


class Catalog:
    """Stored runs: written by a RunEngine, read with a Tiled client or with databroker.

    Create it with `open` or `connect`. Use it in a ``with`` block, or call `close`.

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
        directory: Path | None = None,
        backup_directory: Path | None = None,
        server: EmbeddedServer | SharedServer | None = None,
        served: Iterable[Path] | None = None,
        copy: TemporaryDirectory[str] | None = None,
    ) -> None:
        self._client = client
        self._copy = copy
        self._directory = directory
        self._backup_directory = backup_directory
        self._server = server
        self._served = served
        # Applies to all requests, also of clients and runs that were obtained earlier.
        uri = client.uri
        _before_requests(client, lambda: flush(uri))

    @classmethod
    def open(
        cls,
        directory: str | Path,
        readable: Iterable[str | Path] = (),
        *,
        moved: Moves | None = None,
        backup_directory: str | Path | None = None,
        create: bool = True,
    ) -> Self:
        """Open the catalog in a directory.

        The first process that opens it runs its server. Other processes of the same user on this
        host use that server. When the first process closes the catalog or ends, the next one that
        needs the server runs it, at the same address.

        Parameters
        ----------
        directory : str or Path
            Directory of the databases, SQLite for runs and DuckDB for event tables.
        readable : iterable of str or Path
            Directories that contain captures. The server uses those of the first process. The
            directory remembers them: in a copy of it, or after a move, files of such a folder are
            read at the same path relative to the catalog's directory, if a readable directory has
            that path. Addresses of object stores, ``s3://bucket/prefix``, are accepted as well, and
            remembered: what was uploaded there is read there when it is not on this host.
        moved : mapping of path to path, optional
            New paths of folders by the old ones, which the catalog names: ``{"/old": "/new"}``. For
            folders whose new place the directory cannot know. New paths must be readable, too; an
            address of an object store need not be. The server uses those of the first process.
        backup_directory : str or Path, optional
            Directory for runs that cannot be stored, preferably on another disk. Default:
            ``backup`` in ``directory``.
        create : bool
            Whether to create the catalog if the directory has none. With false, a directory that
            cannot be written, such as a mounted archive, is read from a temporary copy of its
            databases; `is_read_only` is then true.

        Raises
        ------
        CatalogError
            If the Tiled server is not installed, the directory cannot be written or, with
            ``create=False``, has no catalog, or the server does not start. Also raised by later
            uses, if the server's process has ended and its port is used by another program.
        ValueError
            If an old path of `moved` is not absolute.
        """
        MovedFolders(moved)
        register()
        directory = Path(directory).resolve()
        try:
            str(directory).encode()
        except UnicodeEncodeError:
            raise CatalogError(
                f"The catalog directory {str(directory)!r} is not UTF-8, which databases need. "
                "Rename it, or choose another."
            ) from None
        if not create and not (directory / DATABASE).is_file():
            raise CatalogError(f"There is no catalog in {directory}.")
        paths, named = split_readable(readable)
        given = [path.absolute() for path in paths]
        # Documents may name captures in either form.
        both = list(dict.fromkeys([*given, *(path.resolve() for path in given)]))
        backup = directory / "backup" if backup_directory is None else backup_directory
        backup = Path(backup).resolve()
        served = both
        stores = tuple(dict.fromkeys([*named, *known_stores(directory)]))
        copy = None if create or is_writable(directory) else copy_catalog(directory)
        used = directory if copy is None else Path(copy.name).resolve()

        def places() -> MovedFolders:
            return MovedFolders(moved, moved_readable(directory, served))

        def start(lock: IO[str]) -> EmbeddedServer:
            return EmbeddedServer(used, lock, served, places, stores)

        with ExitStack() as opened:
            if copy is not None:
                opened.callback(copy.cleanup)
            server: EmbeddedServer | SharedServer | None = None
            while server is None:
                if lock := lock_directory(used):
                    server = start(lock)
                elif address := find_server(used):
                    served = list(dict.fromkeys([*map(Path, address.readable), *both]))
                    server = SharedServer(used, address, start)
            opened.callback(server.close)
            address = server.address
            # Do not use a proxy from the environment: the server is on this host.
            client = _runs(address.uri, address.api_key, trust_env=False)
            opened.pop_all()
        is_here = isinstance(server, EmbeddedServer)
        if isinstance(server, SharedServer):
            _before_requests(client, server.require)
        folders = Folders(tuple(served), places(), is_applied=is_here, stores=stores)
        set_folders(client.context, folders)
        readers = [Path(path) for path in address.readable]
        return cls(
            client,
            directory=directory,
            backup_directory=backup,
            server=server,
            served=readers,
            copy=copy,
        )

    @classmethod
    def connect(
        cls,
        uri: str,
        api_key: str | None = None,
        *,
        readable: Iterable[str | Path] = (),
        moved: Moves | None = None,
        backup_directory: str | Path | None = None,
    ) -> Self:
        """Connect to a catalog on a Tiled server.

        Parameters
        ----------
        uri : str
            Address of the server, or of a catalog of runs on it. On a server without a catalog of
            runs, ``runs`` is created.
        api_key : str, optional
            API key. Default: environment variable ``TILED_API_KEY``.
        readable : iterable of str or Path
            Directories of captures on this host, and addresses of object stores, for
            `capture_files` and replays. Files that the server names are not read elsewhere.
        moved : mapping of path to path, optional
            Paths of folders on this host by those that the server names, for the same purposes.
            What the server itself reads is set there, with ``moved`` of `confined_tree`.
        backup_directory : str or Path, optional
            Directory for runs that cannot be stored; required by `writer`.

        Raises
        ------
        CatalogError
            If there is no Tiled server, or it denies access.
        ValueError
            If an old path of `moved` is not absolute.
        """
        register()
        places = MovedFolders(moved)
        paths, stores = split_readable(readable)
        backup = Path(backup_directory).resolve() if backup_directory is not None else None
        client = _runs(uri, api_key)
        known = tuple(path.absolute() for path in paths)
        folders = Folders(known, places, is_shared=True, stores=tuple(stores))
        set_folders(client.context, folders)
        return cls(client, backup_directory=backup)

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
        """API key for `uri`."""
        return self._client.context.api_key

    def page(self) -> str:
        """Return the address of a web page with the runs; of a directory's catalog, with its key.

        Of servers that do not use `confined_tree`: the page of Tiled's web interface.

        Raises
        ------
        CatalogError
            If the catalog does not answer.
        """
        context, path = self._client.context, "/".join(self._client.path_parts)
        # A server's key is its user's; that of a directory is for this host.
        key = {"api_key": context.api_key} if self._directory and context.api_key else {}
        page = httpx.URL(context.api_uri).join("browse")
        try:
            found = context.http_client.head(page).status_code != httpx.codes.NOT_FOUND
        except httpx.HTTPError as error:
            raise CatalogError(f"The catalog at {self.uri} does not answer: {error}") from error
        if found:
            return str(page.copy_with(params={"path": path, **key}))
        root = page.path.removesuffix("/browse").removesuffix("/api/v1")
        return str(page.copy_with(path=f"{root}/ui/browse/{path}", params=key))

    @property
    def backup_directory(self) -> Path | None:
        """Directory for the documents of runs that could not be stored."""
        return self._backup_directory

    @property
    def is_served_here(self) -> bool:
        """Whether this process runs the server of the catalog."""
        server = self._server
        return isinstance(server, EmbeddedServer) or (server is not None and server.own is not None)

    @property
    def is_read_only(self) -> bool:
        """Whether the directory cannot be written, and a temporary copy of it is read."""
        return self._copy is not None

    def require_writable(self) -> None:
        """Raise if the directory cannot be written.

        Raises
        ------
        CatalogError
            If it cannot.
        """
        if self.is_read_only:
            raise CatalogError(
                f"The catalog directory {self._directory} cannot be written. Copy it, with its "
                "captures, to a disk that can be written."
            )

    def writer(self, *, batch_size: int = 10_000) -> RunWriter:
        """Return a subscriber for a RunEngine: ``RE.subscribe(catalog.writer())``.

        Parameters
        ----------
        batch_size : int
            Rows to collect before they are sent; with 1, rows and files appear during a run.
            See `RunWriter`.

        Raises
        ------
        CatalogError
            If no backup directory is set, it or the catalog cannot be written, or the catalog does
            not answer.
        """
        self.require_writable()
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
            return RunWriter(self._client, directory, batch_size=batch_size, readable=self._served)
        except httpx.HTTPError as error:
            raise CatalogError(f"The catalog at {self.uri} does not answer: {error}") from error

    def databroker(self) -> Any:
        """Return a `databroker.Broker` for this catalog: ``db[-1].table()``.

        Tables of fly scans of frames have a row for each frame.
        """
        from ._broker import CatalogBroker

        return CatalogBroker(_independent(self._client))

    def ingest_backup(self, path: str | Path) -> str:
        """Store the run of a backup file; returns its uid. See `ingest_backup`."""
        self.require_writable()
        return ingest_backup(self._client, path)

    def flush(self) -> None:
        """Wait until the runs given to writers in this process are stored, or in backup files.

        Every request to the catalog does this first.
        """
        flush(self.uri)

    def close(self) -> None:
        """Wait as `flush` does, close the connection, and stop an embedded server. Idempotent.

        Ctrl-C ends the wait; documents that are not stored are then left to `recover_runs`.
        """
        try:
            self.flush()
        except BaseException:
            abandon(self.uri)
            raise
        finally:
            self._client.context.close()
            if self._server is not None:
                self._server.close()
            if self._copy is not None:
                self._copy.cleanup()

    def __repr__(self) -> str:
        """Return the directory or address, and the number of runs."""
        place = self.uri if self._directory is None else self._directory
        return f"<Catalog {place}: {self._runs_text()}>"

    def _runs_text(self) -> str:
        context = self._client.context
        if context.http_client.is_closed:
            return "closed"
        try:
            # The plain httpx client: Tiled's repeats failing requests for long.
            answer = context.http_client.get(
                self._client.item["links"]["search"],
                params={"fields": "count"},
                timeout=_ANSWER_S,
            )
            runs = int(answer.raise_for_status().json()["meta"]["count"])
        except (httpx.HTTPError, CatalogError, ValueError, LookupError, TypeError) as error:
            return f"does not answer ({type(error).__name__})"
        return f"{runs} run{'' if runs == 1 else 's'}"

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
        raise CatalogError(f"The catalog at {uri} cannot be used: {_reason(error)}") from error
    except CannotPrompt as error:
        raise CatalogError(
            f"The catalog at {uri} is for users who have logged in, and no API key is given: "
            "Catalog.connect(uri, api_key), or set TILED_API_KEY."
        ) from error
    return _independent(runs)


def _reason(error: httpx.HTTPError) -> str:
    """Return why a server cannot be reached, without the number that resolvers put first."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return f"its host is not known ({cause.strerror})"
        cause = cause.__cause__ or cause.__context__
    return str(error)


def _before_requests(client: CatalogOfBlueskyRuns, call: Callable[[], None]) -> None:
    hooks = client.context.http_client.event_hooks
    hooks["request"].append(lambda _: call())
    client.context.http_client.event_hooks = hooks


def _find_or_make_runs(node: Any) -> CatalogOfBlueskyRuns:
    if isinstance(node, CatalogOfBlueskyRuns):
        return node
    if _RUNS not in node:
        try:
            node.create_container(_RUNS, specs=[_RUNS_SPEC])
        except httpx.HTTPStatusError as error:
            # Another process may have created it since.
            if error.response.status_code != httpx.codes.CONFLICT:
                raise
    runs = node[_RUNS]
    if not isinstance(runs, CatalogOfBlueskyRuns):
        raise CatalogError(
            f"{runs.uri} is not a catalog of runs: its specs are {list(runs.specs)}, "
            f"expected {_RUNS_SPEC.name} {_RUNS_SPEC.version}. Give the address of such a catalog."
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
