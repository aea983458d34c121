"""databroker's interface, with the rows of frames in its tables."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from databroker.v1 import Broker, Header

from ._frames_dataset import OF_FRAMES

__all__ = ["CatalogBroker", "frame_rows"]


class CatalogBroker(Broker):
    """A `databroker.v1.Broker` whose tables have the rows of fly scans of frames.

    Such a stream has no events: its rows are in the files of frames. The table has a row for each
    frame, with the arrival time of its first packet.
    """

    def get_table(
        self,
        headers: Header | Iterable[Header],
        stream_name: str = "primary",
        fields: Iterable[str] | None = None,
        fill: bool | Iterable[str] = False,
        handler_registry: Any = None,
        convert_times: bool = True,
        timezone: str | None = None,
        localize_times: bool = True,
    ) -> pd.DataFrame:
        """Return the rows of a stream, as `databroker.v1.Broker.get_table` does."""
        tables = []
        several: Iterable[Any] = [headers] if isinstance(headers, Header) else headers
        for header in several:
            table = None
            if handler_registry is None:
                table = frame_rows(header.v2, stream_name, list(fields or ()), fill)
            if table is None:
                table = super().get_table(
                    header,
                    stream_name,
                    fields,
                    fill,
                    handler_registry,
                    convert_times,
                    timezone,
                    localize_times,
                )
            elif not convert_times and not localize_times:
                table["time"] = table["time"].to_numpy().astype(np.int64) / 1e9
            tables.append(table)
        return pd.concat(tables) if tables else super().get_table([], stream_name)


def frame_rows(
    run: Any, stream: str, fields: list[str], fill: bool | Iterable[str]
) -> pd.DataFrame | None:
    """Return the rows of a stream of frames without events; None: it is another stream."""
    streams = dict(run.base.items())
    if stream not in streams:
        return None
    data_keys, nodes = streams[stream].metadata["data_keys"], dict(streams[stream].base.items())
    detectors = [key for key in data_keys if all(f"{key}_{name}" in nodes for name in OF_FRAMES)]
    if not detectors or "internal" in nodes:
        return None
    numbers = {key for key in data_keys if key in nodes and len(nodes[key].shape) == 1}
    filled = (set(data_keys) if fill is True else set(fill or ())) & set(nodes)
    if set(fields) - numbers - filled:
        return None  # databroker has the error
    wanted = [key for key in data_keys if key in fields or (not fields and key in numbers | filled)]
    columns = {key: nodes[key].read() for key in wanted}
    times = nodes[f"{detectors[0]}_timestamp"].read()
    rows = min(len(values) for values in (times, *columns.values()))
    table = {key: list(v) if v.ndim > 1 else v for key, v in columns.items()}
    return pd.DataFrame(
        {"time": pd.to_datetime(times[:rows], unit="ns")}
        | {key: values[:rows] for key, values in table.items()},
        index=pd.RangeIndex(1, rows + 1, name="seq_num"),
    )
