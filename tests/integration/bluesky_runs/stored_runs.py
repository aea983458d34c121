"""Checks of runs, in their documents, in the catalog, and in their files."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from checked_runs import check_file, check_idle, events_of
from run_documents import Documents

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.engine import PcapFile

from .benches import PACKETS, SIZE, Bench, image

Numbers = Sequence[int]


class StoredRuns:
    """The runs of one test."""

    def __init__(self, documents: Documents, catalog: Catalog) -> None:
        self.documents = documents
        self._catalog = catalog

    def check(
        self,
        bench: Bench,
        *expected: dict[str, Numbers],
        status: str = "success",
        left_out: Iterable[int] = (),
        rows_of_files: int = 1,
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
        rows_of_files : int
            Triggers in each file of packets.
        """
        documents = self.documents
        starts = documents.of("start")
        assert [doc["exit_status"] for doc in documents.of("stop")] == [status] * len(expected)
        assert len(starts) == len(expected)
        named: list[Path] = []
        for start, streams in zip(starts, expected, strict=True):
            stop = next(d for d in documents.of("stop") if d["run_start"] == start["uid"])
            named += self._check_run(bench, stop, streams, rows_of_files)
        self._check_files(bench, named, list(left_out))
        check_idle(bench.daq)
        documents.clear()
        bench.before = set(bench.data_files())

    def _check_run(
        self, bench: Bench, stop: dict[str, Any], streams: dict[str, Numbers], per_file: int
    ) -> list[Path]:
        run = self._catalog.client[stop["run_start"]]
        assert run.metadata["stop"]["exit_status"] == stop["exit_status"]
        assert set(run) == set(stop["num_events"])
        named = []
        found = {}
        for stream in run:
            dataset = run[stream].read()
            rows = stop["num_events"][stream]
            assert {name: len(dataset[name]) for name in dataset} == dict.fromkeys(dataset, rows)
            self._check_events(stop["run_start"], stream, dataset)
            numbers = []
            if (key := f"{bench.capture.name}_files") in dataset:
                files = self._files(stop["run_start"], stream, key)
                assert [file.name for file in files] == dataset[key].values.tolist()
                numbers.append(self._check_packets(bench, files, dataset, per_file))
                named += files
            if bench.frames is not None and bench.frames.name in dataset:
                numbers.append(self._check_images(bench, dataset))
            if numbers:
                found[stream] = numbers[0]
                assert numbers == [numbers[0]] * len(numbers)
                if "instrument_number" in dataset:
                    assert dataset["instrument_number"].values.tolist() == numbers[0]
        assert found == {stream: list(numbers) for stream, numbers in streams.items()}
        return named

    def _files(self, run: str, stream: str, key: str) -> list[Path]:
        """Files of a stream that documents name, in order of their rows."""
        descriptors = {
            doc["uid"]
            for doc in self.documents.of("descriptor")
            if (doc["run_start"], doc["name"]) == (run, stream)
        }
        resources = {doc["uid"]: doc for doc in self.documents.of("stream_resource")}
        files = {}
        for datum in self.documents.of("stream_datum"):
            resource = resources[datum["stream_resource"]]
            if datum["descriptor"] in descriptors and resource["data_key"] == key:
                folder = Path(resource["uri"].removeprefix("file://localhost"))
                rows = range(datum["seq_nums"]["start"], datum["seq_nums"]["stop"])
                indices = range(datum["indices"]["start"], datum["indices"]["stop"])
                for row, index in zip(rows, indices, strict=True):
                    files[row] = folder / resource["parameters"]["template"].format(index)
        return [files[row] for row in range(1, len(files) + 1)]

    def _check_events(self, run: str, stream: str, dataset: Any) -> None:
        """Check that the catalog has what the events say."""
        for index, event in enumerate(events_of(self.documents, run, stream)):
            for name, value in event["data"].items():
                np.testing.assert_array_equal(dataset[name].values[index], value)

    def _check_packets(
        self, bench: Bench, files: list[Path], dataset: Any, per_file: int
    ) -> list[int]:
        """Check the packets of each file; return the triggers, which are those of all files."""
        name, triggers = bench.capture.name, []
        for index, file in enumerate(files):
            row = {key: dataset[key].values[index] for key in dataset}
            check_file(file, row, name)
            numbers = packet_numbers(file)
            assert len(numbers) == row[f"{name}_packets"]
            first = numbers[0] // PACKETS
            last = numbers[-1] // PACKETS + 1
            assert numbers == list(range(first * PACKETS, last * PACKETS)), file
            triggers += range(first, last)
            if per_file:
                assert last - first == per_file
        return triggers

    def _check_images(self, bench: Bench, dataset: Any) -> list[int]:
        """Check the image of each row; return their triggers."""
        name = bench.frames.name
        numbers = dataset[f"{name}_batch"].values.ravel().tolist()
        pixels = dataset[name].values
        expected = np.array([image(number) for number in numbers]).reshape(pixels.shape)
        np.testing.assert_array_equal(pixels, expected)
        assert not dataset[f"{name}_missing"].values.any()
        stamps = dataset[f"{name}_timestamp"].values.ravel()
        assert (np.diff(stamps) > 0).all()
        if f"{name}_frames" in dataset:
            assert dataset[f"{name}_frames"].values.tolist() == [1] * len(numbers)
        for counter in {f"{name}_dropped", f"{name}_missing_packets"} & set(dataset):
            assert not dataset[counter].values.any()
        return numbers

    def _check_files(self, bench: Bench, named: list[Path], left_out: list[int]) -> None:
        """Check that each new file is in documents, unless its reading was interrupted."""
        assert len(set(named)) == len(named)
        on_disk = set(bench.data_files()) - bench.before
        captures = {file for file in on_disk if file.suffix == ".pcap"}
        assert set(named) <= captures
        others = sorted(captures - set(named))
        found = sorted({n // PACKETS for file in others for n in packet_numbers(file)})
        assert found == left_out
        images = {file for file in on_disk if file.suffix == ".h5"}
        rows = 0
        for file in images:
            with h5py.File(file) as opened:
                rows += len(opened["entry/data/batch"])
        assert rows == self._image_rows(bench)

    def _image_rows(self, bench: Bench) -> int:
        """Rows of images in documents."""
        if bench.frames is None:
            return 0
        resources = {
            doc["uid"] for doc in self.documents.of("stream_resource")
            if doc["data_key"] == bench.frames.name
        }  # fmt: skip
        return sum(
            doc["indices"]["stop"] - doc["indices"]["start"]
            for doc in self.documents.of("stream_datum")
            if doc["stream_resource"] in resources
        )


def packet_numbers(file: Path) -> list[int]:
    """Numbers of the packets in a file."""
    with PcapFile(file) as pcap:
        return [int.from_bytes(packet[-SIZE:][:4].tobytes(), "big") for packet in pcap[:]]
