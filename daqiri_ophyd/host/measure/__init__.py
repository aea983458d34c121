"""What a host really does: short measurements with a bound on their time."""

from ._measure import MEASUREMENTS, Measurement, measure_host

__all__ = ["MEASUREMENTS", "Measurement", "measure_host"]
