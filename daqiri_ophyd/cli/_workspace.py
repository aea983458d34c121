"""A RunEngine, a device and a catalog, for commands that run plans."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bluesky import RunEngine
from bluesky.utils import MsgGenerator, RunEngineInterrupted

from ..catalog import Catalog
from ..devices import Daq, make_daq
from ..engine import NetworkConfig


@dataclass(frozen=True)
class Workspace:
    """What a plan needs to run and its run to be kept."""

    engine: RunEngine
    daq: Daq
    catalog: Catalog

    def run(self, plan: MsgGenerator[Any]) -> str:
        """Run a plan of one run; returns its uid. Ctrl-C aborts it, with files and run complete."""
        try:
            uids: Any = self.engine(plan)
        except RunEngineInterrupted:
            self.engine.abort(reason="interrupted from the keyboard")
            raise KeyboardInterrupt from None
        return uids[-1]


def captures_of(data: Path) -> Path:
    """Return the directory of captures below a data directory."""
    return data.resolve() / "captures"


def open_catalog(data: Path) -> Catalog:
    """Open the catalog of a data directory, which is made if missing."""
    captures = captures_of(data)
    captures.mkdir(parents=True, exist_ok=True)
    return Catalog.open(data.resolve() / "catalog", readable=[captures])


@contextmanager
def open_workspace(config: NetworkConfig | dict[str, Any], data: Path) -> Iterator[Workspace]:
    """Open everything; closed again in the opposite order."""
    with open_catalog(data) as catalog, make_daq(config, directory=captures_of(data)) as daq:
        engine = RunEngine(context_managers=None)
        engine.subscribe(catalog.writer())
        yield Workspace(engine, daq, catalog)


def part_of(daq: Daq, port: str) -> Any:
    """Return the device of a port by its name in the configuration."""
    for attribute in daq.component_names:
        part = getattr(daq, attribute)
        if getattr(part, "port_name", None) == port:
            return part
    raise LookupError(f"{daq.name} has no port {port!r}")


def member_of(group: Any, name: str | None) -> Any:
    """Return a queue's device by its name in the configuration; None: the first."""
    members = [getattr(group, attribute) for attribute in group.component_names]
    for member in members:
        if name in (None, member.member_name):
            return member
    found = ", ".join(member.member_name for member in members) or "none"
    raise LookupError(f"{group.name} has no {name!r}; it has {found}")
