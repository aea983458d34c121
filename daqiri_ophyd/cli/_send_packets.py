"""Sending the packets of files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import typer
from numpy.typing import NDArray

from ..engine import Engine, NetworkConfig, Port, TxQueue
from ..replay import Chunk, Replay, Transmission, packet_source, segment_size
from ..ship import StoredObject
from ._output import print_error, print_facts, print_json, print_message, progress_bar
from ._part import PlayOptions
from ._source import interface_with, load_source

_LONG_GAP_NS = 10_000_000_000


def _regions_of(interfaces: list[dict[str, Any]]) -> set[str]:
    """Return the names of the memory regions that interfaces use."""
    sides = [i[side] for i in interfaces for side in ("rx", "tx") if i.get(side)]
    queues = [queue for side in sides for queue in side["queues"]]
    plans = [plan for side in sides for plan in side.get("reorder_configs", [])]
    names = {name for queue in queues for name in queue.get("memory_regions", [])}
    return names | {plan["memory_region"] for plan in plans}


def open_to_send(config: NetworkConfig, interface: str) -> Engine:
    """
    Open an engine for one sender.

    If packets leave this process, only the sender's interface is opened, with the memory regions
    that it uses, so another process can use the rest; a raw stream does not receive.
    """
    document = config.to_dict()
    section = document["daqiri"]["cfg"]
    if section.get("loopback") != "sw":
        section["interfaces"] = [i for i in section["interfaces"] if i["name"] == interface]
        if section["stream_type"] == "raw":
            section["interfaces"][0].pop("rx", None)
        section.pop("reorder_configs", None)  # of interfaces that are not opened
        used = _regions_of(section["interfaces"])
        section["memory_regions"] = [r for r in section["memory_regions"] if r["name"] in used]
    return Engine.open(document)


class _AnnouncedGaps:
    """A replay that announces long gaps."""

    def __init__(self, source: Replay) -> None:
        self._source = source
        self.packets = source.packets
        self.duration_ns = source.duration_ns

    def chunks(self) -> Iterator[Chunk]:
        """Yield the packets in order."""
        first, before = 0, 0
        for chunk in self._source.chunks():
            if chunk.times is not None and len(chunk):
                gaps = np.diff(chunk.times, prepend=before)
                self._announce(gaps, first)
                before = int(chunk.times[-1])
            first += len(chunk)
            yield chunk

    def _announce(self, gaps: NDArray[np.int64], first: int) -> None:
        long = np.flatnonzero(gaps > _LONG_GAP_NS)
        if not long.size:
            return
        longest = int(gaps.argmax())
        others = f", the longest of {long.size} such gaps in its part of the file"
        print_message(
            f"packet {first + longest:,} is sent {gaps[longest] / 1e9:,.0f} s after the one "
            f"before it{others if long.size > 1 else ''}; --max-gap shortens such gaps"
        )


def transmit(port: Port, queue: TxQueue, source: Replay, start_delay: float) -> dict[str, Any]:
    """
    Send a replay, with a progress bar, until its end or Ctrl-C; return its counters.

    Gaps longer than 10 s are announced before they begin.
    """
    queue.reset_lateness()
    before = queue.counters()
    announced = _AnnouncedGaps(source)
    transmission = Transmission(port, queue, announced, start_delay=start_delay)
    interrupted = False
    try:
        with progress_bar("sending", source.packets) as show:
            while not transmission.wait(0.1):
                show(transmission.progress().submitted)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        transmission.close()
    if (error := transmission.progress().error) is not None:
        raise error
    after, lateness = queue.counters(), queue.lateness()
    return {
        "packets": source.packets,
        "sent": after.sent - before.sent,
        "bytes": after.sent_bytes - before.sent_bytes,
        "late": after.late - before.late,
        "dropped": after.dropped_total - before.dropped_total,
        "lateness_ns": {"p50": lateness.p50, "p99": lateness.p99, "max": lateness.maximum},
        "interrupted": interrupted,
    }


@dataclass(frozen=True, slots=True)
class Sender:
    """A transmit queue of an open engine, for the options of `send` and `replay`."""

    config: NetworkConfig
    port: Port
    queue: TxQueue
    options: PlayOptions

    def play(self, files: Sequence[Path | StoredObject], of: str, *, tells: bool) -> dict[str, Any]:
        """Send the packets of files that the options select; return the counters."""
        source = open_source(files, self.config, self.port, self.queue, self.options)
        if tells:
            print_message(
                f"sending {source.packets:,} packets of {of} over {source.duration_ns / 1e9:.1f} s "
                f"through {self.port.name}, queue {self.queue.name}"
            )
        return transmit(self.port, self.queue, source, self.options.start_delay)


@contextmanager
def open_sender(config: str, options: PlayOptions) -> Iterator[Sender]:
    """Open the engine of a configuration for the options of `send` and `replay`."""
    loaded = load_source(config)
    interface = interface_with(loaded, "tx", options.port)
    with open_to_send(loaded, interface) as engine:
        port = engine.port(interface)
        queue = port.tx[0] if options.queue is None else port.tx_queue(options.queue)
        yield Sender(loaded, port, queue, options)


def print_sent(result: dict[str, Any], as_json: bool) -> None:
    """Print the result of `play`; exit code 1 if it was interrupted."""
    if as_json:
        print_json(result)
    else:
        late = result["lateness_ns"]
        print_facts(
            [
                ("sent", f"{result['sent']:,} packets, {result['bytes']:,} bytes"),
                ("dropped", f"{result['dropped']:,}"),
                ("lateness", f"p50 {late['p50'] / 1e3:.1f} µs, p99 {late['p99'] / 1e3:.1f} µs"),
            ]
        )
    if result["interrupted"]:
        print_error(f"interrupted; {result['sent']:,} of {result['packets']:,} packets were sent")
        raise typer.Exit(1)


def open_source(
    files: Sequence[Path | StoredObject],
    config: NetworkConfig,
    port: Port,
    queue: TxQueue,
    options: PlayOptions,
) -> Replay:
    """Return the packets of files that the options select, for a transmit queue of a port."""
    description = {
        "files": files,
        "between": options.between,
        "packet_range": None if options.packets is None else _range(options.packets),
        "select": _fields("--select", options.select),
        "loops": options.loops,
        "loop_gap": options.loop_gap,
        "rewrite": _fields("--rewrite", options.rewrite),
        "speed": options.speed,
        "max_gap": options.max_gap,
    }
    size = segment_size(config, port.name, queue.name)
    return cast(Replay, packet_source(description, port.link_type, size))


def _range(text: str) -> list[int | None]:
    ends = text.split(":")
    if len(ends) != 2 or not all(end.isdecimal() or not end for end in ends):
        raise typer.BadParameter(f"--packets is {text!r}; accepted is BEGIN:END, such as 100:200")
    return [int(ends[0] or 0), int(ends[1]) if ends[1] else None]


def _fields(option: str, texts: list[str] | None) -> dict[str, int | str]:
    fields: dict[str, int | str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise typer.BadParameter(f"{option} is {text!r}; accepted is FIELD=VALUE")
        fields[name] = int(value) if value.isdecimal() else value
    return fields
