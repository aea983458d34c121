"""A Tiled catalog that serves files from its readable directories only, also in a run."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlparse

import anyio
from bluesky_tiled_plugins.routers.validator import router
from fastapi import APIRouter, FastAPI, HTTPException, Query
from tiled.catalog import from_uri
from tiled.catalog.adapter import (
    STRUCTURES,
    CatalogArrayAdapter,
    CatalogContainerAdapter,
    CatalogNodeAdapter,
)
from tiled.ndslice import NDSlice
from tiled.server.dependencies import expected_shape
from tiled.storage import FileStorage
from tiled.structures.data_source import Management
from tiled.utils import path_from_uri

from daqiri_ophyd.documents import CAPTURE_MIMETYPES, COMPANIONS, FRAMES_MIMETYPE

from ._confine import UnreadableFileError, confined_path, require_confined
from ._hdf5_references import require_confined_references
from ._moved import MovedFolders, Moves
from ._object_frames import open_frames
from ._packet_table import answered
from ._page import page_router
from ._register import moved_parts, register
from ._stored import StoredFiles
from ._views import register_views

__all__ = ["confined_tree"]

_KEPT_ADAPTERS = 8

# Shape that the client of this request knows: that of an earlier moment, for data of a run in
# progress. Tiled 0.2.20 compares it with what adapters return, and does not pass it to them.
_expected_shape: ContextVar[tuple[int, ...] | None] = ContextVar("expected_shape", default=None)

# Whether the data sources of a node are looked up to read their files.
_reads_files: ContextVar[bool] = ContextVar("reads_files", default=False)

_DATABASES = ("sqlite", "duckdb")


class _Confined(CatalogNodeAdapter):
    """A node whose files are served only if they are below a readable directory.

    Tiled 0.2.20 compares paths as text, and does not check files that it serves itself; see
    docs/explanations/upstream.md.
    """

    async def lookup_adapter(self, segments: list[str]) -> Any:
        """Return a node below this one; it is confined, too."""
        return _confine(await super().lookup_adapter(segments))

    async def data_sources(self, include_assets: bool = False) -> Any:
        """Return the data sources of this node; files of moved folders have the new addresses."""
        sources = await super().data_sources(include_assets=include_assets)
        moved: MovedFolders = self.context.moved
        if include_assets and moved:
            for source in sources:
                if source.management == Management.external:
                    source.parameters = moved_parts(source, moved)
                    for asset in source.assets:
                        asset.data_uri = moved.uri(asset.data_uri)
        if include_assets and _reads_files.get():
            for asset in (asset for source in sources for asset in source.assets):
                # Tiled does not check these, and adapters read them, too.
                if asset.parameter is None:
                    self._ensure_uri_within_readable_storage(asset.data_uri)
        return sources

    async def get_adapter(self) -> Any:
        """Return what reads the files."""
        token = _reads_files.set(True)
        try:
            return await super().get_adapter()
        finally:
            _reads_files.reset(token)

    async def _get_lazy_adapter(self, **selection: Any) -> Any:
        # It would read addresses from the database.
        if self.context.moved:
            return None
        return self._finding(await super()._get_lazy_adapter(**selection))

    def _finding(self, adapter: Any) -> Any:
        """Return an adapter of captures, which finds their files in object stores, too."""
        if adapter is not None and hasattr(adapter, "stored"):
            adapter.stored = self.context.stored
        return adapter

    async def asset_by_id(self, asset_id: int) -> Any:
        """Return a file of this node, to be served unchanged."""
        asset = await super().asset_by_id(asset_id)
        if asset is not None:
            if all(s.management == Management.external for s in self.node.data_sources or ()):
                asset.data_uri = self.context.moved.uri(asset.data_uri)
            path = self._require_confined_uri(asset.data_uri)
            if asset.is_directory:
                # Tiled would also serve files that the client names as relative_path=../...
                raise HTTPException(403, "Directories cannot be downloaded from this server.")
            if path is not None and not path.is_file():
                local = await anyio.to_thread.run_sync(partial(self._local, path))
                if local != path:
                    asset.data_uri = f"file://localhost{local}"
        return asset

    def _local(self, path: Path) -> Path:
        """Return the path of a file, or of a copy of its object."""
        with answered():
            local: Path = self.context.stored.local(path)
        return local

    def _require_readable(self, files: Iterable[Path]) -> None:
        beside = ("", *COMPANIONS)
        stored = self.context.stored
        here = [file for file in files if not stored.has(file)]
        try:
            require_confined(
                (Path(f"{file}{suffix}") for file in here for suffix in beside),
                self._readable(),
                explain=self.context.explains,
            )
        except UnreadableFileError as error:
            raise _refusal(error) from error

    # Tiled calls this before an adapter gets the address.
    def _ensure_uri_within_readable_storage(self, data_uri: str) -> None:
        path = self._require_confined_uri(data_uri)
        if path is None:
            return
        (source, *_) = self.node.data_sources or [None]
        try:
            require_confined_references(
                path,
                self._readable(),
                (source and source.parameters) or {},
                explain=self.context.explains,
            )
        except UnreadableFileError as error:
            raise _refusal(error) from error

    def _readable(self) -> list[Path]:
        storages = self.context.readable_storage.values()
        return [Path(s.path) for s in storages if type(s) is FileStorage]

    def _require_confined_uri(self, data_uri: str) -> Path | None:
        """Return the path of a file that may be read; None: it is a database of this server."""
        storages = self.context.readable_storage.values()
        scheme = urlparse(data_uri).scheme
        try:
            if scheme == "file":
                path = Path(path_from_uri(data_uri))
                if self.context.stored.has(path):
                    return path
                return confined_path(data_uri, self._readable(), explain=self.context.explains)
            if scheme in _DATABASES:
                # Any adapter would use it as a path.
                path = path_from_uri(data_uri)
                own = (s.uri for s in storages if urlparse(s.uri).scheme in _DATABASES)
                if path not in map(path_from_uri, own):
                    raise UnreadableFileError(f"{path} is not a database of this server.")
        except UnreadableFileError as error:
            raise _refusal(error) from error
        return None


def _refusal(error: UnreadableFileError) -> HTTPException:
    return HTTPException(403, f"This server does not serve this file: {error}")


class _ConfinedContainer(_Confined, CatalogContainerAdapter):
    """A node with others below it, which are confined, too."""

    async def items_page(self, *args: Any, **kwargs: Any) -> Any:
        """Return some nodes with their keys, and the position of the next ones."""
        items, cursor = await super().items_page(*args, **kwargs)
        return [(key, _confine(node)) for key, node in items], cursor

    async def items_range(self, *args: Any, **kwargs: Any) -> Any:
        """Return some nodes with their keys."""
        items = await super().items_range(*args, **kwargs)
        return [(key, _confine(node)) for key, node in items]


class _ConfinedArray(_Confined, CatalogArrayAdapter):
    """An array that may grow: a client gets the rows that it knows."""

    async def get_adapter(self) -> Any:
        """Return what reads the files.

        That of captures is kept between requests: each partition of their packets is a request, for
        which Tiled would load the addresses of all files.
        """
        sources = self.node.data_sources or []
        kinds = [source.mimetype for source in sources]
        if self.queries or len(kinds) != 1:
            return self._finding(await super().get_adapter())
        if kinds[0] not in CAPTURE_MIMETYPES.values():
            shipped = await self._shipped_frames() if kinds[0] == FRAMES_MIMETYPE else None
            return self._finding(shipped or await super().get_adapter())
        adapter = await self._kept(sources[0], (), super().get_adapter)
        self._require_readable(adapter.filepaths)
        return self._finding(adapter)

    async def _kept(
        self, source: Any, of: tuple[object, ...], make: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Return the adapter of a data source in a state; make it if it was not used lately."""
        parameters = json.dumps(source.parameters, sort_keys=True)
        key = (source.id, source.structure_id, str(source.time_updated), parameters, of)
        kept = self.context.capture_adapters
        adapter = kept.pop(key, None)
        if adapter is None:
            adapter = await make()
        kept[key] = adapter
        for oldest in list(kept)[:-_KEPT_ADAPTERS]:
            del kept[oldest]
        return adapter

    async def _shipped_frames(self) -> Any:
        """Return what reads frames of which files are in an object store; None: all are here."""
        (source,) = await self.data_sources(include_assets=True)
        assets = [a for a in source.assets if a.parameter == "data_uris"] or source.assets
        found = [self._require_confined_uri(asset.data_uri) for asset in assets]
        paths = [path for path in found if path is not None]
        # Files go while an adapter of them is kept.
        here = tuple(path.is_file() for path in paths)
        if len(paths) != len(found) or all(here):
            return None

        async def make() -> Any:
            return await anyio.to_thread.run_sync(partial(self._open_frames, source, paths))

        return await self._kept(self.node.data_sources[0], here, make)

    def _open_frames(self, source: Any, paths: list[Path]) -> Any:
        for path in paths:
            if path.is_file():
                self._ensure_uri_within_readable_storage(f"file://localhost{path}")
        with answered():
            files = [self.context.stored.find(path) for path in paths]
            return open_frames(files, source, self.node)

    async def read(self, *args: Any, **kwargs: Any) -> Any:
        """Return the array, or a part of it."""
        expected, shape = _expected_shape.get(), self.structure().shape
        whole = not (args[0] if args else kwargs.get("slice"))
        if whole and expected and expected[1:] == shape[1:] and expected[0] <= shape[0]:
            args, kwargs = (NDSlice(slice(0, expected[0])),), {**kwargs}
            kwargs.pop("slice", None)
        return await super().read(*args, **kwargs)


_CONFINED = {
    stock: type(f"Confined{stock.__name__}", (_Confined, stock), {})
    for stock in STRUCTURES.values()
} | {CatalogContainerAdapter: _ConfinedContainer, CatalogArrayAdapter: _ConfinedArray}


def _confine(found: Any) -> Any:
    confined = _CONFINED.get(type(found))
    return confined(found.context, found.node) if confined else found


async def _note_expected_shape(
    shape: Annotated[
        str | None,
        Query(alias="expected_shape", min_length=1, pattern="^[0-9]+(,[0-9]+)*$|^scalar$"),
    ] = None,
) -> tuple[int, ...] | None:
    """Return the shape that a client expects, and note it for adapters."""
    expected = expected_shape(shape)
    _expected_shape.set(expected)
    return expected


@asynccontextmanager
async def _noting_expected_shapes(app: FastAPI) -> AsyncIterator[None]:
    app.dependency_overrides[expected_shape] = _note_expected_shape
    yield


def confined_tree(
    uri: str,
    *,
    moved: Moves | MovedFolders | None = None,
    readable_stores: Iterable[str] = (),
    **options: Any,
) -> CatalogNodeAdapter:
    """Return a catalog of runs for a Tiled server: ``tree:`` of its configuration.

    It reads captures, also those of runs in progress, exports and validates runs, and serves files
    only if their real path, without ``..`` and links, is below a directory of ``readable_storage``
    or ``writable_storage``.

    Parameters
    ----------
    uri : str
        Database of the catalog.
    moved : mapping of str to str, optional
        New paths of folders by the old ones, which documents name. Files below an old one are read
        and served at the new path, which must be below a readable directory. A new place can be an
        address of an object store, ``s3://bucket/prefix``.
    readable_stores : iterable of str
        Addresses of object stores: files that were uploaded there, and are not on this host any
        more, are read there.
    **options
        As for ``tree: catalog`` (`tiled.catalog.from_uri`).
    """
    register()
    register_views()
    stock = from_uri(uri, **options)
    tree = _CONFINED[type(stock)](stock.context, stock.node)
    tree.context.capture_adapters = {}
    tree.context.moved = moved if isinstance(moved, MovedFolders) else MovedFolders(moved)
    tree.context.stored = StoredFiles(tree.context.moved, readable_stores)
    # Clients must not learn which files a server has.
    tree.context.explains = False
    tree.startup_tasks = stock.startup_tasks
    tree.shutdown_tasks = stock.shutdown_tasks
    # The last is without routes: a router is what a tree can add to the server that serves it.
    tree.include_routers = [router, page_router, APIRouter(lifespan=_noting_expected_shapes)]
    return tree
