"""Documents of runs, and waiting in plans."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import event_model
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky.utils import MsgGenerator

from daqiri_ophyd.documents import COUNTER_MIMETYPE


@contextmanager
def new_run_engine(**options: Any) -> Iterator[RunEngine]:
    """A RunEngine whose thread and event loop end with the block; by itself, they never do.

    Where a test left it running or paused, they stay: its plan would be torn from its loop.
    """
    engine = RunEngine({}, context_managers=[], **options)
    try:
        yield engine
    finally:
        if engine.state == "idle":
            engine.loop.call_soon_threadsafe(engine.loop.stop)
            engine._th.join(60)
            engine.loop.close()


class Documents(list):
    """The documents of runs, each validated against its schema on arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.cleared: list[tuple[str, dict[str, Any]]] = []  # earlier in a test

    def clear(self) -> None:
        self.cleared += self
        super().clear()

    def take(self, name: str, doc: dict[str, Any]) -> None:
        event_model.schema_validators[event_model.DocumentNames[name]].validate(doc)
        json.dumps(doc)  # as sent to a server
        self.append((name, doc))

    def of(self, name: str) -> list[dict[str, Any]]:
        return [doc for kind, doc in self if kind == name]

    @property
    def stop(self) -> dict[str, Any]:
        return self.of("stop")[-1]

    def descriptor(self, stream: str = "primary") -> dict[str, Any]:
        return next(doc for doc in self.of("descriptor") if doc["name"] == stream)

    def rows(self, stream: str = "primary") -> list[dict[str, Any]]:
        """Data of the events of a stream, pages unpacked."""
        uid = self.descriptor(stream)["uid"]
        events = []
        for name, doc in self:
            if name == "event_page":
                events += event_model.unpack_event_page(doc)
            elif name == "event":
                events.append(doc)
        events = [event for event in events if event["descriptor"] == uid]
        assert [event["seq_num"] for event in events] == list(range(1, len(events) + 1))
        return [event["data"] for event in events]

    def files(self, stream: str | None = None) -> list[Path]:
        """The files that stream documents name, in order, of one stream or of all."""
        resources = {doc["uid"]: doc for doc in self.of("stream_resource")}
        streams = {doc["uid"]: doc["name"] for doc in self.of("descriptor")}
        users: dict[str, set[str]] = {}
        found = []
        for datum in self.of("stream_datum"):
            resource = resources[datum["stream_resource"]]
            # A writer takes all files of a resource for those of one stream.
            users.setdefault(resource["uid"], set()).add(datum["descriptor"])
            assert len(users[resource["uid"]]) == 1
            if stream not in (None, streams[datum["descriptor"]]):
                continue
            if resource["mimetype"] == COUNTER_MIMETYPE:
                continue
            folder = Path(resource["uri"].removeprefix("file://localhost"))
            indices = datum["indices"]
            for index in range(indices["start"], indices["stop"]):
                found.append(folder / resource["parameters"]["template"].format(index))
        return found


def until(condition: Callable[[], object]) -> MsgGenerator[None]:
    """Let the RunEngine continue until a condition holds."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        yield from bps.sleep(0.01)
