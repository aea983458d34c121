"""Metrics of engines for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from ._instruments import INSTRUMENTS, LATENESS_LABELS, Instrument
from ._readings import Readings, Series

__all__ = ["EngineCollector"]

_UNITS = {"By": "bytes", "s": "seconds"}


def prometheus_name(instrument: Instrument) -> str:
    """Return the name of a metric for Prometheus, without the suffix of counters.

    Names are those that OpenTelemetry gives them for Prometheus: underscores, and the unit at the
    end.
    """
    name = instrument.name.replace(".", "_")
    unit = _UNITS.get(instrument.unit, "")
    return name if not unit or name.endswith(f"_{unit}") else f"{name}_{unit}"


class EngineCollector(Collector):
    """Collects the metrics of running engines for a registry of ``prometheus_client``.

    Parameters
    ----------
    pid : int, optional
        Only of this process. Default: of all processes of this user.

    Examples
    --------
    >>> registry = prometheus_client.CollectorRegistry()
    >>> registry.register(EngineCollector())
    >>> prometheus_client.start_http_server(9464, "127.0.0.1", registry)
    """

    def __init__(self, pid: int | None = None) -> None:
        self._readings = Readings(pid)

    def describe(self) -> list[Metric]:
        """Return nothing: a registry would read the engines to know the names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read the engines and yield their metrics.

        Raises
        ------
        PermissionError
            As `daqiri_ophyd.engine.ask_engines`.
        """
        found: dict[str, list[Series]] = {}
        for series in self._readings.read():
            found.setdefault(series.instrument.name, []).append(series)
        for instrument in INSTRUMENTS:
            if instrument.name in found:
                yield _family(instrument, found[instrument.name])


def _family(instrument: Instrument, found: list[Series]) -> Metric:
    name, text = prometheus_name(instrument), instrument.description
    labels = [each.replace(".", "_") for each in found[0].attributes]
    if instrument.kind == "histogram":
        histogram = HistogramMetricFamily(name, text, labels=labels)
        for series in found:
            buckets = list(zip(LATENESS_LABELS, series.values, strict=True))
            histogram.add_metric(list(series.attributes.values()), buckets, None)
        return histogram
    if instrument.kind == "counter":
        counter = CounterMetricFamily(name, text, labels=labels)
        for series in found:
            counter.add_metric(
                list(series.attributes.values()), series.values[0], created=series.created
            )
        return counter
    gauge = GaugeMetricFamily(name, text, labels=labels)
    for series in found:
        gauge.add_metric(list(series.attributes.values()), series.values[0])
    return gauge
