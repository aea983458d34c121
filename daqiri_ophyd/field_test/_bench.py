"""What the steps of a field test share: the open engine, its links and lanes."""

from __future__ import annotations

import time
from pathlib import Path

from ..engine import DaqiriError, Engine, NetworkConfig
from ._budget import Budget
from ._frames import size_of
from ._lanes import Header, Lane, UnmadeError, candidate_links, lanes_of, stray_header
from ._step import StepFailedError, StepSkippedError
from ._traffic import Traffic

__all__ = ["Bench"]

_PROBES = 8
_PROBE_BYTES = 256
# Cards need seconds after they were opened until their link is up.
_LINK_WAIT = 10.0
_LINK_POLL = 0.1


class Bench:
    """An engine that is opened when a step needs it, and what is known of its links.

    Parameters
    ----------
    config : NetworkConfig
        The configuration.
    folder : Path
        Folder for results and captures.
    seconds : float
        Time of each measurement of a rate.
    budget : Budget
        Limits of the whole test.
    """

    def __init__(self, config: NetworkConfig, folder: Path, seconds: float, budget: Budget) -> None:
        self.config = config
        self.folder = folder
        self.seconds = seconds
        self.budget = budget
        self._engine: Engine | None = None
        self._links: list[tuple[str, str]] = []
        self._stay_down: set[str] = set()

    @property
    def engine(self) -> Engine:
        """The engine; opened if it is not, with its links up."""
        if self._engine is None or self._engine.closed:
            self._engine = Engine.open(self.config)
            self._wait_for_links(self._engine)
        return self._engine

    def _wait_for_links(self, engine: Engine) -> None:
        """Wait until no link is down, except those for which that was in vain before."""
        limit = time.monotonic() + min(_LINK_WAIT, self.budget.seconds_left)
        while True:
            down = {port.name for port in engine.ports if port.link().state == "down"}
            if down <= self._stay_down:
                return
            if time.monotonic() >= limit:
                self._stay_down = down
                return
            time.sleep(_LINK_POLL)

    def close(self) -> None:
        """Close the engine. Idempotent."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    @property
    def links(self) -> list[tuple[str, str]]:
        """Pairs of interfaces, sender and receiver, between which packets arrive."""
        if not self._links:
            candidates = candidate_links(self.config)
            if self.config.loopback or self.config.stream_type == "socket":
                self._links = candidates
            else:
                self._links = self._find_links(candidates)
        return self._links

    def _find_links(self, candidates: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return, for each receiver, the first sender that it hears."""
        found: dict[str, str] = {}
        for sender, receiver in candidates:
            if receiver not in found and self._hears(sender, receiver):
                found[receiver] = sender
        return [(sender, receiver) for receiver, sender in found.items()]

    @property
    def deaf(self) -> list[str]:
        """Interfaces with receive queues that hear no sender.

        Clients of sockets are none of them: their servers answer, and the test does not.
        """
        heard = {receiver for _, receiver in self.links}
        return [
            each.name
            for each in self.config.interfaces
            if each.rx.queues
            and each.name not in heard
            and (each.socket_config is None or each.socket_config.mode == "server")
        ]

    def require_heard(self, receiver: str) -> None:
        """Raise `StepFailedError` if an interface hears no sender, or skip a client's replies."""
        if receiver in self.deaf:
            raise StepFailedError(f"{receiver} hears no port of the configuration (step 'link')")
        if all(receiver != heard for _, heard in self.links):
            raise StepSkippedError(f"{receiver} is a client; the test sends to servers only")

    def _hears(self, sender: str, receiver: str) -> bool:
        lane = self._probe(sender, receiver)
        if lane is None:
            return False
        flow = self.engine.port(receiver).flow(lane.flow) if lane.flow else None
        before = flow.counters().packets if flow else 0
        outcome = self.traffic([lane], size_of(lane, _PROBE_BYTES)).run(packets=_PROBES)
        if lane.assembled and flow is not None:
            return flow.counters().packets - before >= _PROBES
        return outcome.arrived + outcome.misplaced > 0

    def _probe(self, sender: str, receiver: str) -> Lane | None:
        """Return packets that a receiver takes, if the sender's reach it."""
        lanes, _ = lanes_of(self.config, (sender, receiver))
        free = [lane for lane in lanes if not lane.assembled]
        if free or lanes:
            return (free or lanes)[0]
        interface = next(i for i in self.config.interfaces if i.name == receiver)
        if interface.rx.flow_isolation:
            return None
        return self.stray_lane(sender, receiver)

    def stray_lane(self, sender: str, receiver: str) -> Lane | None:
        """Return packets that no flow of a receiver matches; None: its flows match any."""
        by_name = {i.name: i for i in self.config.interfaces}
        try:
            header: Header = stray_header(self.config, receiver)
        except UnmadeError:
            return None
        return Lane(
            sender=sender,
            receiver=receiver,
            tx_queue=by_name[sender].tx.queues[0].name,
            rx_queues=tuple(queue.name for queue in by_name[receiver].rx.queues),
            flow="",
            flow_id=0,
            header=header,
        )

    @property
    def lanes(self) -> list[Lane]:
        """Lanes of all links."""
        return [lane for link in self.links for lane in lanes_of(self.config, link)[0]]

    @property
    def left_out(self) -> dict[str, str]:
        """Flows for which no packets can be made, and why."""
        return {
            name: reason
            for link in self.links
            for name, reason in lanes_of(self.config, link)[1].items()
        }

    def open_lanes(self) -> list[Lane]:
        """Return the lanes whose packets reach the application.

        Raises
        ------
        StepFailedError
            If no interface receives what another sends.
        StepSkippedError
            If there are none.
        """
        if not self.links:
            raise StepFailedError(
                "no port receives what a port of the configuration sends; check cable, switch and "
                "addresses (step 'link')"
            )
        found = [lane for lane in self.lanes if not lane.assembled]
        if not found and self.left_out:
            name, reason = next(iter(self.left_out.items()))
            raise StepSkippedError(f"no packets can be made; flow {name}: {reason}")
        if not found:
            raise StepSkippedError("reorder plans take the packets of all flows")
        return found

    def largest(self, lanes: list[Lane]) -> int:
        """Return the most bytes of a packet that all buffers and links of lanes take."""
        sizes = []
        for lane in lanes:
            sender, receiver = self.engine.port(lane.sender), self.engine.port(lane.receiver)
            sizes.append(sender.tx_queue(lane.tx_queue).max_packet_size)
            sizes += [receiver.rx_queue(name).max_packet_size for name in lane.rx_queues]
            if lane.header is not None:
                for port in (sender, receiver):
                    mtu = port.link().mtu
                    sizes += [mtu + 14] if mtu else []
        return min(sizes)

    def traffic(self, lanes: list[Lane], size: int) -> Traffic:
        """Return traffic of lanes with packets of a size.

        Raises
        ------
        StepSkippedError
            If a flow allows no such packets.
        """
        try:
            return Traffic(self.engine, lanes, size, self.budget)
        except UnmadeError as reason:
            raise StepSkippedError(str(reason)) from None

    def require_open(self) -> None:
        """Open the engine.

        Raises
        ------
        StepFailedError
            If that fails.
        """
        try:
            self.engine.closed  # noqa: B018 - opens it
        except DaqiriError as error:
            raise StepFailedError(f"the configuration cannot be opened: {error}") from error
