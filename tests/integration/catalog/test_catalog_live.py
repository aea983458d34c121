"""Runs that are read while they are in progress."""

import numpy as np
import pytest
from bluesky import plans as bp
from tiled.client import from_uri

from daqiri_ophyd.catalog import CaptureNotFoundError, capture_files


@pytest.fixture
def client(catalog):
    """A client as in another process: it does not wait for writers of this one."""
    client = from_uri(catalog.uri, api_key=catalog.api_key)
    yield client
    client.context.close()


@pytest.mark.parametrize("kind", ["step", "fly"])
def test_rows_that_a_client_knows_are_read(catalog, client, device, run_engine, fly_plan, kind):
    """Tiled's clients know the shape of a node when they look it up."""
    device.files_in_flight = 12
    stream = "primary" if kind == "step" else "files"
    seen, early = [], []

    def look() -> None:
        catalog.flush()
        if len(device.written) == 3:
            early.append(client[-1][stream].base["soft_files"])
            early.append(client[-1][stream].base["soft_files", "summaries"])
        if early:
            known = len(early[0].structure().chunks[0])
            seen.append((known, early[0].read().tolist()))
            assert len(early[0][:known]) == known

    if kind == "step":
        device.before_read = look
    else:
        device.before_write = look
    run_engine.subscribe(catalog.writer(batch_size=1))
    run_engine(bp.count([device], 12) if kind == "step" else fly_plan(device))
    assert len(seen) > 5
    names = [path.name for path in device.written]
    assert [found for _, found in seen] == [names[:known] for known, _ in seen]
    # Looked up again, all of them.
    catalog.flush()
    assert client[-1][stream].base["soft_files"].read().tolist() == names
    # And without a shape, as browsers do.
    context = catalog.client.context
    path = early[0].uri.partition("/metadata/")[2]
    whole = context.http_client.get(f"{context.api_uri}array/full/{path}?format=application/json")
    assert whole.json() == names


def test_a_shape_that_never_was_is_an_error(catalog, device, run_engine):
    run_engine.subscribe(catalog.writer())
    (uid,) = run_engine(bp.count([device], 3))
    context = catalog.client.context
    path = catalog.client[uid]["primary"].base["soft_files"].uri.partition("/metadata/")[2]
    for shape, status in (("2", 200), ("3", 200), ("4", 500), ("3,1", 500), ("scalar", 500)):
        address = f"{context.api_uri}array/full/{path}?expected_shape={shape}"
        assert context.http_client.get(address).status_code == status, shape
    wrong = f"{context.api_uri}array/full/{path}?expected_shape=x"
    assert context.http_client.get(wrong).status_code == 422


def test_a_run_without_its_end_says_so(catalog, client, device, run_engine):
    found = []

    def look() -> None:
        catalog.flush()
        with pytest.raises(CaptureNotFoundError) as raised:
            capture_files(client[-1], readable=[device.folder])
        found.append(str(raised.value))

    device.before_read = look
    run_engine.subscribe(catalog.writer())
    (uid,) = run_engine(bp.count([device]))
    assert found[0].startswith(f"Run {uid}: no such capture. Captures found: none.")
    assert "The run has no stop document yet: it is in progress" in found[0]
    np.testing.assert_array_equal(capture_files(catalog.client[uid]), device.written)
