"""Settings of devices, for the time of a plan or until they are changed again."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.protocols import Configurable
from bluesky.utils import MsgGenerator
from ophyd import Device, Signal

from daqiri_ophyd.devices import Capture, EngineDevice, FrameDetector, Port

__all__ = [
    "OnDrop",
    "Settings",
    "configure",
    "described",
    "detector_settings",
    "limits",
    "with_settings",
]

OnDrop = Literal["fail", "flag", "ignore"]
"""Action on lost packets."""

Settings = Mapping[Any, Any]
"""Values by signal."""


def configure(device: Configurable, settings: Mapping[str, Any]) -> MsgGenerator[dict[str, Any]]:
    """Change settings of a device, until they are changed again.

    All values are checked first. If one is not accepted, or the device rejects one while it is in
    use, no setting is changed.

    Parameters
    ----------
    device : ophyd.Device
        A device, such as ``daq.port0.capture`` or a motor.
    settings : dict
        Values by the names of the settings: ``{"acquire_time": 0.5, "on_drop": "flag"}``. A setting
        of a part is named with dots: ``{"rx.rx_q0.capture.num_packets": 100}``.

    Returns
    -------
    dict
        The earlier values.

    Raises
    ------
    ValueError
        If the device has no such setting, or a value is not accepted.
    TypeError
        If ``device`` or ``settings`` is something else, or a value has another type.
    """
    if not isinstance(device, Device):
        raise TypeError(f"device is {described(device)}; accepted is an ophyd device.")
    if not isinstance(settings, Mapping):
        raise TypeError(
            f"settings is {settings!r}; accepted is a dict of values by setting, such as "
            '{"acquire_time": 0.5}.'
        )
    values = {name: (_setting(device, name), value) for name, value in settings.items()}
    for signal, value in values.values():
        signal.check_value(value)
    before = {name: signal.get() for name, (signal, _) in values.items()}
    changed: list[str] = []

    def change() -> MsgGenerator[None]:
        for name, (signal, value) in values.items():
            changed.append(name)
            yield from bps.abs_set(signal, value, wait=True)

    def restore(_: Exception) -> MsgGenerator[None]:
        # The last one was rejected.
        yield from _set_all((values[name][0], before[name]) for name in changed[:-1])

    yield from _require_free(signal for signal, _ in values.values())
    yield from bpp.contingency_wrapper(change(), except_plan=restore)
    return before


def _setting(device: Device, name: str) -> Signal:
    """Return the signal of a setting; raise `ValueError` if there is none."""
    *parts, last = str(name).split(".")
    part: Any = device
    for attribute in parts:
        part = getattr(part, attribute) if attribute in part.component_names else None
        if not isinstance(part, Device):
            raise ValueError(
                f"{device.name} has no setting {name!r}: it has no part {attribute!r}."
            )
    signal: Any = getattr(part, last) if last in part.component_names else None
    if isinstance(signal, Signal) and signal.write_access:
        return signal
    found = (getattr(part, attribute) for attribute in part.component_names)
    known = [one.attr_name for one in found if isinstance(one, Signal) and one.write_access]
    raise ValueError(
        f"{part.name} has no setting {last!r}; accepted are {', '.join(known) or 'none'}."
    )


def detector_settings(detector: Capture | FrameDetector, kind: Any, **settings: Any) -> Settings:
    """Return settings of a detector by signal; `TypeError` if it is of another class."""
    if not isinstance(detector, kind):
        port = "daq.<port>"
        if isinstance(detector, Port):
            port = f"{detector.root.name}.{detector.dotted_name}"
        accepted = {
            Capture: f"a capture: {port}.capture",
            FrameDetector: f"a frame detector: {port}.frames.<plan>",
        }
        given = " or ".join(text for one, text in accepted.items() if issubclass(one, kind))
        raise TypeError(f"detector is {described(detector)}; give {given}.")
    return {getattr(detector, attribute): value for attribute, value in settings.items()}


def limits(
    detectors: Iterable[Capture | FrameDetector],
    num_packets: int | None,
    acquire_time: float | None,
    num_frames: int | None,
) -> Settings:
    """Return the limits of detectors by signal; a limit that is not given is off.

    None is given for a detector: its limits stay as they are.
    """
    detectors = list(detectors)
    settings: dict[Any, Any] = {}
    for kind, name, number in (
        (Capture, "num_packets", num_packets),
        (FrameDetector, "num_frames", num_frames),
    ):
        found = [one for one in detectors if isinstance(one, kind)]
        if number is not None and not found:
            raise ValueError(
                f"{name} is {number!r}, and no detector has it: "
                f"{', '.join(one.name for one in detectors)}. Captures have num_packets, frame "
                "detectors num_frames, and both acquire_time."
            )
        if number is None and acquire_time is None:
            continue
        for one in found:
            settings[getattr(one, name)] = number or 0
            settings[one.acquire_time] = acquire_time or 0.0
    return settings


def with_settings(settings: Settings, plan: MsgGenerator[Any]) -> MsgGenerator[Any]:
    """Run a plan with these settings, and restore the old ones however it ends."""
    before = {signal: signal.get() for signal in settings}

    def run() -> MsgGenerator[Any]:
        yield from _set_all(settings.items(), stop=True)
        return (yield from plan)

    def restore() -> MsgGenerator[None]:
        yield from _set_all(before.items())

    yield from _require_free(settings)
    return (yield from bpp.finalize_wrapper(run(), restore))


def _set_all(values: Iterable[tuple[Any, Any]], *, stop: bool = False) -> MsgGenerator[None]:
    """Set signals; after an error stop at once, or raise it when the others are set."""
    errors = []
    for signal, value in values:
        try:
            yield from bps.abs_set(signal, value, wait=True)
        except Exception as error:  # the others are set all the same
            if stop:
                raise
            errors.append(error)
    if errors:
        raise errors[0]


def _require_free(signals: Iterable[Any]) -> MsgGenerator[None]:
    """Raise if another RunEngine uses an engine, before its settings are changed."""
    engines = {signal.root: None for signal in signals if isinstance(signal.parent, EngineDevice)}

    def check() -> Any:
        # In the RunEngine's task, which identifies it; not in a simulation.
        for daq in engines:
            daq.require_free()
        return _nothing()

    yield from bps.wait_for([check])


async def _nothing() -> None:
    pass


def described(given: Any) -> str:
    """Return what a parameter is, for the text of an error."""
    kind = type(given).__name__
    name = getattr(given, "name", None)
    return f"{name}, a {kind}" if name else f"a {kind}"
