"""Support for sequences of capture files in Tiled's writer and server."""

from typing import Any

from bluesky_tiled_plugins.writing.consolidators import (
    CONSOLIDATOR_REGISTRY,
    MultipartRelatedConsolidator,
    Patch,
)
from event_model.documents import StreamDatum
from tiled.media_type_registration import default_serialization_registry
from tiled.mimetypes import DEFAULT_ADAPTERS_BY_MIMETYPE

from daqiri_ophyd.documents import CAPTURE_MIMETYPES

__all__ = ["CaptureConsolidator", "register"]


class CaptureConsolidator(MultipartRelatedConsolidator):
    """Collects the files that StreamDatum documents name into one data source.

    Unlike its base, it also accepts documents exported from a catalog. In those, a single file has
    no template, and a sequence with gaps (files of repeated readings left out) has no numbers.
    """

    supported_mimetypes = set(CAPTURE_MIMETYPES.values())

    def __init__(self, stream_resource: Any, descriptor: Any) -> None:
        parameters = stream_resource["parameters"]
        if "template" not in parameters:
            folder, _, name = stream_resource["uri"].rpartition("/")
            parameters = {**parameters, "template": name}
            stream_resource = {**stream_resource, "uri": folder + "/", "parameters": parameters}
        elif "numbers" in parameters:
            folder, _, _ = stream_resource["uri"].rpartition("/")
            stream_resource = {**stream_resource, "uri": folder + "/"}
        super().__init__(stream_resource, descriptor)
        self._exported_numbers: list[int] | None = parameters.get("numbers")
        self._numbers: list[int] = []

    def get_datum_uri(self, indx: int) -> str:
        """Return the URI of the file with this index."""
        number = self._exported_numbers[indx] if self._exported_numbers else indx
        return super().get_datum_uri(number)

    def consume_stream_datum(self, doc: StreamDatum) -> Patch:
        """Add the files of a document."""
        indices = range(doc["indices"]["start"], doc["indices"]["stop"])
        numbers = self._exported_numbers
        self._numbers += [numbers[i] for i in indices] if numbers else indices
        return super().consume_stream_datum(doc)

    def adapter_parameters(self) -> dict[str, Any]:
        """Return what the catalog must store besides the URIs, so that exports can be read."""
        if self._numbers == list(range(len(self._numbers))):
            return {}
        return {"template": self.template, "numbers": self._numbers}


def _adapter() -> type:
    from ._adapter import CaptureSequenceAdapter

    return CaptureSequenceAdapter


def _exporter() -> Any:
    from bluesky_tiled_plugins.exporters import json_seq_exporter

    return json_seq_exporter


def register() -> None:
    """Register capture files with the Tiled writer and with servers of this process.

    Also registers the export of runs as documents, which ``run.documents()`` needs. Call it before
    a server is started; calling it again changes nothing. A server in a separate process gets the
    same settings from its configuration file.
    """
    for mimetype in CAPTURE_MIMETYPES.values():
        CONSOLIDATOR_REGISTRY[mimetype] = CaptureConsolidator
        DEFAULT_ADAPTERS_BY_MIMETYPE.set(mimetype, _adapter)
    default_serialization_registry.register("BlueskyRun", "application/json-seq", _exporter())
