"""Metrics of engines for OpenTelemetry."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from opentelemetry import metrics as otel

from ._instruments import INSTRUMENTS, LATENESS_LABELS, Instrument
from ._readings import Readings

__all__ = ["instrument"]

# All instruments of a collection use one reading, s.
_SAME_COLLECTION_S = 0.1


def instrument(
    meter_provider: otel.MeterProvider | None = None, *, all_processes: bool = False
) -> None:
    """Give the metrics of engines to a meter provider, from now on.

    Engines may be opened and closed later. Call it once for a provider. OpenTelemetry has no
    histograms of values that are counted elsewhere: lateness is a counter with the upper bounds of
    buckets as attribute ``le``, in seconds.

    Parameters
    ----------
    meter_provider : MeterProvider, optional
        Default: the global one.
    all_processes : bool
        Of all processes of this user. Default: the engines of this process.
    """
    meter = otel.get_meter("daqiri", meter_provider=meter_provider)
    readings = Readings(None if all_processes else os.getpid())
    for each in INSTRUMENTS:
        callback = partial(_observe, readings, each)
        described: dict[str, Any] = {"unit": each.unit, "description": each.description}
        if each.kind == "gauge":
            meter.create_observable_gauge(each.name, [callback], **described)
        elif each.kind == "counter":
            meter.create_observable_counter(each.name, [callback], **described)
        else:
            described["unit"] = "{packet}"
            meter.create_observable_counter(f"{each.name}.packets", [callback], **described)


def _observe(
    readings: Readings, instrument: Instrument, _options: otel.CallbackOptions
) -> Iterator[otel.Observation]:
    for series in readings.read(_SAME_COLLECTION_S):
        if series.instrument is not instrument:
            continue
        if instrument.kind != "histogram":
            yield otel.Observation(series.values[0], series.attributes)
            continue
        for bound, count in zip(LATENESS_LABELS, series.values, strict=True):
            yield otel.Observation(count, {**series.attributes, "le": bound})
