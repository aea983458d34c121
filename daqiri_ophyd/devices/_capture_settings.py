"""Settings of a capture."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from daqiri_ophyd.documents import directory_uri

from ._base import EngineDevice
from ._flow import find_named
from ._outcome import CaptureError
from ._paths import PathInfo, PathTemplate, expand_user
from ._signals import setting
from ._stop_rule import StopRule

__all__ = ["CaptureSettings"]


def _checked_directory(path: str) -> str:
    path = expand_user(path)
    if path:
        directory_uri(Path(path).absolute())
    return path


def _checked_prefix(template: str) -> str:
    for literal in re.split(r"\{[^}]*\}", PathTemplate.check(template)):
        if not re.fullmatch(r"[A-Za-z0-9_.-]*", literal):
            raise ValueError(
                f"{template!r} cannot begin a file name; accepted are letters, digits, '_', '.', "
                "'-' and fields such as {scan_id}."
            )
    if not template:
        raise ValueError("The file names need a prefix, such as {port}.")
    return template


def _checked_uri(uri: str) -> str:
    if uri and not uri.startswith("file://localhost/"):
        raise ValueError(
            f"{uri!r} is not the address of a directory; accepted is file://localhost/..."
        )
    return uri


class CaptureSettings(EngineDevice):
    """Settings of a capture: what it records, when it ends, and where it writes.

    Files go to ``<directory>/<path>/<file_prefix>_000000.pcap``. `path` and `file_prefix` are
    templates, see `PathTemplate`; of several queues, each has its name in those of its files.
    Readers that mount `directory` elsewhere find it at `uri`, which
    is what documents have. A path provider of the engine's device (`Daq.path_provider`) takes the
    place of all four.

    Parameters
    ----------
    queues : sequence of str
        Receive queues that can be recorded; the first is unless `queues` is set: to the name of
        one, of several (``"rx_q0,rx_q1"``), or to ``all``.
    """

    queues = setting("")
    num_packets = setting(0, "packets", minimum=0)
    acquire_time = setting(0.0, "s", minimum=0.0)
    roll_packets = setting(0, "packets", minimum=0)
    roll_bytes = setting(0, "byte", minimum=0)
    roll_seconds = setting(0.0, "s", minimum=0.0)
    start_flow = setting("")
    deadtime = setting(0.0, "s", minimum=0.0)
    file_timeout = setting(0.0, "s", minimum=0.0)
    format = setting("pcap", choices=("pcap", "raw"))
    nanosecond = setting(True)
    packet_data_offset = setting(0, "byte", minimum=0)
    writer = setting("buffered", choices=("buffered", "direct", "auto"))
    durable = setting(False)
    on_error = setting("stop", choices=("stop", "resume"))
    on_drop = setting("fail", choices=("fail", "flag", "ignore"))
    timeout = setting(10.0, "s", minimum=0.001)
    linger = setting(0.1, "s", minimum=0.0)
    directory = setting("", accept=_checked_directory)
    path = setting("{date:%Y/%m/%d}/{unique}", accept=PathTemplate.check)
    file_prefix = setting("{port}", accept=_checked_prefix)
    uri = setting("", accept=_checked_uri)

    def __init__(self, prefix: str = "", *, queues: Sequence[str], **kwargs: Any) -> None:
        self._known_queues = tuple(queues)
        super().__init__(prefix, **kwargs)
        self.queues.restrict(self._checked_queues, queues[0])
        self.directory.put(str(self.daq.directory or ""))

    @property
    def selected_queues(self) -> list[str]:
        """Names of the queues that are recorded."""
        return self._named_queues(self.queues.get())

    def _named_queues(self, text: str) -> list[str]:
        if text in self._known_queues:
            return [text]
        if text == "all":
            return list(self._known_queues)
        return [name.strip() for name in text.split(",")]

    def _checked_queues(self, text: str) -> str:
        names = self._named_queues(text)
        for name in names:
            if name not in self._known_queues:
                known = ", ".join(map(repr, self._known_queues))
                raise ValueError(
                    f"{name!r} is not a receive queue; accepted are {known}, several with "
                    "commas, and 'all'."
                )
        if len(set(names)) < len(names):
            raise ValueError(f"{text!r} names a queue twice.")
        return text

    def start_flow_id(self) -> int | None:
        """Return the id of the flow with which a recording begins; None: it begins at once.

        Raises
        ------
        CaptureError
            If there is no such flow, its id is 0, or it does not lead to the queue that is
            recorded.
        """
        name, queues = self.start_flow.get(), self.selected_queues
        if not name:
            return None
        if len(queues) > 1:
            raise CaptureError(
                f"{self.start_flow.name} is {name!r}, and there are several queues, which have no "
                "common order. Record one, or use a capture for each."
            )
        try:
            where = f"{self.start_flow.name}: port {self.port_name!r}"
            flow = find_named(self.daq.flows[self.port_name], name, "flow", where)
        except LookupError as error:
            raise CaptureError(error.args[0]) from None
        if not flow["id"]:
            raise CaptureError(
                f"{self.start_flow.name}: flow {name!r} has id 0, as packets that match no flow. "
                "Give it an id from 1 on."
            )
        last = (flow.get("actions") or [flow["action"]])[-1]
        reached = last.get("ids") or [last["id"]]
        names = [queue.name for queue in self.interface.rx.queues if queue.id in reached]
        if queues[0] not in names:
            raise CaptureError(
                f"{self.start_flow.name}: flow {name!r} leads to {', '.join(names)}, and "
                f"{queues[0]!r} is recorded. Set queues to the one that has it."
            )
        return flow["id"]

    @property
    def limited(self) -> bool:
        """Whether a capture ends by itself: a number of packets or a time is set."""
        return self.stop_rule().finite

    def stop_rule(self) -> StopRule:
        """Return a stop rule with the limits that are set."""
        return StopRule(self.num_packets.get(), self.acquire_time.get())

    def path_template(self) -> PathTemplate:
        """Return the values for the templates of a stage that begins now."""
        queues = self.selected_queues
        return PathTemplate(
            device=self.name, port=self.port_name, queue=queues[0] if len(queues) == 1 else "all"
        )

    def path_info(self, template: PathTemplate) -> PathInfo:
        """Return where to write now.

        Parameters
        ----------
        template : PathTemplate
            The values of this stage.

        Raises
        ------
        CaptureError
            If a template needs something that is not known.
        """
        provider = self.daq.path_provider
        if provider is not None:
            return provider(self.name)
        root = Path(self.directory.get()).resolve()
        below = template.expand(self.path.get(), self.daq.start_document)
        if not (root / below).resolve().is_relative_to(root):
            raise CaptureError(f"{self.name}: the path {below!r} leads out of {root}.")
        name = template.expand(self.file_prefix.get(), self.daq.start_document)
        uri = self.uri.get()
        return PathInfo(
            root / below,
            re.sub(r"[^A-Za-z0-9_.-]", "_", name),
            f"{uri.rstrip('/')}/{below}" if uri else None,
        )
