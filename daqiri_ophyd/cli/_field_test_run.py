"""Running a field test, with a line for each step."""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from ..engine import NetworkConfig
from ..field_test import FieldTest, StepResult, StepStatus
from ._output import messages, one_line, print_json, print_line, print_message, print_whole
from ._signals import interrupted_once

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
    go_on = "the same command without --again" if again else "the same command"
    with interrupted_once("the report is written"):
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
            raise typer.BadParameter(one_line(str(error))) from None
        with test:
            try:
                report = _run(test, config, limit, traffic, as_json=as_json)
            except KeyboardInterrupt:
                # Ctrl-C also ends what the output is piped to.
                with suppress(BrokenPipeError, SystemExit):
                    print_message(
                        f"{test.left} steps are left; {go_on} does them; report: "
                        f"{one_line(str(test.page_path))}"
                    )
                raise
    if as_json:
        print_json(report)
    else:
        counts = ", ".join(f"{count} {status}" for status, count in report["counts"].items())
        print_line(f"{report['result']}: {counts}")
    if test.left:
        print_message(f"{test.left} steps are left; {go_on} does them")
    if test.failed:
        print_message(f"{test.failed} steps failed; {go_on} repeats them")
    if test.left or report["result"] == "failed":
        raise typer.Exit(1)


def _run(
    test: FieldTest, config: NetworkConfig, limit: float, traffic: int, *, as_json: bool
) -> dict[str, Any]:
    groups = ", ".join(test.multicast_groups)
    others = f"these, and to multicast {groups}," if groups else "these"
    ports = ", ".join(f"{i.name} ({i.address})" for i in config.interfaces)
    print_message(one_line(f"ports: {ports}; packets go to {others} only"))
    print_message(
        f"{len(test.steps)} steps, {test.done} done before; at most {limit:g} s and "
        f"{traffic / 1e9:g} GB; report: {one_line(str(test.page_path))}"
    )
    width = max(len(one_line(step.name)) for step in test.steps)

    def tell(result: StepResult) -> None:
        line = Text(f"{result.status:<7}", style=_STYLES[result.status])
        name, text = one_line(result.name), one_line(result.text)
        line.append(f"  {name:<{width}}  {text}", style="not bold")
        if as_json:
            messages.print(line, soft_wrap=True)
        else:
            print_whole(line)

    return test.run(tell)
