"""The kernel of reorder plans on a GPU, as the engine compiles and launches it.

Packets lie in buffers of their own and go to slots in random order; `same` leaves payloads as they
are, `int16` makes fp32 of big-endian integers, `int4` fp32 of two elements a byte. GB/s count bytes
that are read and written; the limit is a copy of as many bytes within the GPU. From pinned memory
of the host it is a copy of the payloads to the GPU (cuMemcpy); `both` has frames in pinned memory,
too, as the engine has them. A burst is one launch and the wait for it.

Peers: kernels as others write them, with packets in a table of addresses, and offset and length as
arguments (one warp, or a block of 256 threads, a packet), and cupy: a fancy index, then a swap of
bytes and `astype`. Frames of kernels are compared with those of the CPU.

With --sweep: which threads a packet, packets a block and loads under way suit this GPU, as a share
of the copy in the same round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from programs import Program, engine_program
from runner import UNSAVED, Comparison, Measurement, MissingError, Want, arguments

PAYLOADS = (8192, 1024)
BURST = 1024
OFFSETS = (64, 42, 114)
LIMIT = "limit: copy within the GPU"
LINK = "limit: copy over the link"
GENERAL = {
    "general kernel, a warp each": "general-warp",
    "general kernel, a block": "general-block",
}
# Enough packets to exceed every cache, and the requirement for each conversion.
MANY = {8192: 65_536, 1024: 524_288}
WANTED = {("same", 8192): 0.93, ("same", 1024): 0.9}
WANTED_OF_LINK = {("same", 8192, "pinned"): 0.95}
EXPANDS = {"same": 1, "int16": 2, "int4": 8}
SWEPT = ((32, 64, 128), (1, 2, 4, 8), (1, 2, 4, 8))
MOST_THREADS = 512


def rate(program: Program, what: str, setup: str, seconds: float) -> Measurement:
    """GB/s of bytes read and written."""
    done = program.ask(f"{what} {setup} {seconds}")
    launch = done["ns"] / done["launches"] / 1e3
    return Measurement(done["bytes"] / done["ns"], {"us a launch": round(launch, 2)})


def burst(program: Program, what: str, setup: str, seconds: float) -> float:
    """Return the microseconds of a launch, including the wait for it."""
    done = program.ask(f"{what}+burst {setup} {seconds}")
    return done["ns"] / done["launches"] / 1e3


class Cupy:
    """The same with cupy, as a user would write it."""

    def __init__(self, types: str, payload: int, packets: int, offset: int) -> None:
        self.setup = types, payload, packets, offset
        self.data = self.order = None

    def make(self) -> Callable[[], object]:
        """Allocate at the first use; return a function that makes a frame."""
        try:
            import cupy
        except ImportError:
            raise MissingError("cupy is not installed") from None
        types, payload, packets, offset = self.setup
        if self.data is None:
            stride = (offset + payload + 255) // 256 * 256
            self.data = cupy.ones((packets, stride), cupy.uint8)
            self.order = cupy.asarray(np.random.default_rng(1).permutation(packets))
        view = self.data[:, offset : offset + payload]

        def frame() -> object:
            gathered = view[self.order]
            if types == "same":
                return gathered
            words = gathered.view(cupy.uint16)
            return (words >> 8 | words << 8).view(cupy.int16).astype(cupy.float32)

        return frame

    def rate(self, seconds: float) -> Measurement:
        """GB/s of bytes read and written, by the GPU's clock."""
        frame = self.make()
        import cupy

        frame()
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        ms, times = 0.0, 0
        while ms < seconds * 1e3:
            begin.record()
            for _ in range(4):
                frame()
            end.record()
            end.synchronize()
            ms += cupy.cuda.get_elapsed_time(begin, end)
            times += 4
        types, payload, packets, _ = self.setup
        moved = payload * (1 + EXPANDS[types]) * packets
        found = moved * times / ms / 1e6
        return Measurement(found, {"us a launch": round(ms * 1e3 / times, 2)})

    def burst(self, seconds: float) -> float:
        """Return the microseconds of a frame, including the wait for it."""
        frame = self.make()
        import cupy

        stream = cupy.cuda.get_current_stream()
        frame()
        stream.synchronize()
        begun, times = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            frame()
            stream.synchronize()
            times += 1
        return (time.perf_counter() - begun) * 1e6 / times

    def close(self) -> None:
        """Free its memory."""
        self.data = self.order = None
        try:
            import cupy
        except ImportError:
            return
        cupy.get_default_memory_pool().free_all_blocks()


def within(comparison: Comparison, program: Program) -> None:
    """Measure packets and frames in GPU memory."""
    seconds = comparison.args.seconds
    for types, payload in itertools.product(EXPANDS, PAYLOADS):
        # A conversion is measured at one offset, and without a burst.
        for offset in OFFSETS if types == "same" else OFFSETS[1:2]:
            for packets in (BURST, MANY[payload] // (4 if types == "int4" else 1)):
                setup = f"{types} {payload} {packets} {offset} device"
                others = {} if types == "int4" else GENERAL
                cupy = Cupy(types, payload, packets, offset)
                comparison.case(
                    f"{types}, {payload} B, offset {offset}, {packets} packets",
                    "GB/s",
                    {
                        "ours": partial(rate, program, "ours", setup, seconds),
                        LIMIT: partial(rate, program, "copy", setup, seconds),
                        **{
                            name: partial(rate, program, what, setup, seconds)
                            for name, what in others.items()
                        },
                        **({"cupy": partial(cupy.rate, seconds)} if others else {}),
                    },
                    wants=(
                        Want(
                            "ours",
                            (LIMIT,),
                            at_least=WANTED.get((types, payload), 0.9) if packets > BURST else None,
                        ),
                        *(
                            Want("ours", (name,))
                            for name in (*others, *(["cupy"] if others else []))
                        ),
                    ),
                    digits=1,
                )
                cupy.close()


def over_the_link(comparison: Comparison, program: Program) -> None:
    """Measure packets in pinned memory."""
    seconds = comparison.args.seconds
    for types, payload in itertools.product(("same", "int16"), PAYLOADS):
        for memory in ("pinned", "both"):
            setup = f"{types} {payload} {MANY[payload] // 8} {OFFSETS[1]} {memory}"
            comparison.case(
                f"{types}, {payload} B, {memory}",
                "GB/s",
                {
                    "ours": partial(rate, program, "ours", setup, seconds),
                    LINK: partial(rate, program, "copy", setup, seconds),
                    **{
                        name: partial(rate, program, what, setup, seconds)
                        for name, what in GENERAL.items()
                    },
                },
                wants=(
                    Want("ours", (LINK,), at_least=WANTED_OF_LINK.get((types, payload, memory))),
                ),
                digits=1,
            )


def bursts(comparison: Comparison, program: Program) -> None:
    """Measure the time of a burst."""
    seconds = comparison.args.seconds
    for types, payload in itertools.product(("same", "int16"), PAYLOADS):
        setup = f"{types} {payload} {BURST} {OFFSETS[1]} device"
        cupy = Cupy(types, payload, BURST, OFFSETS[1])
        comparison.case(
            f"a burst of {BURST}, {types}, {payload} B",
            "us",
            {
                "ours": partial(burst, program, "ours", setup, seconds),
                LIMIT: partial(burst, program, "copy", setup, seconds),
                **{
                    name: partial(burst, program, what, setup, seconds)
                    for name, what in GENERAL.items()
                },
                "cupy": partial(cupy.burst, seconds),
            },
            wants=(Want("ours", (LIMIT,)), Want("ours", tuple(GENERAL)), Want("ours", ("cupy",))),
            better="lower",
        )
        cupy.close()


def sweep(program: Program, seconds: float, rounds: int) -> None:
    """Measure every division of a launch, best first; write to the folder of unsaved results."""
    found = {}
    for types, payload in itertools.product(EXPANDS, PAYLOADS):
        packets = MANY[payload] // (4 if types == "int4" else 1)
        setup = f"{types} {payload} {packets} {OFFSETS[1]} device {seconds}"
        ratios: dict[str, list[float]] = {}
        for _ in range(rounds):
            for threads, in_block, loads in itertools.product(*SWEPT):
                if threads * in_block > MOST_THREADS or threads * in_block < 64:
                    continue
                copied = program.ask(f"copy {setup}")
                done = program.ask(f"ours {setup} {threads} {in_block} {loads}")
                share = done["bytes"] / done["ns"] / (copied["bytes"] / copied["ns"])
                ratios.setdefault(f"{threads} {in_block} {loads}", []).append(share)
        best = sorted(ratios.items(), key=lambda each: -statistics.median(each[1]))
        found[f"{types} {payload}"] = dict(best)
        print(f"\n{types}, {payload} B: share of the copy (threads, packets of a block, loads)")
        for name, values in best:
            print(
                f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f}) {name}"
            )
    together = {
        name: min(statistics.median(case[name]) for case in found.values())
        for name in next(iter(found.values()))
    }
    print("\nworst share of any case")
    for name, share in sorted(together.items(), key=lambda each: -each[1])[:12]:
        print(f"{share:.3f} {name}")
    UNSAVED.mkdir(parents=True, exist_ok=True)
    (UNSAVED / "gpu_sweep.json").write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    """Measure one GPU."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweep", action="store_true", help="only divisions of a launch")
    args = arguments(__doc__, seconds=0.03, rounds=9, parser=parser)
    try:
        program = Program([engine_program("bench_gpu")])
    except MissingError as error:
        print(f"gpu: left out: {error}")
        return
    with program:
        if args.sweep:
            sweep(program, args.seconds, min(args.rounds, 3))
            return
        comparison = Comparison("gpu", "Payloads to frames on a GPU", __doc__, args)
        comparison.machine["gpu"] = (
            f"{program.ready['gpu']}, driver of CUDA {program.ready['cuda']}"
        )
        within(comparison, program)
        over_the_link(comparison, program)
        bursts(comparison, program)
        comparison.finish()


if __name__ == "__main__":
    main()
