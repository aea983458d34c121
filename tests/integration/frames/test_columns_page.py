"""The page of columns has the units of the devices."""

import re
from pathlib import Path
from typing import Any

from daqiri_ophyd.devices import Daq, FrameDetector, reductions

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "columns.md"


def units_on_the_page() -> dict[str, dict[str, str]]:
    """Return the units of each column, by the heading of its table."""
    found = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        rows = re.findall(r"^\| (`\w.*?|\(nothing\)) \| (.*?) ?\|", section, re.MULTILINE)
        found[section.splitlines()[0]] = {
            name: units for names, units in rows for name in re.findall(r"`(\w+)`", names) or [""]
        }
    return found


def units_of(device: Any, keys: dict[str, Any]) -> dict[str, str]:
    return {key.removeprefix(device.name): data.get("units", "") for key, data in keys.items()}


def test_captures_have_the_units_of_the_page(daq: Daq) -> None:
    capture = daq.port0.capture
    capture.on_drop.put("flag")
    page = units_on_the_page()["Captures"]
    assert units_of(capture, capture.describe()) == {f"_{key}": unit for key, unit in page.items()}


def test_frame_detectors_have_the_units_of_the_page(daq: Daq, detector: FrameDetector) -> None:
    page = units_on_the_page()
    frames = page["Frame detectors, of each frame"]
    events = {f"_{name}": units for name, units in page["Frame detectors, in events"].items()}
    detector.on_drop.put("flag")
    keys = units_of(detector, detector.describe())
    assert keys == events | {name: units for name, units in frames.items() if name != "_lossy"}
    daq.open()
    detector.stage()
    assert units_of(detector, detector.describe_collect()) == frames
    detector.unstage()


def test_reductions_have_the_units_of_the_page() -> None:
    arguments: dict[str, tuple[Any, ...]] = {
        "centroid": (0,),
        "lost_numbers": (0, 4),
        "payload_mean": (">u2",),
        "payload_sum": (">u2",),
        "roi": ((0, 1), (0, 1)),
    }
    makers = [name for name in reductions.__all__ if name != "Reduction"]
    made = {name: getattr(reductions, name)(*arguments.get(name, ())) for name in makers}
    page = units_on_the_page()["Reductions"]
    assert page == {name: reduction.units for name, reduction in made.items()}
