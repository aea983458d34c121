"""The capture files that documents of a run name."""

from typing import Any

from tiled.utils import path_from_uri

from daqiri_ophyd.documents import COUNTER_MIMETYPE

__all__ = ["CaptureFiles"]


class CaptureFiles:
    """The capture files that documents of a run name."""

    def __init__(self) -> None:
        self._resources: dict[str, tuple[str, str]] = {}
        self._numbers: dict[tuple[str, str], list[int]] = {}

    def note(self, name: str, doc: dict[str, Any]) -> None:
        """Add the files of a document."""
        if name == "stream_resource":
            if doc["mimetype"] == COUNTER_MIMETYPE:
                return
            template = doc["parameters"].get("template", "")
            self._resources[doc["uid"]] = (doc["uri"], template)
        elif name == "stream_datum" and doc["stream_resource"] in self._resources:
            resource = self._resources[doc["stream_resource"]]
            numbers = range(doc["indices"]["start"], doc["indices"]["stop"])
            if not resource[1]:
                numbers = range(1)  # rows of one file
                self._numbers.pop(resource, None)
            self._numbers.setdefault(resource, []).extend(numbers)

    def text(self) -> str:
        """Return the first and last existing file and their number, for each directory."""
        series = []
        for (uri, template), numbers in self._numbers.items():
            folder = path_from_uri(uri)
            named = [folder / template.format(number) for number in numbers]
            files = [file for file in named if file.is_file()]
            if len(files) > 1:
                series.append(f"{files[0]} to {files[-1].name} ({len(files)} files)")
            series += map(str, files[:1] if len(files) == 1 else ())
        return ", ".join(series) or "none"
