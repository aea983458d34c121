"""Settings of a capture."""

from collections.abc import Mapping, Sequence
from typing import Any

from daqiri_ophyd.engine import QueueRecording, queue_names

from ...parts._signals import setting
from ...reductions import Reduction
from .._errors import CaptureError
from .._paths import PathTemplate
from .._settings import LONGEST_S, RecordingSettings
from ._columns import CaptureColumns

__all__ = ["CaptureSettings"]

# Settings that are parameters of `RxQueue.record`. A step scan writes one file per reading, so it
# does not use the settings for rolling.
_RECORD_SETTINGS = ("format", "nanosecond", "packet_data_offset", "writer", "on_error", "durable")
_ROLL_SETTINGS = ("roll_packets", "roll_bytes", "roll_seconds")


class CaptureSettings(RecordingSettings):
    """Settings of a capture: its queues, its limits, and its files.

    Files go to ``<directory>/<path>/<file_prefix>_000000.pcap``. `path` and `file_prefix` are
    templates, see `PathTemplate`. With several queues, the names of a queue's files include the
    name of the queue. If readers mount `directory` elsewhere, set `uri` to its address there;
    documents then have this address. A path provider of the engine's device (`Daq.path_provider`)
    replaces all four.

    Parameters
    ----------
    queues : sequence of str
        Receive queues that can be recorded. The setting `queues` selects one by name, several
        (``"rx_q0,rx_q1"``), or ``all``; the default is the first.
    """

    queues = setting("")
    num_packets = setting(0, "packets", minimum=0)
    acquire_time = setting(0.0, "s", minimum=0.0, maximum=LONGEST_S)
    roll_packets = setting(0, "packets", minimum=0)
    roll_bytes = setting(0, "byte", minimum=0)
    roll_seconds = setting(0.0, "s", minimum=0.0, maximum=LONGEST_S)
    start_flow = setting("")
    deadtime = setting(0.0, "s", minimum=0.0)
    file_timeout = setting(0.0, "s", minimum=0.0)
    format = setting("pcap", choices=("pcap", "raw"))
    nanosecond = setting(True)
    packet_data_offset = setting(0, "byte", minimum=0)

    FIXED = ("queues", "format", *RecordingSettings.FIXED)
    REDUCED = "packets"
    COLUMNS = ("files",)

    def __init__(self, prefix: str = "", *, queues: Sequence[str], **kwargs: Any) -> None:
        self._known_queues = tuple(queues)
        super().__init__(prefix, **kwargs)
        self.queues.restrict(self._checked_queues, queues[0])

    @property
    def selected_queues(self) -> list[str]:
        """Names of the queues that are recorded."""
        return queue_names(self.queues.get(), self._known_queues)

    def _require_reductions(self, reductions: Mapping[str, Reduction]) -> None:
        # Raises if a name is too long for the columns.
        CaptureColumns(self.name, self.port_name, self.selected_queues, reductions)

    def _checked_queues(self, text: str) -> str:
        queue_names(text, self._known_queues)
        return text

    def start_flow_id(self) -> int | None:
        """Return the id of the flow with which a recording begins; None: at once.

        Raises
        ------
        CaptureError
            If there is no such flow, its id is 0, or it does not lead to the recorded queue.
        """
        name, queues = self.start_flow.get(), self.selected_queues
        if not name:
            return None
        if len(queues) > 1:
            raise CaptureError(
                f"{self.start_flow.name} is {name!r}, and there are several queues, which have no "
                "common order. Record one, or use a capture for each."
            )
        flow = self.find_start_flow(name)
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
        """Whether a capture ends by itself, because a number of packets or a time is set."""
        return self.num_packets.get() > 0 or self.acquire_time.get() > 0

    def path_template(self) -> PathTemplate:
        """Return the values of templates for a stage that begins now."""
        queues = self.selected_queues
        return PathTemplate(
            device=self.name, port=self.port_name, queue=queues[0] if len(queues) == 1 else "all"
        )

    def _recorder_settings(self, *, rolling: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the limits and the options of recorders, as for `RxQueue.record`.

        Raises
        ------
        CaptureError
            If a setting is not accepted with several queues, or the start flow does not lead there.
        """
        if len(self.selected_queues) > 1 and self.on_error.get() == "resume":
            raise CaptureError(
                f"{self.name}: with several queues on_error cannot be 'resume', because after an "
                "error their files would not belong together. Use 'stop', or a capture for each."
            )
        options = {name: getattr(self, name).get() for name in _RECORD_SETTINGS}
        options["start_flow"] = self.start_flow_id()
        limits = {name: getattr(self, name).get() for name in _ROLL_SETTINGS if rolling}
        limits |= {"max_packets": self.num_packets.get(), "max_seconds": self.acquire_time.get()}
        return limits, options

    def _require_same(self, recording: QueueRecording, settings: Mapping[str, Any]) -> None:
        """Raise `CaptureError` if a recording that runs is not what the settings ask for."""
        if recording.port is not self.daq.port(self.port_name):
            raise CaptureError(
                f"{self.name}: the recording to continue is of port {recording.port.name!r} of an "
                f"engine; start it on port {self.port_name!r} of the open engine of "
                f"{self.daq.name}."
            )
        found = {"queues": list(recording.queues), **recording.settings}
        wanted = {"queues": list(self.selected_queues), "first_number": 0, **settings}
        for name, value in wanted.items():
            if found.get(name) != value:
                raise CaptureError(
                    f"{self.name}: the recording to continue has {name} {found.get(name)!r}, and "
                    f"the setting is {value!r}. Start it with the settings of the capture."
                )
