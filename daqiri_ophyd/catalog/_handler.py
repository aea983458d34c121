"""Reader of captures for consumers of Resource and Datum documents."""

from pathlib import Path
from typing import Any

import numpy as np

from ._summarize import summarize

__all__ = ["LEGACY_SPEC", "PcapHandler"]

LEGACY_SPEC = "DAQIRI_PCAP"
"""Spec of the Resource documents that `PcapHandler` reads."""


class PcapHandler:
    """Handler for Resource documents of spec ``DAQIRI_PCAP``.

    databroker finds it through the entry point group ``databroker.handlers``.

    Parameters
    ----------
    resource_path : str
        Directory of the files, or one file.
    template : str, optional
        File name template such as ``capture_{:06d}.pcap``; None for one file.
    """

    specs = frozenset({LEGACY_SPEC})

    def __init__(self, resource_path: str | Path, template: str | None = None, **_: Any) -> None:
        self._path = Path(resource_path)
        self._template = template

    def __call__(self, index: int = 0, **_: Any) -> np.ndarray:
        """Return the summary record of one file.

        Returns
        -------
        numpy.ndarray
            Shape ``()``, dtype `daqiri_ophyd.documents.SUMMARY_DTYPE`.

        Raises
        ------
        FileNotFoundError, NotPcapError, SidecarError
            As for `summarize`.
        """
        return summarize(self._file(index)).record()

    def get_file_list(self, datum_kwargs: list[dict[str, Any]]) -> list[Path]:
        """Return the files that these datums refer to, in order."""
        return [self._file(kwargs.get("index", 0)) for kwargs in datum_kwargs]

    def _file(self, index: int) -> Path:
        return self._path / self._template.format(index) if self._template else self._path
