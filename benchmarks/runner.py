"""Measures contenders in turn, and writes their ratios in each round in a table."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import machine

RESULTS = Path(__file__).parent / "results"
UNSAVED = Path(os.environ.get("DAQIRI_BENCHMARK_RESULTS", machine.ROOT / "build" / "benchmarks"))


class MissingError(Exception):
    """A contender cannot run here; the text says what is missing."""


@dataclass
class Measurement:
    """A value, and further values printed with it."""

    value: float
    notes: dict[str, float | str] = field(default_factory=dict)
    steal: float = 0.0
    seconds: float = 0.0


Contender = Callable[[], Measurement | float]


@dataclass(frozen=True)
class Want:
    """The required ratio of `ours` to the best of some peers in the same round.

    Without a bound, it is a ratio to be seen.
    """

    ours: str
    of: tuple[str, ...]
    at_least: float | None = None
    at_most: float | None = None

    def met_by(self, ratio: float) -> bool | None:
        """Whether a ratio meets the requirement; None if it has no bound."""
        if self.at_least is not None:
            return ratio >= self.at_least
        return None if self.at_most is None else ratio <= self.at_most

    def __str__(self) -> str:
        best = " or ".join(self.of)
        if self.at_least is not None:
            return f"{self.ours} ≥ {self.at_least:g} × {best}"
        if self.at_most is not None:
            return f"{self.ours} ≤ {self.at_most:g} × {best}"
        return f"{self.ours} / {best}"


@dataclass
class Case:
    """One table: contenders that did the same work."""

    name: str
    unit: str
    better: str
    digits: int
    wants: tuple[Want, ...]
    values: dict[str, list[Measurement]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def best(self, names: tuple[str, ...], round_: int) -> float | None:
        """Return the best value of those contenders in a round."""
        values = [self.values[n][round_].value for n in names if n in self.values]
        if not values:
            return None
        return max(values) if self.better == "higher" else min(values)

    def ratios(self, want: Want) -> list[float]:
        """Return the ratio in each round; empty if a contender is missing."""
        if want.ours not in self.values:
            return []
        found = []
        for i, ours in enumerate(self.values[want.ours]):
            best = self.best(want.of, i)
            if best:
                found.append(ours.value / best)
        return found


def arguments(
    doc: str, *, seconds: float, rounds: int, parser: argparse.ArgumentParser | None = None
) -> argparse.Namespace:
    """Parse the command line that all topics share."""
    parser = parser or argparse.ArgumentParser()
    parser.description = doc.partition("\n")[0]
    parser.add_argument("--seconds", type=float, default=seconds, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=rounds, help="measurements of each contender")
    parser.add_argument(
        "--save", action="store_true", help=f"write to {RESULTS.name}/, to be committed"
    )
    parsed = parser.parse_args()
    if parsed.seconds <= 0 or parsed.rounds < 1:
        parser.error("--seconds must be positive, --rounds at least 1")
    return parsed


class Comparison:
    """A topic: its cases, written to <topic>.md and <topic>.json after each of them."""

    def __init__(self, topic: str, title: str, about: str, args: argparse.Namespace) -> None:
        self.topic, self.title, self.about, self.args = topic, title, about, args
        self.machine = machine.describe()
        self.cases: list[Case] = []
        self._begun = time.monotonic()
        print(f"{title}\n{machine.sentence(self.machine)}", flush=True)

    def case(
        self,
        name: str,
        unit: str,
        contenders: Mapping[str, Contender],
        *,
        wants: tuple[Want, ...] = (),
        better: str = "higher",
        digits: int = 2,
        rounds: int | None = None,
    ) -> Case:
        """Measure every contender once a round, in the order given, in all rounds.

        A contender that raises `MissingError` is left out from then on, by name.
        """
        case = Case(name, unit, better, digits, wants)
        for round_ in range(rounds or self.args.rounds):
            for contender, measure in contenders.items():
                if contender in case.missing:
                    continue
                try:
                    measured = _measure(measure)
                except MissingError as error:
                    case.missing[contender] = str(error)
                    case.values.pop(contender, None)
                    continue
                case.values.setdefault(contender, []).append(measured)
                _progress(f"{name}, round {round_ + 1}: {contender} {measured.value:.{digits}f}")
        _progress("")
        self.cases.append(case)
        print(_table(case), flush=True)
        self._write()
        return case

    def finish(self) -> None:
        """Print where the results are."""
        print(f"{time.monotonic() - self._begun:.0f} s; {self._folder / self.topic}.md")

    @property
    def _folder(self) -> Path:
        return RESULTS if self.args.save else UNSAVED

    def _write(self) -> None:
        """Write the results so far, which remain if a run is ended early."""
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        took = time.monotonic() - self._begun
        text = [
            f"# {self.title}",
            self.about.strip(),
            machine.sentence(self.machine) + ".",
            f"{self.args.rounds} rounds in turn, {took:.0f} s in all. Values are medians with "
            "minimum and maximum; ratios are taken in each round. Steal is the part of the time "
            "that the host gave to others, at most in one measurement.",
            *(f"## {case.name}\n\n{_table(case)}" for case in self.cases),
        ]
        (folder / f"{self.topic}.md").write_text("\n\n".join(text) + "\n")
        (folder / f"{self.topic}.json").write_text(json.dumps(self._document(), indent=1) + "\n")

    def _document(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "title": self.title,
            "machine": self.machine,
            "rounds": self.args.rounds,
            "seconds": self.args.seconds,
            "cases": [
                {
                    "name": case.name,
                    "unit": case.unit,
                    "better": case.better,
                    "missing": case.missing,
                    "contenders": {
                        name: [vars(measurement) for measurement in values]
                        for name, values in case.values.items()
                    },
                    "wants": [
                        {
                            "text": str(want),
                            "ratios": (ratios := case.ratios(want)),
                            "met": want.met_by(statistics.median(ratios)) if ratios else None,
                        }
                        for want in case.wants
                    ],
                }
                for case in self.cases
            ],
        }


def _measure(measure: Contender) -> Measurement:
    ticks, begun = machine.Ticks.now(), time.monotonic()
    found = measure()
    measured = found if isinstance(found, Measurement) else Measurement(float(found))
    measured.steal = machine.Ticks.now().steal_since(ticks)
    measured.seconds = time.monotonic() - begun
    return measured


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def spread(values: list[float], digits: int) -> str:
    """Median, with minimum and maximum if there are several values."""
    text = f"{statistics.median(values):.{digits}f}"
    if len(values) > 1:
        text += f" ({min(values):.{digits}f} to {max(values):.{digits}f})"
    return text


def quartiles(values: list[float], digits: int) -> str:
    """Return `spread`, with the quartiles for five values and more."""
    text = spread(values, digits)
    if len(values) < 5:
        return text
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{text[:-1]}; quartiles {low:.{digits}f}, {high:.{digits}f})"


def _note(found: list[float | str], case: Case) -> str:
    """Return the median of numbers, or all texts."""
    numbers = [note for note in found if isinstance(note, (int, float))]
    if numbers:
        return f"{statistics.median(numbers):.{case.digits}f}"
    return ", ".join(dict.fromkeys(str(note) for note in found))


def _table(case: Case) -> str:
    notes = {key for values in case.values.values() for m in values for key in m.notes}
    columns = sorted(notes)
    lines = [
        f"| {case.name} | {case.unit} | " + "".join(f"{key} | " for key in columns) + "steal |",
        "|---|---|" + "---|" * len(columns) + "---|",
    ]
    for name, values in case.values.items():
        cells = [name, spread([m.value for m in values], case.digits)]
        cells += [_note([m.notes[key] for m in values if key in m.notes], case) for key in columns]
        cells.append(f"{max(m.steal for m in values):.1%}")
        lines.append("| " + " | ".join(cells) + " |")
    for name, why in case.missing.items():
        lines.append(f"| {name} | not measured: {why} | " + " | " * len(columns) + "|")
    if case.wants:
        lines += ["", "| wanted | found | |", "|---|---|---|"]
    for want in case.wants:
        ratios = case.ratios(want)
        if ratios:
            met = want.met_by(statistics.median(ratios))
            verdict = "" if met is None else "met" if met else "missed"
            lines.append(f"| {want} | {quartiles(ratios, 2)} | {verdict} |")
        else:
            lines.append(f"| {want} | not measured | |")
    return "\n".join(lines) + "\n"
