"""The device tree of a configuration."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ophyd import Component as Cpt
from ophyd.device import create_device_from_components
from ophyd.ophydobj import Kind

from daqiri_ophyd.engine import (
    ConfigSource,
    InterfaceConfig,
    NetworkConfig,
    ReorderConfig,
    load_config,
)

from ..daq._configuration import find_named, flow_table, gpu_indices, region_table
from ..daq._daq import Daq
from ..daq._gpu import Gpu
from ..daq._memory_region import MemoryRegion
from ..daq._port import Link, Port
from ..parts._base import EngineDevice, Group
from ..recording._paths import PathProvider
from ..recording.frames._frame_detector import FrameDetector
from ..recording.frames._reorder import ReorderPlan
from ..recording.packets._capture import Capture
from ..traffic._flow import flow_class
from ..traffic._rx_queue import RxQueue
from ..traffic._tx_queue import TxQueue
from ._data_keys import require_data_keys
from ._naming import attribute_names

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Tree = TypeVar("Tree", bound=Daq, default=Daq)

__all__ = ["make_daq"]


def make_daq(
    config: ConfigSource,
    name: str = "daq",
    *,
    directory: str | Path | PathProvider | None = None,
    ship_to: str = "",
    **kwargs: Any,
) -> "Tree":
    """Create the device tree of a configuration. The engine is not opened yet.

    Parameters
    ----------
    config : NetworkConfig, dict, str or Path
        A configuration, or anything that `daqiri_ophyd.engine.load_config` accepts.
    name : str
        Name of the device.
    directory : str, Path or PathProvider, optional
        Directory of captures, in which each stage creates a subdirectory; or a path provider, such
        as one of ophyd-async, which selects where they are written.
    ship_to : str
        Address of an object store for the files, ``s3://bucket/prefix``; see the setting `ship_to`
        of captures and of frame detectors. Default: that of the configuration.
    **kwargs
        Passed to `Daq`, such as ``labels``.

    Returns
    -------
    Daq
        A type checker uses the declared type of the variable, such as the tree of the configuration
        that `typed_tree` writes.

    Raises
    ------
    ConfigError
        If the configuration is not valid; the message is the full report.
    ValueError
        If two names would have the same attribute or, shortened, the same data key, or names are so
        long that catalogs cannot store a reading.
    """
    read = config if isinstance(config, NetworkConfig) else load_config(config)
    ports = {interface.name: interface for interface in read.interfaces}
    document = read.to_dict()
    regions = [region["name"] for region in region_table(document)]
    components = {"regions": _group("MemoryRegions", MemoryRegion, "", regions, "region")}
    if gpus := [str(index) for index in gpu_indices(document)]:
        labels = {"daqiri", "detectors"}
        components["gpus"] = _group("Gpus", Gpu, "", gpus, "gpu", kind=Kind.omitted, labels=labels)
    if read.reorder_configs:
        components |= _plans("", read.reorder_configs)
    flows = flow_table(document)
    for port, attribute in attribute_names(ports, "port", Daq, components).items():
        components[attribute] = Cpt(_port_class(ports[port], flows[port]), port=port)
    cls = create_device_from_components("Daq", base_class=Daq, **components)
    daq = cls(name=name, configuration=read, directory=directory, ship_to=ship_to, **kwargs)
    require_data_keys(daq)
    return daq


def _port_class(interface: InterfaceConfig, flows: list[dict[str, Any]]) -> type[EngineDevice]:
    port = interface.name
    queues = [queue.name for queue in interface.rx.queues]
    groups: dict[str, Any] = {
        "rx": _group("ReceiveQueues", _recorded_queue, port, queues, "queue"),
        "tx": _group(
            "TransmitQueues",
            TxQueue,
            port,
            [queue.name for queue in interface.tx.queues],
            "queue",
        ),
        "flows": _group(
            "Flows",
            lambda _, name: flow_class(find_named(flows, name, "flow", port)),
            port,
            [flow["name"] for flow in flows],
            "flow",
        ),
        **_plans(port, interface.rx.reorder_configs),
    }
    groups["link"] = Cpt(Link, port=port, kind=Kind.omitted, labels={"daqiri"})
    if queues:
        # A separate detector; its settings belong to the configuration of the port.
        labels = {"daqiri", "detectors"}
        groups["capture"] = Cpt(Capture, port=port, queues=queues, kind=Kind.config, labels=labels)
    return create_device_from_components(
        "Port", docstring=f"Port {port}.", base_class=Port, **groups
    )


def _plans(port: str, plans: Iterable[ReorderConfig]) -> dict[str, Any]:
    """Return the groups of reorder plans and of their frame detectors."""
    names = [plan.name for plan in plans]
    # Separate detectors, like captures of queues.
    labels = {"daqiri", "detectors"}
    return {
        "reorder": _group("ReorderPlans", ReorderPlan, port, names, "plan"),
        "frames": _group(
            "FrameDetectors", FrameDetector, port, names, "plan", kind=Kind.omitted, labels=labels
        ),
    }


def _recorded_queue(port: str, queue: str) -> type[RxQueue]:
    """Return the class of a receive queue with its own capture, besides that of the port."""
    capture = Cpt(Capture, port=port, queues=[queue], kind=Kind.omitted, labels={"daqiri"})
    return create_device_from_components(
        "RxQueue", docstring=RxQueue.__doc__, base_class=RxQueue, capture=capture
    )


def _group(
    name: str,
    cls: type[EngineDevice] | Callable[[str, str], type[EngineDevice]],
    port: str,
    members: list[str],
    of: str,
    *,
    kind: Kind = Kind.normal,
    **options: Any,
) -> Any:
    def class_of(member: str) -> type[EngineDevice]:
        return cls if isinstance(cls, type) else cls(port, member)

    components = {
        attribute: Cpt(class_of(member), port=port, member=member, **options)
        for member, attribute in attribute_names(members, of, Group).items()
    }
    of_port = f" of port {port}" if port else ""
    group = create_device_from_components(
        name, docstring=f"{name}{of_port}.", base_class=Group, **components
    )
    return Cpt(group, port=port, kind=kind)
