"""Run plans only on a host that is ready."""

from collections.abc import Collection
from typing import Literal

from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import MsgGenerator

from ..devices import HostReadiness
from ..host import CHECKS, Result, Status

__all__ = ["HostNotReadyError", "host_ready_wrapper"]


class HostNotReadyError(RuntimeError):
    """The host is not ready for the run; the message names the checks and their fixes."""


def host_ready_wrapper(
    plan: MsgGenerator,
    readiness: HostReadiness,
    *,
    refuse: Literal["fail", "warn"] = "fail",
    ignore: Collection[str] = (),
) -> MsgGenerator:
    """Check the host first, and run the plan only if the host is ready.

    The findings go into the start documents of the plan's runs, as ``host_readiness``.

    Parameters
    ----------
    plan : generator
        The plan.
    readiness : HostReadiness
        Device that runs the checks.
    refuse : {"fail", "warn"}
        Reject the run on failures only (``fail``), or also on warnings (``warn``).
    ignore : collection of str
        Names of checks whose results are ignored.

    Yields
    ------
    Msg
        Messages of the check, then those of the plan.

    Raises
    ------
    ValueError
        If ``refuse`` or a name in ``ignore`` is not accepted.
    HostNotReadyError
        If a check failed (or warned, see ``refuse``); no run was begun.
    """
    if refuse not in ("fail", "warn"):
        raise ValueError(f"refuse is {refuse!r}; accepted are 'fail' and 'warn'")
    if unknown := sorted({ignore} if isinstance(ignore, str) else {*ignore} - {*CHECKS}):
        raise ValueError(
            f"ignore has {unknown[0]!r}; accepted is a list of checks: {', '.join(CHECKS)}"
        )
    before = readiness.report
    yield from bps.trigger(readiness, wait=True)
    report = readiness.report
    if report is None or report is before:  # a simulation, which triggers nothing
        return (yield from plan)
    bad = [Status.FAIL] if refuse == "fail" else [Status.FAIL, Status.WARN]
    wrong = [r for r in report.results if r.status in bad and r.check not in ignore]
    if wrong:
        plan.close()
        raise HostNotReadyError(_text(wrong))
    found = {"host_readiness": dict(readiness.metadata())}
    return (yield from bpp.inject_md_wrapper(plan, found))


def _text(wrong: list[Result]) -> str:
    lines = ["the host is not ready:"]
    for result in wrong:
        lines.append(f"  {result.check}: {result.found}; wanted: {result.wanted}")
        for remedy in result.remedies:
            lines += [f"    {command}" for command in remedy.now]
            if remedy.note:
                lines.append(f"    {remedy.note}")
    lines.append(
        "see `daqiri-ophyd host check --details`; to continue without a check, name it in `ignore`"
    )
    return "\n".join(lines)
