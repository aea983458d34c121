"""Capture while another plan runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import Msg, MsgGenerator, make_decorator

from daqiri_ophyd.devices import FrameDetector, TxQueue

from ._flight import Flight, Recording, Recordings, Streams
from ._metadata import engine_metadata_wrapper
from ._settings import limits, with_settings

__all__ = ["capture_during", "capture_during_decorator", "capture_during_wrapper"]


def capture_during(
    detector: Recordings | Mapping[str, Recordings],
    plan: MsgGenerator[Any],
    *,
    tx: TxQueue | None = None,
    stream: str = "primary",
    flush_period: float = 0.5,
    num_packets: int | None = None,
    acquire_time: float | None = None,
    num_frames: int | None = None,
) -> MsgGenerator[Any]:
    """Capture while a plan runs, in the open run.

    The capture begins before the first message of the plan. It ends after the last one, or later if
    it has a limit (`num_packets`, `acquire_time`) that is not reached yet. If the plan or the
    capture fails, the files recorded so far are part of the run.

    A pause also pauses the capture. After the pause, the RunEngine repeats the plan from its last
    checkpoint, and the capture continues.

    Parameters
    ----------
    detector : Capture, FrameDetector, sequence of these, or mapping
        Capture of a port, or detector of a reorder plan's frames; it must be staged. Several
        detectors in a list share the stream. Each must be prepared for the same number of rows,
        which are files (`CaptureTrigger`) or frames. A mapping gives each detector its own stream:
        ``{"images": detector, "packets": capture}``.
    plan : generator
        Plan to run during the capture, such as ``bps.mv(motor, 10)``. It may not open a run; see
        `capture_during_wrapper`.
    tx : TxQueue, optional
        A prepared and staged transmit queue that sends during the capture. Its row is in the stream
        ``transmit``.
    stream : str
        Stream of the files and their counters, unless ``detector`` is a mapping.
    flush_period : float
        Time between collections of rows, s. While the plan runs, they are collected at its
        checkpoints.
    num_packets, acquire_time, num_frames : int, float, int, optional
        Limits of this recording: packets of captures, time (s), frames of frame detectors. The
        settings are restored afterwards. 0: no limit, as for those that are not given. If none is
        given, the settings apply. ``num_frames`` prepares a frame detector for this recording.

    Returns
    -------
    Any
        Return value of the plan.

    Raises
    ------
    FailedStatus
        If the capture or the transmission fails.
    ValueError
        If one of several detectors in a stream is not prepared, is prepared for another number of
        rows, or is given twice.
    """
    settings = limits(_detectors(detector), num_packets, acquire_time, num_frames)
    # A staged frame detector accepts a number of frames only so.
    frames = {signal: n for signal, n in settings.items() if signal.attr_name == "num_frames"}

    before = {signal: signal.parent.prepared for signal in frames}

    def prepare(numbers: Mapping[Any, int | None]) -> MsgGenerator[None]:
        for signal, number in numbers.items():
            yield from bps.prepare(signal.parent, number, wait=True)

    def during() -> MsgGenerator[Any]:
        yield from prepare(frames)
        flight = Flight(_streams(detector, tx, stream), flush_period)

        def run() -> MsgGenerator[Any]:
            yield from flight.start()
            result = yield from bpp.plan_mutator(plan, lambda msg: (None, flight.collect_at(msg)))
            yield from flight.end()
            return result

        return (yield from bpp.contingency_wrapper(run(), except_plan=flight.recover))

    settings = {signal: value for signal, value in settings.items() if signal not in frames}
    recording = with_settings(settings, during()) if settings else during()
    if frames:
        recording = bpp.finalize_wrapper(recording, lambda: prepare(before))
    return (yield from recording)


def _detectors(given: Any) -> list[Recording]:
    """Return all detectors, which are given alone, in a list or by stream."""
    groups = given.values() if isinstance(given, Mapping) else [given]
    return [one for some in groups for one in _as_list(some)]


def _as_list(given: Any) -> list[Recording]:
    """Return detectors that are given for one stream."""
    detectors = list(given) if isinstance(given, Sequence) else [given]
    for one in detectors or [given]:
        if not isinstance(one, Recording):
            raise TypeError(
                f"detector is {getattr(one, 'name', None) or repr(one)}; accepted are a capture, "
                "daq.<port>.capture, a frame detector, daq.<port>.frames.<plan>, a list of "
                "these, and {stream: detector, ...}."
            )
    return detectors


def _streams(given: Any, tx: TxQueue | None, stream: str) -> Streams:
    """Return the detectors of each stream, and the transmission in ``transmit``."""
    named = given if isinstance(given, Mapping) else {stream: given}
    if tx is not None and "transmit" in named:
        raise ValueError(f"stream 'transmit' is used by {tx.name}; give the detector another one.")
    streams = {name: _recordings(some, name) for name, some in named.items()}
    recordings = [one for some in streams.values() for one in some]
    if not recordings:
        raise ValueError("no detector is given; accepted is {stream: detector, ...}.")
    for one in recordings:
        if recordings.count(one) > 1 and len(streams) > 1:
            raise ValueError(f"{one.name} is in several streams; give it one.")
    return streams if tx is None else {**streams, "transmit": [tx]}


def _recordings(given: Any, stream: str) -> Sequence[Recording]:
    """Return detectors that can be flown in one stream."""
    recordings = _as_list(given)
    if len(recordings) == 1:
        return recordings
    for one in recordings:
        if not one.prepared:
            how = (
                "bps.prepare(detector, 100), for 100 frames"
                if isinstance(one, FrameDetector)
                else "bps.prepare(capture, CaptureTrigger(number_of_files=..., "
                "packets_per_file=...))"
            )
            raise ValueError(
                f"{one.name} cannot share stream {stream!r}: it is not prepared. Prepare it first: "
                f"{how}; or give each detector a stream, {{stream: detector, ...}}."
            )
    rows = {one.name: _rows(one) for one in recordings}
    if len(rows) < len(recordings) or len(set(rows.values())) > 1:
        numbers = ", ".join(f"{one.name}: {rows[one.name]}" for one in recordings)
        raise ValueError(
            f"Detectors that share stream {stream!r} must have equal numbers of rows, files or "
            f"frames, each detector once; found {numbers}. Prepare them for the same number."
        )
    return recordings


def _rows(one: Recording) -> int:
    """Return the rows of a prepared detector."""
    if isinstance(one, FrameDetector):
        return one.prepared or 0
    return one.num_packets.get() // max(1, one.roll_packets.get())


def capture_during_wrapper(
    plan: MsgGenerator[Any],
    detector: Recording | Mapping[str, Recording],
    *,
    tx: TxQueue | None = None,
    stream: str = "packets",
    flush_period: float = 0.5,
    num_packets: int | None = None,
    acquire_time: float | None = None,
    num_frames: int | None = None,
) -> MsgGenerator[Any]:
    """Capture during each run of a plan, such as ``bp.scan([diode], motor, 0, 1, 11)``.

    The devices are staged first. The capture begins when a run is opened, and ends before it is
    closed; see `capture_during`.

    Parameters
    ----------
    plan : generator
        A plan that opens and closes runs.
    detector : Capture, FrameDetector or mapping
        As for `capture_during`; each of several needs its own stream.
    tx, flush_period
        As for `capture_during`.
    stream : str
        Stream of the files and their counters, unless ``detector`` is a mapping; not a stream of
        the plan.
    num_packets, acquire_time, num_frames : int, float, int, optional
        Limits of each recording, as for `capture_during`; set before the devices are staged, and
        restored after they are unstaged.

    Returns
    -------
    Any
        Return value of the plan.

    Raises
    ------
    FailedStatus
        If the capture or the transmission fails.
    """
    streams = _streams(detector, tx, stream)
    devices = [device for devices in streams.values() for device in devices]
    flights = [Flight(streams, flush_period)]

    def insert(msg: Msg) -> tuple[MsgGenerator[Any] | None, MsgGenerator[Any] | None]:
        flight = flights[-1]
        if msg.command == "open_run":
            if msg.run is not None or flight.running:
                raise ValueError(
                    f"a capture cannot be in run {msg.run!r}: capture_during_wrapper is for plans "
                    "that open one run after the other, without keys."
                )
            flights.append(Flight(streams, flush_period))
            return None, flights[-1].start()
        if msg.command == "close_run" and flight.running:
            # A run that ends early has an exit status, also after RE.stop().
            early = msg.kwargs.get("exit_status") is not None
            return _before(msg, flight.recover if early else flight.end), None
        return None, flight.collect_at(msg)

    def run() -> MsgGenerator[Any]:
        return (yield from bpp.plan_mutator(plan, insert))

    def recover(error: Exception) -> MsgGenerator[None]:
        yield from flights[-1].recover(error)

    def staged() -> MsgGenerator[Any]:
        return (yield from bpp.contingency_wrapper(run(), except_plan=recover))

    settings = limits(_detectors(detector), num_packets, acquire_time, num_frames)
    whole = engine_metadata_wrapper(bpp.stage_wrapper(staged(), devices))
    return (yield from with_settings(settings, whole) if settings else whole)


capture_during_decorator = make_decorator(capture_during_wrapper)
"""`capture_during_wrapper` as a decorator: ``capture_during_decorator(detector, ...)``."""


def _before(msg: Msg, first: Callable[[], MsgGenerator[None]]) -> MsgGenerator[Any]:
    yield from first()
    return (yield msg)
