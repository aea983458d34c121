"""A process with engine dpdk that receives until its input ends, or says why it cannot."""

import json
import select
import sys
from typing import Any

import numpy as np

from daqiri_ophyd.engine import DaqiriError, Engine, ethernet

FLOW = 7


def frames(count: int) -> np.ndarray:
    """UDP frames for the flow."""
    return ethernet.udp_frames(
        np.zeros((count, 100), np.uint8),
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=4000,
        dst_port=5000,
    )


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def receive(engine: Engine, own_traffic: bool) -> None:
    """Say the number of the flow's packets for each line of the input."""
    (port,) = engine.ports
    received = 0
    while True:
        if own_traffic:
            port.tx[0].send(frames(64))
        while (burst := port.rx[0].receive(0.001)) is not None:
            with burst:
                received += int((burst.flow_ids == FLOW).sum())
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                return
            say(received)


def main(config: dict[str, Any]) -> None:
    try:
        engine = Engine.open(config)
    except DaqiriError as error:
        say(" ".join(str(error).split("\n")))
        return
    with engine:
        say("open")
        receive(engine, config["interfaces"][0]["address"].startswith("net_ring"))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
