"""Checks of runs, in their documents, in the catalog, and in their files."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import event_model
import h5py
import numpy as np
from checked_runs import check_file, check_idle
from run_documents import Documents

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.engine import PcapFile

from .benches import PACKETS, SIZE, Bench, image

Rows = dict[str, Sequence[int]]


class StoredRuns:
    """The runs of one test, which have the triggers of the instrument as rows."""

    def __init__(self, documents: Documents, catalog: Catalog) -> None:
        self.documents = documents
        self._catalog = catalog
        self._images = 0  # of the latest run

    def check(
        self,
        bench: Bench,
        *expected: Rows,
        status: str = "success",
        left_out: Iterable[int] = (),
        per_file: int = 1,
        repeated: int = 0,
    ) -> None:
        """Check all runs since the last call.

        Parameters
        ----------
        bench : Bench
            The transport.
        *expected : dict
            Of each run, the triggers of the rows of each stream that has data of a detector.
        status : str
            Exit status of each run.
        left_out : iterable of int
            Triggers whose packets are in files of readings that were interrupted.
        per_file : int
            Triggers in each file of packets; 0: any number.
        repeated : int
            Rows of each stream that the RunEngine repeated after a pause; it keeps both.
        """
        assert [doc["exit_status"] for doc in self.documents.of("stop")] == [status] * len(expected)
        files: list[Path] = []
        images = 0
        for start, streams in zip(self.documents.of("start"), expected, strict=True):
            found = self._check_run(bench, start["uid"], per_file, files, repeated)
            assert found == {stream: list(rows) for stream, rows in streams.items()}
            images += self._images
        on_disk = FilesOnDisk(bench)
        assert on_disk.triggers_beside(files) == list(left_out)
        assert on_disk.images == images
        self._end(bench)

    def check_cut_short(
        self, bench: Bench, recorded: Sequence[int], per_file: int, *, status: str = "abort"
    ) -> None:
        """Check a run whose plan could not collect its latest rows; files have them."""
        (stop,) = self.documents.of("stop")
        assert stop["exit_status"] == status
        files: list[Path] = []
        for rows in self._check_run(bench, stop["run_start"], per_file, files).values():
            assert rows == list(recorded[: len(rows)])
        on_disk = FilesOnDisk(bench)
        in_documents = sorted({n // PACKETS for file in files for n in packet_numbers(file)})
        assert in_documents + on_disk.triggers_beside(files) == list(recorded)
        assert on_disk.images == (0 if bench.frames is None else len(recorded))
        self._end(bench)

    def _end(self, bench: Bench) -> None:
        check_idle(bench.daq)
        self.documents.clear()
        bench.before = set(bench.data_files())

    def _check_run(
        self, bench: Bench, uid: str, per_file: int, files: list[Path], repeated: int = 0
    ) -> dict[str, list[int]]:
        """Check a run; return the triggers of each stream, and add its files to the others."""
        (stop,) = (doc for doc in self.documents.of("stop") if doc["run_start"] == uid)
        run = self._catalog.client[uid]
        assert run.metadata["stop"]["exit_status"] == stop["exit_status"]
        # A run may end before the first row of a stream.
        assert set(stop["num_events"]) <= set(run)
        found: dict[str, list[int]] = {}
        self._images = 0
        for stream in run:
            dataset = run[stream].read()
            events = self._events(uid, stream)
            # Streams that detectors share have no events. Repeated ones have no new number.
            rows = len(events) or stop["num_events"].get(stream, 0)
            assert {len(dataset[name]) for name in dataset} == ({rows} if rows else set())
            for index, event in enumerate(events):
                for name, value in event.items():
                    np.testing.assert_array_equal(dataset[name].values[index], value)
            assert stop["num_events"].get(stream, 0) == rows - repeated
            named = self._files(uid, stream, f"{bench.capture.name}_files")
            files += named
            triggers = []
            if f"{bench.capture.name}_files" in dataset:
                triggers.append(self._check_packets(bench, named, dataset, per_file))
            else:
                assert named == []
            if bench.frames is not None and bench.frames.name in dataset:
                triggers.append(self._check_images(bench, dataset))
                self._images += len(triggers[-1])
            if triggers:
                found[stream] = triggers[0]
                assert triggers == [triggers[0]] * len(triggers)
                if "instrument_number" in dataset:
                    assert dataset["instrument_number"].values.tolist() == triggers[0]
        return found

    def _files(self, run: str, stream: str, key: str) -> list[Path]:
        """The files of a stream that documents name, in the order of their rows."""
        descriptors = {
            doc["uid"]
            for doc in self.documents.of("descriptor")
            if (doc["run_start"], doc["name"]) == (run, stream)
        }
        resources = {doc["uid"]: doc for doc in self.documents.of("stream_resource")}
        files = []
        for datum in self.documents.of("stream_datum"):
            resource = resources[datum["stream_resource"]]
            if datum["descriptor"] in descriptors and resource["data_key"] == key:
                folder = Path(resource["uri"].removeprefix("file://localhost"))
                indices = range(datum["indices"]["start"], datum["indices"]["stop"])
                template = resource["parameters"]["template"]
                files += [folder / template.format(index) for index in indices]
        return files

    def _events(self, run: str, stream: str) -> list[dict[str, Any]]:
        """The data of all events of a stream, pages unpacked."""
        descriptors = {
            doc["uid"]
            for doc in self.documents.of("descriptor")
            if (doc["run_start"], doc["name"]) == (run, stream)
        }
        events = []
        for name, doc in self.documents:
            if name == "event_page" and doc["descriptor"] in descriptors:
                events += event_model.unpack_event_page(doc)
            elif name == "event" and doc["descriptor"] in descriptors:
                events.append(doc)
        return [event["data"] for event in events]

    @staticmethod
    def _check_packets(bench: Bench, files: list[Path], dataset: Any, per_file: int) -> list[int]:
        """Check the file of each row; return the triggers of their packets."""
        name, triggers = bench.capture.name, []
        assert [file.name for file in files] == dataset[f"{name}_files"].values.tolist()
        for index, file in enumerate(files):
            row = {key: dataset[key].values[index] for key in dataset}
            check_file(file, row, name)
            found = packet_numbers(file)
            assert len(found) == row[f"{name}_packets"]
            assert not row.get(f"{name}_lossy", False)
            first, last = found[0] // PACKETS, found[-1] // PACKETS + 1
            assert found == list(range(first * PACKETS, last * PACKETS))
            assert per_file in (0, last - first)
            triggers += range(first, last)
        return triggers

    @staticmethod
    def _check_images(bench: Bench, dataset: Any) -> list[int]:
        """Check the image of each row; return their triggers."""
        assert bench.frames is not None
        name = bench.frames.name
        numbers = dataset[f"{name}_batch"].values.ravel().tolist()
        pixels = dataset[name].values
        expected = np.array([image(number) for number in numbers]).reshape(pixels.shape)
        np.testing.assert_array_equal(pixels, expected)
        assert (np.diff(dataset[f"{name}_timestamp"].values.ravel()) > 0).all()
        if f"{name}_frames" in dataset:
            assert dataset[f"{name}_frames"].values.tolist() == [1] * len(numbers)
        losses = (f"{name}_{counter}" for counter in ("missing", "dropped", "missing_packets"))
        for column in {*losses, f"{name}_lossy"} & set(dataset):
            assert not dataset[column].values.any()
        return numbers


class FilesOnDisk:
    """The files that were written since the last check."""

    def __init__(self, bench: Bench) -> None:
        new = set(bench.data_files()) - bench.before
        self._captures = {file for file in new if file.suffix == ".pcap"}
        self.images = 0
        """Images in all files."""
        for file in new - self._captures:
            with h5py.File(file) as opened:
                self.images += len(opened["entry/data/batch"])

    def triggers_beside(self, files: list[Path]) -> list[int]:
        """Return the triggers whose packets are in other files than these, which exist."""
        assert len(set(files)) == len(files)
        assert set(files) <= self._captures
        others = self._captures - set(files)
        return sorted({n // PACKETS for file in others for n in packet_numbers(file)})


def packet_numbers(file: Path) -> list[int]:
    """Numbers of the packets in a file."""
    with PcapFile(file) as pcap:
        return [int.from_bytes(packet[-SIZE:][:4].tobytes(), "big") for packet in pcap[:]]
