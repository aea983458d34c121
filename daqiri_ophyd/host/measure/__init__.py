"""Short measurements of a host, with a time limit."""

from ._measure import MEASUREMENTS, Measurement, measure_host

__all__ = ["MEASUREMENTS", "Measurement", "measure_host"]
