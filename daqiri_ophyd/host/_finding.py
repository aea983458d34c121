"""Results of checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Finding", "Remedy", "Report", "Result", "Status", "Step"]


class Status(StrEnum):
    """Result of a check, from best to worst; ``skip`` ranks below all others."""

    SKIP = "skip"
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"

    @property
    def severity(self) -> int:
        """Rank: 0 skip, 1 ok, 2 warn, 3 fail."""
        return list(Status).index(self)


class Step(StrEnum):
    """Argument of the fix script that runs the permanent part of a remedy.

    ``lasting``: files that take effect at the next boot. The others change what may keep a host
    from booting or working, and run only where they are named: ``boot-line`` (the kernel command
    line), ``iommu`` (the same, for the IOMMU), ``firmware`` (of a NIC), ``dpu-mode`` (of a
    BlueField).
    """

    LASTING = "lasting"
    BOOT_LINE = "boot-line"
    IOMMU = "iommu"
    FIRMWARE = "firmware"
    DPU_MODE = "dpu-mode"


@dataclass(frozen=True, slots=True)
class Remedy:
    """How to fix a finding.

    Parameters
    ----------
    now : tuple of str
        Shell commands that take effect at once, until the next boot.
    files : tuple of (str, str)
        Files to write for a permanent fix: path, text.
    lasting : tuple of str
        Shell commands of the permanent fix, run after the files are written.
    note : str
        Steps that no command can do (a cable, a slot, a BIOS setting), or advice.
    step : Step
        Which step the permanent fix belongs to.
    kernel_line : str
        Words to add to the kernel command line, as part of the permanent fix.
    verify, verify_lasting : tuple of str
        Shell commands that succeed if `now`, and the permanent fix, worked.
    """

    now: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    lasting: tuple[str, ...] = ()
    note: str = ""
    step: Step = Step.LASTING
    kernel_line: str = ""
    verify: tuple[str, ...] = ()
    verify_lasting: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.now or self.files or self.lasting or self.kernel_line or self.note)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a check.

    Parameters
    ----------
    status : Status
        Result.
    found : str
        What was found; for ``skip``, the reason.
    subject : str
        Which port, GPU, core or region; empty: the host.
    remedy : Remedy
        How to fix it.
    """

    status: Status
    found: str
    subject: str = ""
    remedy: Remedy = Remedy()

    def __str__(self) -> str:
        return f"{self.subject}: {self.found}" if self.subject else self.found


@dataclass(frozen=True, slots=True)
class Result:
    """Findings of one check.

    Parameters
    ----------
    check : str
        Name of the check.
    title : str
        What it checks, in a few words.
    wanted : str
        What is expected.
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
        """The worst findings, in one line; equal findings of several subjects are merged."""
        subjects: dict[str, list[str]] = {}
        for finding in self.findings:
            if finding.status is self.status:
                subjects.setdefault(finding.found, []).append(finding.subject)
        return "; ".join(
            f"{', '.join(filter(None, s))}: {f}".lstrip(": ") for f, s in subjects.items()
        )

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """Remedies of the findings that warn or fail, without duplicates."""
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
        Kind of host that the checks were chosen for.
    host : mapping of str to str
        Identity of the host: ``name``, ``kernel``, ``product``.
    results : tuple of Result
        In the order of the checks.
    """

    platform: str
    host: Mapping[str, str]
    results: Sequence[Result]

    @property
    def status(self) -> Status:
        """The worst status; ``skip`` if all checks were skipped."""
        return max((r.status for r in self.results), key=lambda s: s.severity, default=Status.OK)

    def count(self, status: Status) -> int:
        """Return the number of checks with this status."""
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
