"""A RunEngine that `setup` has prepared."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from bluesky import RunEngine
from bluesky import plans as bp
from ophyd.sim import motor
from run_documents import new_run_engine

import daqiri_ophyd
from daqiri_ophyd import plans
from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.plans import setup


class Watched:
    """A RunEngine whose subscriptions are listed."""

    def __init__(self, engine: RunEngine) -> None:
        self.engine = engine
        self.subscribed: dict[int, Any] = {}
        subscribe, unsubscribe = engine.subscribe, engine.unsubscribe

        def listed(function: Any, name: str = "all") -> int:
            token = subscribe(function, name)
            self.subscribed[token] = function
            return token

        def dropped(token: int) -> None:
            unsubscribe(token)
            del self.subscribed[token]

        engine.subscribe, engine.unsubscribe = listed, dropped  # type: ignore[method-assign]

    def kinds(self) -> list[str]:
        return sorted(
            getattr(each, "__qualname__", type(each).__name__) for each in self.subscribed.values()
        )


@pytest.fixture
def watched() -> Iterator[Watched]:
    with new_run_engine() as engine:
        yield Watched(engine)


def test_a_session_without_a_catalog(watched: Watched, profile: Any, documents: Any) -> None:
    daq, capture, _ = profile("loopback")
    session = setup(watched.engine, daq)
    assert (session.run_engine, session.daq, session.catalog) == (watched.engine, daq, None)
    assert watched.kinds() == ["Daq.run_started", "_on_terminal.<locals>.shown"]
    assert watched.engine.preprocessors == [
        plans.engine_metadata_wrapper,
        plans.reading_streams_wrapper,
    ]
    assert watched.engine.waiting_hook is not None
    watched.engine.subscribe(documents.take)
    capture.acquire_time.put(0.01)
    watched.engine(bp.scan([capture], motor, 0, 1, 2))
    (start,) = documents.of("start")
    assert start["daqiri"] == {"daq": daq.metadata()}


def test_a_second_time(
    watched: Watched, profile: Any, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    first, _, _ = profile("loopback")
    before = setup(watched.engine, first, catalog)
    first.open()
    hook, subscribed = watched.engine.waiting_hook, dict(watched.subscribed)
    assert setup(watched.engine, first, catalog) == before
    assert watched.subscribed == subscribed
    assert first.is_open
    second, capture, _ = profile("loopback")
    after = setup(watched.engine, second)
    assert not first.is_open
    assert after.catalog is catalog
    assert after.live is before.live
    assert watched.engine.waiting_hook is hook
    assert len(watched.engine.preprocessors) == 2
    assert watched.kinds() == ["Daq.run_started", "RunWriter", "_on_terminal.<locals>.shown"]
    capture.acquire_time.put(0.01)
    capsys.readouterr()
    (uid,) = watched.engine(bp.scan([capture], motor, 0, 1, 2))
    assert capsys.readouterr().out.count("Persistent Unique Scan ID") == 1
    assert catalog.client[uid].metadata["start"]["daqiri"]["daq"]["config"]


def test_another_catalog(watched: Watched, profile: Any, catalog: Catalog) -> None:
    daq, _, _ = profile("loopback")
    setup(watched.engine, daq, catalog, table=False, progress=False)
    other = Catalog.connect(catalog.uri, catalog.api_key, backup_directory=catalog.backup_directory)
    session = setup(watched.engine, daq, other, table=False, progress=False)
    assert (session.catalog, session.live) == (other, None)
    assert watched.kinds() == ["Daq.run_started", "RunWriter"]
    assert watched.engine.waiting_hook is None
    other.close()


def test_scan_ids_continue(profile: Any, tmp_path: Any) -> None:
    daq, _, _ = profile("loopback")
    for expected in (1, 2):
        with new_run_engine() as engine:
            engine.md["session"] = expected
            setup(engine, daq, table=False, metadata=tmp_path / "metadata")
            engine(bp.count([motor]))
            assert engine.md["scan_id"] == expected
            assert engine.md["session"] == expected
            # Else it writes when it is collected, and the folder may be gone.
            engine.md._finalizer()  # type: ignore[attr-defined]


def test_plots_are_as_before_unless_they_are_named(watched: Watched, profile: Any) -> None:
    daq, _, _ = profile("loopback")
    shown = []
    for plots in (None, True, None, False, None):
        session = setup(watched.engine, daq, plots=plots)
        assert session.live is not None
        shown.append(session.live._plots_enabled)
    assert shown == [False, True, True, False, False]


def test_a_folder_that_cannot_be_made_is_named_each_time(
    watched: Watched, profile: Any, tmp_path: Any
) -> None:
    daq, _, _ = profile("loopback")
    (tmp_path / "file").touch()
    for _ in range(2):
        with pytest.raises(NotADirectoryError, match="file/metadata"):
            setup(watched.engine, daq, table=False, metadata=tmp_path / "file" / "metadata")


def test_the_package_has_it_and_imports_it_when_it_is_used() -> None:
    assert daqiri_ophyd.setup is setup
    code = "import sys, daqiri_ophyd; assert 'bluesky' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
