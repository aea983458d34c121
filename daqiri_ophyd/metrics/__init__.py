"""Counters and levels of running engines as metrics: for Prometheus, and for OpenTelemetry.

`EngineCollector` serves Prometheus, `instrument` gives the engines to a meter provider of
OpenTelemetry. Both read engines as ``daqiri-ophyd stats`` does: threads that move packets are not
involved. ``daqiri-ophyd metrics`` does both for all engines of a user. Names and attributes are in
the reference of metrics of the documentation.
"""

from ._opentelemetry import instrument
from ._prometheus import EngineCollector

__all__ = ["EngineCollector", "instrument"]
