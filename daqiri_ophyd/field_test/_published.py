"""Figures that DAQIRI publishes for a ConnectX-7, to compare with; never measured here."""

from __future__ import annotations

from typing import Any

from ..engine import NetworkConfig, ethernet

__all__ = ["published_figures", "published_rate"]

_SOURCE = "NVIDIA/daqiri, docs/benchmarks/performance-dgx-spark.md"
_COMMIT = "005acca8a49cdfa920c798271142de3547fcae4f"
_URL = f"https://github.com/NVIDIA/daqiri/blob/{_COMMIT}/docs/benchmarks/performance-dgx-spark.md"

# Bytes of payload: Gb/s. The table "Single-host loopback, payload x batch (100 GbE)", column of
# 256 packets per burst; no packet was lost.
_RAW = {64: 20.2, 256: 49.7, 1024: 97.1, 4096: 98.6, 8000: 98.8}
# "Single pair, cross-host (200 GbE)" of TCP.
_TCP = {1000: 18.3, 8000: 52.9}


def published_figures() -> dict[str, Any]:
    """Return the figures with their source, for a report."""
    return {
        "source": _SOURCE,
        "url": _URL,
        "card": "ConnectX-7 of a DGX Spark (GB10), engine DPDK",
        "raw": {
            "what": "Gb/s by bytes of payload behind 64 B of headers, one queue, 256 packets per "
            "burst, payloads in GPU memory, cabled loopback of 100 GbE, no loss",
            "Gb_per_s": {str(size): rate for size, rate in _RAW.items()},
        },
        "tcp": {
            "what": "Gb/s by bytes of a message, one connection between two hosts, 200 GbE",
            "Gb_per_s": {str(size): rate for size, rate in _TCP.items()},
        },
    }


def published_rate(config: NetworkConfig, size: int, queues: int) -> float | None:
    """Return the published rate for packets of a size, Gb/s; None: there is none.

    Parameters
    ----------
    config : NetworkConfig
        Its stream decides between whole frames and TCP.
    size : int
        Bytes of whole frames, or of the payload on sockets. Published are sizes of payloads, and
        frames of other sizes of payload are not compared.
    queues : int
        Receive queues; the published figures have one.
    """
    if queues != 1:
        return None
    if config.stream_type == "raw":
        return _RAW.get(size - ethernet.UDP_OVERHEAD)
    addresses = [i.socket_config for i in config.interfaces]
    tcp = any(each and (each.local_addr or "").startswith("tcp:") for each in addresses)
    return _TCP.get(size) if tcp else None
