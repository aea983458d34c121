"""Columns of a capture: files and their counters, of one receive queue or of several."""

from collections.abc import Mapping, Sequence
from typing import Any

from daqiri_ophyd.documents import FILE_COUNTERS, files_column
from daqiri_ophyd.engine import PcapFile, RecordedFile, file_prefixes

from ...parts._signals import DataKeys
from ...reductions import Reduction
from ...tree._naming import attribute_name, fitted, require_column
from .._errors import CaptureError

__all__ = ["CaptureColumns"]


class CaptureColumns:
    """Names of the columns of a capture, ``<device>_files`` and ``<device>_packets`` and so on.

    With several queues, each queue also has its own columns, ``<device>_<queue>_files``,
    ``<device>_<queue>_packets`` and so on. A queue's name is shortened if they would be too long.

    Parameters
    ----------
    device : str
        Name of the device.
    port : str
        Name of the port.
    queues : sequence of str
        Names of the receive queues.
    reductions : mapping of str to Reduction
        Reductions of each file, by name in the columns.

    Raises
    ------
    ValueError
        If the column of a reduction would be too long for catalogs.
    """

    def __init__(
        self,
        device: str,
        port: str,
        queues: Sequence[str],
        reductions: Mapping[str, Reduction],
    ) -> None:
        self._reductions = reductions
        self._device = device
        self._sources = [f"daqiri://{port}/rx/{queue}" for queue in queues]
        self._queues = queues
        self.stems = [device]
        if len(queues) > 1:
            self.stems = [
                fitted(
                    [device, attribute_name(queue, "queue", frozenset())], ["files", *FILE_COUNTERS]
                )
                for queue in queues
            ]
        for column in self.reduced:
            require_column(column, device, "Give the reduction a shorter name.")

    @property
    def files(self) -> dict[str, str]:
        """Source of the packets by the name of each column of files."""
        names = map(files_column, self.stems)
        return dict(zip(names, self._sources, strict=True))

    def prefixes(self, prefix: str) -> list[str]:
        """Return the first part of the file names of each queue."""
        return file_prefixes(prefix, self._queues)

    def counter_keys(self, keys: DataKeys) -> DataKeys:
        """Return the data keys of counters, with those of each queue.

        Parameters
        ----------
        keys : dict
            Data keys of the device's counters, some of which may be missing.
        """
        every = dict(keys)
        for index, counter in self._of_queues(keys):
            every[f"{self.stems[index]}_{counter}"] = {
                **keys[f"{self._device}_{counter}"],
                "source": f"{self._sources[index]}/{counter}",
            }
        for stem, source in zip(self.stems, self._sources, strict=True):
            for name, reduction in self._reductions.items():
                every[f"{stem}_{name}"] = {
                    "source": f"{source}/{name}",
                    "dtype": "number",
                    "shape": [],
                    "dtype_numpy": "<f8",
                    "units": reduction.units,
                }
        return every

    @property
    def reduced(self) -> list[str]:
        """Names of the columns of reductions."""
        return [f"{stem}_{name}" for stem in self.stems for name in self._reductions]

    def reduce(self, files: Sequence[RecordedFile]) -> dict[str, float]:
        """Return the reductions of files.

        Raises
        ------
        CaptureError
            If a reduction raises; the message names the reduction and the file.
        """
        values: dict[str, float] = {}
        for stem, file in zip(self.stems, files, strict=True):
            if not self._reductions:
                continue
            with PcapFile(file.path) as pcap:
                for name, reduction in self._reductions.items():
                    try:
                        values[f"{stem}_{name}"] = float(reduction.function(pcap))
                    except (Exception, KeyboardInterrupt, SystemExit) as error:
                        raise CaptureError(
                            f"reduction {name!r} of {file.path} failed: {error!r}"
                        ) from error
        return values

    def of_queues(self, files: Sequence[RecordedFile], known: Mapping[str, Any]) -> dict[str, Any]:
        """Return the separate counters of each of several queues.

        Parameters
        ----------
        files : sequence of RecordedFile
            The latest file of each queue; empty if there is none yet.
        known : mapping
            Names of the device's counters, some of which may be missing.
        """
        return {
            f"{self.stems[index]}_{counter}": getattr(files[index], counter) if files else 0
            for index, counter in self._of_queues(known)
        }

    def _of_queues(self, known: Mapping[str, Any]) -> list[tuple[int, str]]:
        if len(self._queues) == 1:
            return []
        return [
            (index, counter)
            for index in range(len(self._queues))
            for counter in FILE_COUNTERS
            if f"{self._device}_{counter}" in known
        ]
