"""Change flows, between runs and during a run."""

import asyncio
from collections.abc import Mapping
from typing import Any

from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import IllegalMessageSequence, MsgGenerator

from daqiri_ophyd.devices import Daq

from ._threads import begin, on_thread

__all__ = ["configure_flows"]

_STREAM = "flows"


def configure_flows(
    daq: Daq, flows: Mapping[str, Mapping[str, Mapping[str, Any] | None]]
) -> MsgGenerator[dict[str, list[dict[str, Any]]]]:
    """Change, add and remove flows of an engine.

    If the open engine can change its flows while packets flow, it continues, also during a run, and
    loses no packet to the change. Otherwise it is closed and reopened, and no plan may be using it.

    The flow table is part of the descriptors of every later run. During an open run, a change is an
    event of the stream ``flows``: the new flow table, as JSON by port (``<daq>_flow_table``), and
    the hash of the configuration (``<daq>_configuration_sha256``). Flows that are already as
    requested stay unchanged. If the plan fails, the named flows are restored, which is another
    event. The plan is a checkpoint: messages before it are not repeated after a pause.

    Parameters
    ----------
    daq : Daq
        The engine.
    flows : dict
        ``{port: {flow: {key: value}}}`` by the names in the configuration: ``queue`` is the name
        of a receive queue, ``id`` the flow id of its packets, ``match`` replaces the match, and any
        other key (``udp_dst``, ``ipv4_src``, ...) is one of the match; None removes it. A flow that
        does not exist is appended to the others; it needs ``id`` and ``queue``. Its device exists
        when the plan is done. None in place of the keys removes the flow.

    Returns
    -------
    dict of str to list
        Flow table of each port.

    Raises
    ------
    RuntimeError
        If the engine has to be reopened while it is staged; or if flows are added or removed while
        the engine, the port or its group of flows is staged. Bluesky's plans and
        ``stage_decorator`` stage the engine, also for one of its parts: add and remove flows
        between runs.
    bluesky.utils.IllegalMessageSequence
        If an event is open, between ``create`` and ``save``; nothing is changed then.
    LookupError
        If there is no such port, flow or queue.
    ValueError
        If devices of two flows would have the same attribute; nothing is changed then.
    daqiri_ophyd.engine.ConfigError
        If the flows are not valid; nothing is changed then.
    """
    in_run = yield from _is_in_run()
    before = daq.flows
    asked = False

    def ask() -> "asyncio.Future[None]":
        nonlocal asked
        # Requested before anything can end the plan, so that the undo follows it.
        change = daq.begin_change(flows)
        asked = True
        return asyncio.wrap_future(change)

    def change() -> MsgGenerator[None]:
        yield from begin(ask)
        if in_run and daq.flows != before:
            yield from _record(daq)

    def undo(_: Exception) -> MsgGenerator[None]:
        if not asked:
            return
        failed = daq.flows
        yield from on_thread(lambda: daq.restore_flows(before, flows))
        if in_run and daq.flows != failed:
            yield from _record(daq)

    yield from bpp.contingency_wrapper(change(), except_plan=undo)
    return daq.flows


def _is_in_run() -> MsgGenerator[bool]:
    """Return whether a run is open; raise if an event is open."""
    try:
        yield from bps.checkpoint()
    except IllegalMessageSequence as error:
        raise IllegalMessageSequence(
            "Flows are configured between 'create' and 'save' of an event, and the change is a "
            "separate event. Configure them before 'create' or after 'save'."
        ) from error

    def begin_event() -> MsgGenerator[bool]:
        try:
            yield from bps.create(_STREAM)
        except IllegalMessageSequence:
            return False
        yield from bps.drop()
        return True

    # Not rewindable: resuming from a pause would repeat messages that fail outside a run.
    in_run: bool = yield from bpp.rewindable_wrapper(begin_event(), False)
    return in_run


def _record(daq: Daq) -> MsgGenerator[None]:
    """Record the current flows as an event."""
    yield from bps.create(_STREAM)
    try:
        # Bluesky's protocols declare types that ophyd signals do not have.
        signal: Any
        for signal in (daq.flow_table, daq.configuration_sha256):
            yield from bps.read(signal)
    except Exception:
        yield from bps.drop()
        raise
    yield from bps.save()
