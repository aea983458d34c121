"""Creation of the database of a catalog."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

__all__ = ["create_database"]


def create_database(path: Path) -> None:
    """Create an SQLite database for a Tiled catalog, as ``tiled catalog init`` does.

    That command takes seconds, most of them to import Tiled in another process. The database
    appears under its name when it is complete.

    Parameters
    ----------
    path : Path
        The file; it must not exist.

    Raises
    ------
    OSError, sqlalchemy.exc.SQLAlchemyError
        If it cannot be created.
    """
    part = path.with_name(f".{path.name}.part")
    _remove(part)
    try:
        # In a thread of its own: the caller's may run an event loop.
        with ThreadPoolExecutor(1, thread_name_prefix="catalog-database") as thread:
            thread.submit(asyncio.run, _create(part)).result()
        part.rename(path)
    except BaseException:
        _remove(part)
        raise


async def _create(path: Path) -> None:
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool
    from tiled.catalog.alembic_constants import ALEMBIC_DIR
    from tiled.catalog.core import REQUIRED_REVISION, initialize_database
    from tiled.utils import ensure_specified_sql_driver

    def stamp(connection: Connection) -> None:
        context = MigrationContext.configure(connection)
        context.stamp(ScriptDirectory(str(ALEMBIC_DIR)), REQUIRED_REVISION)

    engine = create_async_engine(ensure_specified_sql_driver(str(path)), poolclass=NullPool)
    try:
        await initialize_database(engine)
        async with engine.begin() as connection:
            await connection.run_sync(stamp)
    finally:
        await engine.dispose()


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
