"""Engine packet at a device that is full: a tap device of which a program takes frames at a rate.

Such a device refuses frames as a network card does whose transmit ring is full. The bare loop
sleeps 50 µs after each refusal. Both lose no frame: a rate counts all frames, from the first one
sent to the last one taken. The program that takes frames spins on one core, the sender has the
other one.
"""

from __future__ import annotations

import os
import time
from functools import partial

from capture import PORT
from programs import Program, built, cores, in_own_network, script
from runner import Comparison, Contender, Measurement, Want, arguments

DEVICE, SIZE = "tap0", 200
QUEUES = (256, 1000)
RATES = (200_000, 400_000)
PATIENCE = 30.0


def taken(device: Program, count: int) -> dict:
    """Return the device's counters once it has taken so many frames."""
    end = time.monotonic() + PATIENCE
    while (counters := device.ask())["packets"] < count:
        if time.monotonic() > end:
            raise RuntimeError(f"{counters['packets']} of {count} frames arrived")
        time.sleep(0.005)
    return counters


def send(command: list[str], queue: int, rate: int, seconds: float) -> Measurement:
    """Thousands of frames a second that reach the program behind the device."""
    sender_core, device_core = cores()
    count = int(rate * seconds)
    tap = [built("peers_slow_tap"), DEVICE, f"{queue}", f"{rate}"]
    with Program(tap, device_core) as device, Program(command, sender_core) as sender:
        before = device.ask()["packets"]
        begun = sender.ask(f"{count}")["begun"]
        after = taken(device, before + count)
    return Measurement(count / ((after["latest"] - begun) / 1e9) / 1e3)


def main() -> None:
    """Measure queues of both lengths at both rates."""
    args = arguments(__doc__, seconds=0.5, rounds=7)
    if os.geteuid() != 0:
        print("full_device: left out; tap devices need root")
        return
    in_own_network("The benchmark of full devices makes a tap device, and")
    comparison = Comparison("full_device", "A full network device", __doc__, args)
    commands = {
        "ours": [*script("ours/frame_send.py"), DEVICE, f"{SIZE}", f"{PORT}"],
        "limit: sendmmsg loop": [built("peers_patient_send"), DEVICE, f"{SIZE}", f"{PORT}"],
    }
    for queue in QUEUES:
        for rate in RATES:
            contenders: dict[str, Contender] = {
                name: partial(send, command, queue, rate, args.seconds)
                for name, command in commands.items()
            }
            comparison.case(
                f"{rate // 1000} kframes/s taken, queue of {queue} frames",
                "kframes/s",
                contenders,
                wants=(Want("ours", ("limit: sendmmsg loop",), at_least=0.9),),
                digits=1,
            )
    comparison.finish()


if __name__ == "__main__":
    main()
