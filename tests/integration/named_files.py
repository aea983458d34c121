"""A check after tests: a run that succeeded names every file that its devices wrote."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_documents import Documents

from daqiri_ophyd.documents import (
    COUNTER_MIMETYPE,
    FRAME_FILES_MIMETYPE,
    frame_files,
    is_master,
)
from daqiri_ophyd.engine import examine_frames

DATA = {".pcap", ".raw", ".h5"}


def _path(uri: str) -> Path:
    return Path(uri.removeprefix("file://localhost"))


def _files_of(resource: dict[str, Any], datums: list[dict[str, Any]]) -> Iterator[Path]:
    """Yield the files in which the rows of a resource are."""
    parameters = resource["parameters"]
    spans = [(datum["indices"]["start"], datum["indices"]["stop"]) for datum in datums]
    if not spans:
        return
    if resource["mimetype"] == FRAME_FILES_MIMETYPE:
        rows = max(stop for _, stop in spans)
        for uri, _ in frame_files(resource, rows, lambda uri: examine_frames(_path(uri)).frames):
            yield _path(uri)
    elif "template" in parameters:
        for start, stop in spans:
            for index in range(start, stop):
                yield _path(resource["uri"]) / parameters["template"].format(index)
    else:
        yield _path(resource["uri"])


def files_in_no_document(documents: Documents, directory: Path) -> list[Path]:
    """Return the data files that runs that succeeded should name and do not.

    If every run succeeded, these are the files below the directory; otherwise those in the folders
    that the runs that succeeded name.
    """
    by_name = defaultdict(list)
    for name, doc in [*documents.cleared, *documents]:
        by_name[name].append(doc)
    datums = defaultdict(list)
    for doc in by_name["stream_datum"]:
        datums[doc["stream_resource"]].append(doc)
    resources = [doc for doc in by_name["stream_resource"] if doc["mimetype"] != COUNTER_MIMETYPE]
    named = {path for each in resources for path in _files_of(each, datums[each["uid"]])}
    ends = {doc["run_start"]: doc["exit_status"] for doc in by_name["stop"]}
    complete = {doc["uid"]: ends.get(doc["uid"]) == "success" for doc in by_name["start"]}
    folders = {
        _path(doc["uri"]) if "template" in doc["parameters"] else _path(doc["uri"]).parent
        for doc in resources
        if complete[doc["run_start"]]
    }
    files = {path for folder in folders for path in folder.glob("*")}
    if complete and all(complete.values()):
        files |= set(directory.rglob("*"))
    return sorted(path for path in files - named if path.suffix in DATA and not is_master(path))


@pytest.fixture(autouse=True)
def names_every_file(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test whose runs succeeded and do not name every file.

    ``@pytest.mark.files_in_no_document(REASON)``: some of its files are not in documents.
    """
    if "documents" not in request.fixturenames:
        yield
        return
    documents, directory = map(request.getfixturevalue, ("documents", "captures"))
    yield
    if request.node.get_closest_marker("files_in_no_document") is None:
        found = files_in_no_document(documents, directory)
        assert not found, f"runs succeeded, and no document names {list(map(str, found))}"
