"""Change flows between runs."""

from collections.abc import Mapping
from typing import Any

from bluesky import plan_stubs as bps
from bluesky.utils import MsgGenerator

from daqiri_ophyd.devices import Daq

from ._threads import on_thread

__all__ = ["configure_flows"]


def configure_flows(
    daq: Daq, flows: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> MsgGenerator[dict[str, list[dict[str, Any]]]]:
    """Change flows of an engine that no plan uses.

    Flows are fixed while an engine is open, so an open engine is closed and opened again. The flow
    table is part of the descriptors of every later run.

    Parameters
    ----------
    daq : Daq
        The engine.
    flows : dict
        ``{port: {flow: {key: value}}}`` by the names in the configuration: ``queue`` is the name
        of a receive queue, ``id`` the flow id of its packets, ``match`` replaces the match, and any
        other key (``udp_dst``, ``ipv4_src``, ...) is one of the match; None removes it.

    Returns
    -------
    dict of str to list
        Flow table of each port.

    Raises
    ------
    RuntimeError
        If the engine is staged.
    LookupError
        If there is no such port, flow or queue.
    daqiri_ophyd.engine.ConfigError
        If the flows are not valid; nothing is changed then.
    """
    yield from on_thread(lambda: daq.change_flows(flows))
    # It changes nothing more, but makes new descriptors in an open run.
    # Bluesky's protocols declare types that ophyd devices do not have.
    device: Any = daq
    yield from bps.configure(device, {"flows": flows})
    return daq.flows
