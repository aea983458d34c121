"""Running a field test, with a line for each step."""

from collections.abc import Collection
from pathlib import Path

import typer
from rich.text import Text

from ..engine import NetworkConfig
from ..field_test import FieldTest, StepResult, StepStatus
from ._output import messages, out, print_json, print_message, printable

_STYLES = {StepStatus.PASSED: "green", StepStatus.FAILED: "bold red", StepStatus.SKIPPED: "dim"}


def run_field_test(
    config: NetworkConfig,
    folder: Path,
    *,
    name: str,
    seconds: float,
    limit: float,
    traffic: int,
    only: Collection[str],
    again: bool,
    as_json: bool,
) -> None:
    """Run a field test; exit with 1 if a step failed, or if any is left."""
    try:
        test = FieldTest(
            config,
            folder,
            name=name,
            seconds=seconds,
            limit=limit,
            traffic=traffic,
            only=only,
            again=again,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with test:
        groups = ", ".join(test.multicast_groups)
        others = f"these, and to multicast {groups}," if groups else "these"
        ports = ", ".join(f"{i.name} ({i.address})" for i in config.interfaces)
        print_message(f"ports: {ports}; packets go to {others} only")
        print_message(
            f"{len(test.steps)} steps, {test.done} done before; at most {limit:g} s and "
            f"{traffic / 1e9:g} GB; report: {test.page_path}"
        )
        console = messages if as_json else out
        width = max(len(step.name) for step in test.steps)

        def tell(result: StepResult) -> None:
            line = Text(f"{result.status:<7}", style=_STYLES[result.status])
            line.append(f"  {result.name:<{width}}  {printable(result.text)}", style="not bold")
            console.print(line, soft_wrap=True)

        report = test.run(tell)
    if as_json:
        print_json(report)
    else:
        counts = ", ".join(f"{count} {status}" for status, count in report["counts"].items())
        out.print(f"{report['result']}: {counts}")
    if test.left:
        print_message(f"{test.left} steps are left; the same command does them")
    if test.failed:
        print_message(f"{test.failed} steps failed; the same command repeats them")
    if test.left or report["result"] == "failed":
        raise typer.Exit(1)
