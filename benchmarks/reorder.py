"""Packets put together to frames: what the work costs, and what it leaves of the rate of reception.

`gather` is the work of a plan alone: packets that lie in a receive region, shuffled within batches
of 64, become frames of 1 MiB. Its limit is memcpy of as many bytes at once. A conversion has two
limits, a bare loop over whole frames and one over the same payloads in the same order, both
compiled for the same instruction sets. `in order`: nothing is shuffled. numpy finds the order in
the headers, too: `argsort`, a fancy index and `astype`, or an assignment to the places.

`pollers`: packets that lie in memory are handed to one plan by as many threads as there are cores,
like the pollers of its queues; its limit is as many threads that copy the same payloads alone.

Then whole engines: a UDP stream, whose rate is the highest without loss, and a loopback that sends
as fast as it can, received as frames and as packets. `poller` moves payloads in the thread that
receives, `worker` in one of its own (`cpu_core`). Of the loopback, reception alone does not touch
the packets: they were copied by the thread that sends. `reception and memcpy` is an application
that copies each payload to a frame of its own, in the order in which they come. Frames that fill
half of the last cache are written with streaming stores.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from loss_free import bisect, send_and_count
from programs import Program, built, cores, engine_program
from runner import Comparison, Measurement, Want, arguments

PAYLOADS = (8192, 1024)
MODULES = (1, 2, 4, 8, 16)
MODULE_BYTES = 1 << 20
BATCH = 64
HEADER = 50
NUMPY = "numpy, fancy index"
LIMIT = "limit: memcpy of whole frames"


def gathered(program: Program, what: str, payload: int, modules: int, seconds: float) -> dict:
    """Return the results of the engine's program."""
    return program.ask(f"{what} {payload} {modules} {seconds}")


def rate(
    program: Program, what: str, payload: int, seconds: float, modules: int = 1
) -> Measurement:
    """GB/s of payload."""
    done = gathered(program, what, payload, modules, seconds)
    return Measurement(
        done["bytes"] / done["ns"], {"ns a packet": round(done["ns"] / done["packets"], 1)}
    )


def numpy_rate(payload: int, dtype: str | None, assigns: bool, seconds: float) -> Measurement:
    """GB/s of payload that numpy orders by the packet numbers and converts to fp32."""
    count = MODULE_BYTES // payload
    random = np.random.default_rng(1)
    order = [random.permutation(min(BATCH, count)) + i for i in range(0, count, BATCH)]
    packets = np.ones((16, count, HEADER + payload), np.uint8)
    numbers = np.concatenate(order).astype(">u4")
    packets[:, :, HEADER - 4 : HEADER] = numbers.view(np.uint8).reshape(-1, 4)
    begun = now = time.perf_counter()
    times = 0
    while now - begun < seconds:
        part = packets[times % 16]
        place = np.ascontiguousarray(part[:, HEADER - 4 : HEADER]).view(">u4")[:, 0]
        payloads = part[:, HEADER:].view(dtype or np.int16)
        if assigns:
            frame = np.empty(payloads.shape, np.float32 if dtype else np.int16)
            frame[place] = payloads
        else:
            frame = payloads[np.argsort(place)]
            if dtype:
                frame = frame.astype(np.float32)
        times += 1
        now = time.perf_counter()
    ns = (now - begun) * 1e9
    return Measurement(times * MODULE_BYTES / ns, {"ns a packet": round(ns / times / count, 1)})


def with_numpy(payload: int, dtype: str | None, seconds: float) -> dict[str, partial[Measurement]]:
    """Return both ways to do it with numpy."""
    return {
        NUMPY: partial(numpy_rate, payload, dtype, False, seconds),
        "numpy, assignment": partial(numpy_rate, payload, dtype, True, seconds),
    }


def work(comparison: Comparison, program: Program) -> None:
    """Measure the work alone."""
    seconds = comparison.args.seconds

    def measured(what: str, payload: int) -> partial[Measurement]:
        return partial(rate, program, what, payload, seconds)

    for payload in PAYLOADS:
        comparison.case(
            f"gather, {payload} B",
            "GB/s",
            {
                "ours": measured("gather", payload),
                LIMIT: measured("copy", payload),
                "memcpy of each payload": measured("copies", payload),
                "ours, in order": measured("gather+ordered", payload),
                "ours, nothing moved": measured("place", payload),
                **with_numpy(payload, None, seconds),
            },
            wants=(
                Want("ours", ("memcpy of each payload",), at_least=0.9),
                Want("ours", (LIMIT,)),
                Want("ours, in order", (LIMIT,)),
            ),
        )
    whole, each = "limit: bare loop over whole frames", "limit: bare loop over each payload"
    for what, name, dtype in (
        ("convert", "int16 to fp32", "<i2"),
        ("swap", "big-endian int16 to fp32", ">i2"),
    ):
        comparison.case(
            f"{name}, 8192 B",
            "GB/s of int16",
            {
                "ours": measured(what, 8192),
                whole: measured(f"{what}-loop", 8192),
                each: measured(f"{what}-loops", 8192),
                "ours, in order": measured(f"{what}+ordered", 8192),
                **with_numpy(8192, dtype, seconds),
            },
            wants=(
                Want("ours", (whole,), at_least=0.9),
                Want("ours", (each,), at_least=0.9),
                Want("ours, in order", (whole,), at_least=0.9),
                Want("ours", (NUMPY,)),
                Want(each, (NUMPY,)),
            ),
        )


def modules(comparison: Comparison, program: Program) -> None:
    """Measure a detector of 512 x 1024 pixels of 16 bits, and several."""

    def cost(count: int) -> Measurement:
        done = gathered(program, "gather", 8192, count, comparison.args.seconds)
        copy = gathered(program, "copy", 8192, count, comparison.args.seconds)
        each, of_copy = (d["ns"] / d["frames"] / 1e3 for d in (done, copy))
        return Measurement(each, {"a module": each / count, "memcpy": of_copy})

    comparison.case(
        "frames of modules of 512 x 1024 uint16",
        "µs a frame",
        {
            f"{count} modules" if count > 1 else "1 module": partial(cost, count)
            for count in MODULES
        },
        better="lower",
        digits=1,
    )


def large(comparison: Comparison, program: Program) -> None:
    """Measure frames that do not fit into the last cache, with streaming stores and without."""
    most = MODULES[-1]

    def measured(what: str) -> Callable[[], Measurement]:
        return partial(rate, program, what, 8192, comparison.args.seconds, most)

    comparison.case(
        f"frames of {most} MiB, 8192 B",
        "GB/s",
        {
            "gather": measured("gather"),
            "gather, ordinary stores": measured("gather+cached"),
            LIMIT: measured("copy"),
            "int16 to fp32": measured("convert"),
            "int16 to fp32, ordinary stores": measured("convert+cached"),
        },
        wants=(
            Want("gather", ("gather, ordinary stores",), at_least=1),
            Want("int16 to fp32", ("int16 to fp32, ordinary stores",), at_least=1),
        ),
    )


def pollers(comparison: Comparison) -> None:
    """Measure several pollers that feed one plan."""
    available = len(os.sched_getaffinity(0))
    counts = [count for count in (1, 2, 4, 8) if count <= available]
    with Program([engine_program("bench_pollers")]) as program:

        def measured(what: str, payload: int, count: int) -> Measurement:
            done = program.ask(f"{what} {count} {payload} {comparison.args.seconds}")
            return Measurement(done["bytes"] / done["ns"])

        for payload in PAYLOADS:
            names = {count: f"{count} pollers" if count > 1 else "1 poller" for count in counts}
            limits = {count: f"limit: memcpy by {count}" for count in counts}
            cases = {names[n]: partial(measured, "frames", payload, n) for n in counts}
            cases |= {limits[n]: partial(measured, "copies", payload, n) for n in counts}
            comparison.case(
                f"frames of several pollers, {payload} B",
                "GB/s",
                cases,
                wants=tuple(Want(names[n], (names[1],), at_least=1.5) for n in counts if n > 1),
            )


def loopback(payload: int, kind: str, movers: int, seconds: float) -> Measurement:
    """GB/s of payload over a loopback."""
    with Program([built("ours_frames"), "loopback", str(payload), kind, str(movers)]) as program:
        program.ask("0.05")
        done = program.ask(str(seconds))
    if done["packets"] != done["sent"]:
        raise RuntimeError(f"{done['packets']} of {done['sent']} packets were in frames")
    return Measurement(done["packets"] * payload / done["ns"])


def udp(payload: int, kind: str, movers: int, seconds: float) -> Measurement:
    """GB/s of payload of a UDP stream without loss."""
    command = [built("ours_frames"), "udp", str(payload), kind, str(movers)]
    sending, receiving = cores()
    size = payload + 48
    with Program(command, receiving) as receiver:
        port = str(receiver.ready["port"])
        with Program([built("peers_udp_send"), "127.0.0.1", port, str(size)], sending) as sender:
            send_and_count(sender, receiver, 1000, 0.02)
            found = bisect(partial(send_and_count, sender, receiver, seconds=seconds), size, 6)
    notes = {key: found.notes[key] for key in ("CPU, ns a packet", "limited by")}
    return Measurement(found.value * payload / 1e3, notes)


def engines(comparison: Comparison) -> None:
    """Measure whole engines."""
    streams: dict[str, Callable[[int, str, int, float], Measurement]] = {
        "UDP": udp,
        "loopback": loopback,
    }
    for name, measure in streams.items():
        for payload in PAYLOADS:
            alone, copied = "reception alone", "reception and memcpy"
            comparison.case(
                f"{name} to frames, {payload} B",
                "GB/s",
                {
                    "frames, poller": partial(measure, payload, "frames", 0, 0.3),
                    alone: partial(measure, payload, "packets", 0, 0.3),
                    copied: partial(measure, payload, "copied", 0, 0.3),
                    "frames, worker": partial(measure, payload, "frames", 1, 0.3),
                },
                wants=(
                    # A loopback's reception touches no packet.
                    Want("frames, poller", (alone,), at_least=0.8 if name == "UDP" else None),
                    Want("frames, poller", (copied,), at_least=0.8),
                ),
            )


def main() -> None:
    """Measure the work, then engines."""
    args = arguments(__doc__, seconds=0.1, rounds=5)
    comparison = Comparison("reorder", "Packets put together to frames", __doc__, args)
    with Program([engine_program("bench_reorder")], cores()[1]) as program:
        work(comparison, program)
        modules(comparison, program)
        large(comparison, program)
    pollers(comparison)
    engines(comparison)
    comparison.finish()


if __name__ == "__main__":
    main()
