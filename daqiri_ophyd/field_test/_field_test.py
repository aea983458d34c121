"""A field test: its steps in turn, with the results in a folder."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..engine import DaqiriError, NetworkConfig, version
from ._bench import Bench
from ._budget import Budget
from ._facts import host_facts
from ._lanes import candidate_links, groups_of
from ._page import page_of
from ._published import published_figures
from ._record_step import capture_folder
from ._report import SCHEMA_NAME, SCHEMA_VERSION, outcome_of, part_of, read_report, write_text
from ._step import StepFailedError, StepResult, StepSkippedError, StepStatus
from ._steps import GROUPS, Step, steps_of

__all__ = ["FieldTest"]

_LEFT_OUT = "not chosen"


class FieldTest:
    """A field test of a configuration, whose results are kept in a folder.

    Parameters
    ----------
    config : NetworkConfig
        A configuration with a port that sends and one that receives.
    folder : Path
        Folder of ``report.json`` and ``report.html``; made if it does not exist.
    name : str
        Name of the configuration in reports.
    seconds : float
        Time of each trial of a rate, s.
    limit : float
        Longest time of all steps, s.
    traffic : int
        Most bytes to send.
    only : collection of str
        Groups of steps to run; empty: all.
    again : bool
        Whether to do the steps of `only` again, and keep the results of the others; without `only`,
        to begin anew. Otherwise, the steps that are left are done.

    Raises
    ------
    ValueError
        If nothing of the configuration sends or receives, a group is not known, or the folder has
        another ``report.json``: none of a field test, or with the results of another configuration,
        version, host, or time of trials.
    OSError
        If the folder cannot be written, or another test uses it.
    """

    def __init__(
        self,
        config: NetworkConfig,
        folder: Path,
        *,
        name: str,
        seconds: float = 1.0,
        limit: float = 1200.0,
        traffic: int = 10**12,
        only: Collection[str] = (),
        again: bool = False,
    ) -> None:
        _require_both_sides(config)
        if unknown := [each for each in only if each not in GROUPS]:
            raise ValueError(f"no steps are called {unknown[0]!r}; there are: {', '.join(GROUPS)}")
        self.steps = steps_of(config)
        self._config = config
        self._folder = folder
        self._only = set(only)
        self._settings = {"seconds": seconds, "limit_s": limit, "traffic_bytes": traffic}
        text = config.to_yaml()
        self._configuration = {
            "name": name,
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "text": text,
        }
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._require_alone()
            self._started = _now()
            self._host = host_facts(config, "loopback" if config.loopback else config.engine)
            self._earlier: dict[str, StepResult] = {}
            if only or not again:
                self._earlier = self._read_earlier()
            if again:
                self._earlier = {
                    name: each for name, each in self._earlier.items() if each.group not in only
                }
        except BaseException:
            self.close()
            raise
        self._interrupted = False

    def close(self) -> None:
        """Let others use the folder. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> FieldTest:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def report_path(self) -> Path:
        """File of the report, as JSON."""
        return self._folder / "report.json"

    @property
    def page_path(self) -> Path:
        """File of the report, as HTML."""
        return self._folder / "report.html"

    @property
    def done(self) -> int:
        """Steps that an earlier run did, without those that failed."""
        return sum(map(_keeps, self._results()))

    def _require_alone(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OSError(error.errno, "another field test uses it", str(self._folder)) from None

    def _read_earlier(self) -> dict[str, StepResult]:
        fix = "choose another folder with --output, or begin anew with --again"
        if self._only:
            fix += " without --only"
        if self.report_path.is_dir() and not self.report_path.is_symlink():
            fix = "choose another folder with --output, or remove it"
        try:
            found = read_report(self.report_path)
        except ValueError as error:
            raise ValueError(f"{error}; {fix}") from None
        if found is None:
            return {}
        wanted = self._configuration["sha256"]
        other = found["configuration"]
        if other["sha256"] != wanted:
            raise ValueError(
                f"{self._folder} has the results of another configuration, {other['name']} "
                f"(SHA-256 {other['sha256'][:12]}, not {wanted[:12]}); {fix}"
            )
        if found["version"] != version():
            raise ValueError(
                f"{self._folder} has the results of version {found['version']}, and this is "
                f"{version()}; {fix}"
            )
        for what in ("name", "machine"):
            if found["host"].get(what) != self._host[what]:
                raise ValueError(
                    f"{self._folder} has the results of another host ({what} "
                    f"{found['host'].get(what)}, not {self._host[what]}); {fix}"
                )
        if found["settings"]["seconds"] != self._settings["seconds"]:
            raise ValueError(
                f"{self._folder} has the results of --seconds {found['settings']['seconds']:g}, "
                f"not {self._settings['seconds']:g}; use the same, {fix}"
            )
        self._started = found["started"]
        results = map(StepResult.from_dict, found["steps"])
        return {each.name: each for each in results if not each.again}

    @property
    def left(self) -> int:
        """Chosen steps that have no result yet."""
        done = {each.name for each in self._results() if not each.again}
        return sum(step.name not in done and self._chosen(step) for step in self.steps)

    @property
    def failed(self) -> int:
        """Failed steps, which another run repeats."""
        return sum(each.status is StepStatus.FAILED for each in self._results())

    @property
    def multicast_groups(self) -> list[str]:
        """Multicast groups to which the test sends."""
        return groups_of(self._config)

    def _chosen(self, step: Step) -> bool:
        return not self._only or step.group in self._only

    def _results(self) -> list[StepResult]:
        return [self._earlier[s.name] for s in self.steps if s.name in self._earlier]

    def run(self, tell: Callable[[StepResult], None]) -> dict[str, Any]:
        """Do the steps that are left, and write the report after each that does something.

        Parameters
        ----------
        tell : callable
            Is given the result of each step that is done now.

        Returns
        -------
        dict
            The report. Ctrl-C, and what `tell` raises, end the test, and the report is written
            before: it names the step that was interrupted.

        Raises
        ------
        OSError
            If the report cannot be written.
        """
        settings = self._settings
        self._remove_leftovers()
        budget = Budget(settings["limit_s"], int(settings["traffic_bytes"]))
        bench = Bench(self._config, self._folder, settings["seconds"], budget)
        self._write()
        doing: Step | None = None
        try:
            for step in self.steps:
                if (known := self._earlier.get(step.name)) is not None and (
                    _keeps(known) or not self._chosen(step)
                ):
                    continue
                doing = step
                result = self._do(step, bench)
                self._earlier[step.name] = result
                doing = None
                # A step that is skipped takes less time than its report.
                if result.status is not StepStatus.SKIPPED:
                    self._write()
                tell(result)
        except BaseException:
            self._interrupted = True
            if doing is not None:
                self._earlier[doing.name] = StepResult(
                    doing.name,
                    doing.group,
                    StepStatus.INTERRUPTED,
                    "ended before its result; another run does it",
                    again=True,
                )
            raise
        finally:
            try:
                self._write()
            finally:
                bench.close()
                self._remove_leftovers()
        return self.report()

    def _remove_leftovers(self) -> None:
        """Remove what an interrupted or killed test has left."""
        for path in (self.report_path, self.page_path):
            with suppress(OSError):
                part_of(path).unlink()
        shutil.rmtree(capture_folder(self._folder), ignore_errors=True)

    def _do(self, step: Step, bench: Bench) -> StepResult:
        began = time.monotonic()

        def result(status: StepStatus, text: str, **values: Any) -> StepResult:
            took = round(time.monotonic() - began, 3)
            return StepResult(step.name, step.group, status, text, seconds=took, **values)

        if not self._chosen(step):
            return result(StepStatus.SKIPPED, f"{_LEFT_OUT} with --only", again=True)
        try:
            bench.budget.require()
            if step.own_engine:
                bench.close()
            text, figures = step.run(bench)
        except StepSkippedError as reason:
            return result(StepStatus.SKIPPED, str(reason), again=reason.again)
        except StepFailedError as fault:
            return result(StepStatus.FAILED, str(fault), figures=fault.figures)
        except Exception as error:  # noqa: BLE001 - the other steps are worth as much
            bench.close()
            known = isinstance(error, (DaqiriError, OSError)) and str(error)
            return result(StepStatus.FAILED, str(error) if known else repr(error))
        return result(StepStatus.PASSED, text, figures=figures)

    def report(self) -> dict[str, Any]:
        """Return the report of the steps that were done."""
        results = self._results()
        outcome, counts = outcome_of(results, len(self.steps))
        link = next((each for each in results if each.group == "link"), None)
        return {
            "schema": SCHEMA_NAME,
            "schema_version": SCHEMA_VERSION,
            "version": version(),
            "configuration": self._configuration,
            "settings": self._settings,
            "started": self._started,
            "updated": _now(),
            "interrupted": self._interrupted,
            "result": outcome,
            "counts": counts,
            "host": self._host,
            "ports": link.figures.get("ports", []) if link else [],
            "published": published_figures(),
            "steps": [each.to_dict() for each in results],
        }

    def _write(self) -> None:
        report = self.report()
        write_text(self.report_path, json.dumps(report, indent=2) + "\n")
        write_text(self.page_path, page_of(report))


def _keeps(result: StepResult) -> bool:
    """Whether a later run keeps a result instead of repeating the step."""
    return not result.again and result.status is not StepStatus.FAILED


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _require_both_sides(config: NetworkConfig) -> None:
    names = ", ".join(interface.name for interface in config.interfaces)
    if not any(i.tx.queues for i in config.interfaces):
        raise ValueError(
            f"the configuration only receives ({names}); a field test sends, too: add an interface "
            "with tx.queues, such as the other end of the cable"
        )
    if not any(i.rx.queues for i in config.interfaces):
        raise ValueError(
            f"the configuration only sends ({names}); a field test receives, too: add an interface "
            "with rx.queues, such as the other end of the cable"
        )
    if not candidate_links(config):
        sockets = [(i.name, i.socket_config) for i in config.interfaces if i.socket_config]
        places = [
            f"{name} listens at {made.local_addr}"
            if made.mode == "server"
            else f"{name} sends to {made.remote_addr}"
            for name, made in sockets
        ]
        names = ", ".join(places) or names
        raise ValueError(
            f"no interface of the configuration receives what another sends ({names}); a field "
            "test needs both: add the server that a client's remote_addr names, or rx.queues"
        )
