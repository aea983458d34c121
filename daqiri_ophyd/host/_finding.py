"""What a check says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Finding", "Remedy", "Report", "Result", "Status"]


class Status(StrEnum):
    """How a check came out, from best to worst but for ``skip``, which counts as nothing."""

    SKIP = "skip"
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"

    @property
    def severity(self) -> int:
        """Rank: 0 skip, 1 ok, 2 warn, 3 fail."""
        return list(Status).index(self)


@dataclass(frozen=True, slots=True)
class Remedy:
    """What mends a finding.

    Parameters
    ----------
    now : tuple of str
        Shell commands that work at once and are forgotten at the next boot.
    files : tuple of (str, str)
        Files to write so that it is so at every boot: path, text.
    lasting : tuple of str
        Shell commands that put the files to use.
    note : str
        What no command does: a cable, a slot, a BIOS setting; or what to know before.
    """

    now: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    lasting: tuple[str, ...] = ()
    note: str = ""

    def __bool__(self) -> bool:
        return bool(self.now or self.files or self.lasting or self.note)


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact, judged.

    Parameters
    ----------
    status : Status
        How it is.
    found : str
        What there is, in a clause; for ``skip``, why there is nothing to judge.
    subject : str
        Which port, GPU, core or region; empty: the host.
    remedy : Remedy
        What to do about it.
    """

    status: Status
    found: str
    subject: str = ""
    remedy: Remedy = Remedy()

    def __str__(self) -> str:
        return f"{self.subject}: {self.found}" if self.subject else self.found


@dataclass(frozen=True, slots=True)
class Result:
    """What one check found.

    Parameters
    ----------
    check : str
        Its name.
    title : str
        What it looks at, in a few words.
    wanted : str
        What would be right.
    why : str
        Why it matters, in one sentence.
    findings : tuple of Finding
        At least one.
    """

    check: str
    title: str
    wanted: str
    why: str
    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """The worst of the findings."""
        return max((finding.status for finding in self.findings), key=lambda s: s.severity)

    @property
    def found(self) -> str:
        """The worst findings, in one line; what is the same of several subjects is said once."""
        subjects: dict[str, list[str]] = {}
        for finding in self.findings:
            if finding.status is self.status:
                subjects.setdefault(finding.found, []).append(finding.subject)
        return "; ".join(
            f"{', '.join(filter(None, s))}: {f}".lstrip(": ") for f, s in subjects.items()
        )

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """What mends the findings that are not as wanted; each once."""
        needed = (f.remedy for f in self.findings if f.status in (Status.WARN, Status.FAIL))
        return tuple(dict.fromkeys(remedy for remedy in needed if remedy))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as for JSON."""
        return {**asdict(self), "status": str(self.status), "found": self.found}


@dataclass(frozen=True, slots=True)
class Report:
    """All results for a host.

    Parameters
    ----------
    platform : str
        Kind of host the checks were chosen for.
    host : mapping of str to str
        What host it is: ``name``, ``kernel``, ``product``.
    results : tuple of Result
        In the order of the checks.
    """

    platform: str
    host: Mapping[str, str]
    results: Sequence[Result]

    @property
    def status(self) -> Status:
        """The worst status; ``ok`` if everything was skipped."""
        return max((r.status for r in self.results), key=lambda s: s.severity, default=Status.OK)

    def count(self, status: Status) -> int:
        """Return how many checks came out so."""
        return sum(result.status is status for result in self.results)

    def __getitem__(self, check: str) -> Result:
        for result in self.results:
            if result.check == check:
                return result
        raise KeyError(f"no result of {check!r}; there are {[r.check for r in self.results]}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as for JSON."""
        return {
            "platform": self.platform,
            "status": str(self.status),
            "host": dict(self.host),
            "counts": {str(status): self.count(status) for status in Status},
            "checks": [result.to_dict() for result in self.results],
        }
