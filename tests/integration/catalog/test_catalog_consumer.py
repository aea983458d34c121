"""A consumer of documents in another process, as in the how-to guide."""

import json
import re
from pathlib import Path

import pytest
from bluesky import plans as bp
from event_model import NumpyEncoder
from preloaded_processes import run_preloaded

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "facility-catalog.md"


@pytest.mark.parametrize("kind", ["step", "fly"])
def test_documents_through_a_pipe(
    catalog, device, run_engine, fly_plan, kind, tmp_path, monkeypatch
):
    (program,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", HOW_TO.read_text(), re.S)
        if "sys.stdin" in block
    )
    address = "http://tiled.facility.example:8000/api/v1/metadata/runs"
    assert address in program
    monkeypatch.setenv("TILED_API_KEY", catalog.api_key)
    lines = []
    run_engine.subscribe(
        lambda name, doc: lines.append(json.dumps([name, doc], cls=NumpyEncoder) + "\n")
    )
    (uid,) = run_engine(bp.count([device], 3) if kind == "step" else fly_plan(device))
    done = run_preloaded("-c", program.replace(address, catalog.uri), given="".join(lines))
    assert done.returncode == 0, done.stderr
    (stream,) = catalog.client[uid]
    rows = catalog.client[uid][stream].base["soft_files", "summaries"].read()
    assert rows["packets"].tolist() == [2, 3, 4]
