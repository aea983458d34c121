"""Change flows, between runs and within one."""

from collections.abc import Mapping
from typing import Any

from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import IllegalMessageSequence, MsgGenerator

from daqiri_ophyd.devices import Daq

from ._threads import on_thread

__all__ = ["configure_flows"]

_STREAM = "flows"


def configure_flows(
    daq: Daq, flows: Mapping[str, Mapping[str, Mapping[str, Any] | None]]
) -> MsgGenerator[dict[str, list[dict[str, Any]]]]:
    """Change, add and remove flows of an engine.

    An open engine that can change its flows while packets flow goes on, also within a run; no
    packet is lost to the change. Any other is closed and opened again, and no plan may be using it.

    The flow table is part of the descriptors of every later run. In an open run, a change is an
    event of the stream ``flows``: the flow table that is then in force, as JSON by port
    (``<daq>_flow_table``), and the hash of the configuration (``<daq>_configuration_sha256``). What
    is so already is not changed. If the plan fails, the flows that it names are as before, and
    another event says so. The plan is a checkpoint: what was read before is not repeated after a
    pause.

    Parameters
    ----------
    daq : Daq
        The engine.
    flows : dict
        ``{port: {flow: {key: value}}}`` by the names in the configuration: ``queue`` is the name
        of a receive queue, ``id`` the flow id of its packets, ``match`` replaces the match, and any
        other key (``udp_dst``, ``ipv4_src``, ...) is one of the match; None removes it. A flow that
        does not exist is added behind the others if it has ``id`` and ``queue``; its device is
        there when the plan is done. None in place of the keys removes the flow.

    Returns
    -------
    dict of str to list
        Flow table of each port.

    Raises
    ------
    RuntimeError
        If the engine has to be opened anew, and is staged; or if flows are added or removed, and
        the engine, the port or its group of flows is staged.
    bluesky.utils.IllegalMessageSequence
        If an event is being made, between ``create`` and ``save``; nothing is changed then.
    LookupError
        If there is no such port, flow or queue.
    ValueError
        If devices of two flows would have the same attribute; nothing is changed then.
    daqiri_ophyd.engine.ConfigError
        If the flows are not valid; nothing is changed then.
    """
    in_run = yield from _is_in_run()
    before = daq.flows
    # Asked for before anything can end the plan: what undoes it comes behind it.
    asked = daq.begin_change(flows)

    def change() -> MsgGenerator[None]:
        yield from on_thread(asked.result)
        if in_run and daq.flows != before:
            yield from _record(daq)

    def undo(_: Exception) -> MsgGenerator[None]:
        failed = daq.flows
        yield from on_thread(lambda: daq.restore_flows(before, flows))
        if in_run and daq.flows != failed:
            yield from _record(daq)

    yield from bpp.contingency_wrapper(change(), except_plan=undo)
    return daq.flows


def _is_in_run() -> MsgGenerator[bool]:
    """Return whether a run is open; raise if it makes an event at the moment."""
    try:
        yield from bps.checkpoint()
    except IllegalMessageSequence as error:
        raise IllegalMessageSequence(
            "Flows are configured between 'create' and 'save' of an event, and the change is an "
            "event of its own. Configure them before 'create' or after 'save'."
        ) from error

    def begin_event() -> MsgGenerator[bool]:
        try:
            yield from bps.create(_STREAM)
        except IllegalMessageSequence:
            return False
        yield from bps.drop()
        return True

    # Not rewindable: resuming from a pause would repeat what fails outside a run.
    in_run: bool = yield from bpp.rewindable_wrapper(begin_event(), False)
    return in_run


def _record(daq: Daq) -> MsgGenerator[None]:
    """Make an event of the flows in force."""
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
