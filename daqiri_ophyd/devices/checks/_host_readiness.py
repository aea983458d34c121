"""Host check as a device."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

from ophyd.ophydobj import Kind

from daqiri_ophyd.engine import ConfigSource, load_config
from daqiri_ophyd.host import Platform, Report, Status, check_host

from ..parts._base import ThreadedDevice
from ..parts._signals import reading, setting

__all__ = ["HostReadiness"]


class HostReadiness(ThreadedDevice):
    """Result of the host check, as a reading.

    `trigger` runs the checks on a thread. In a baseline stream they run at the beginning and at the
    end of a run. `metadata` is for the run's start document. ``state`` is the worst status.
    ``not_ready`` names the checks that warn or fail. ``checks`` has the status and finding of
    every check as JSON.

    Parameters
    ----------
    prefix : str
        Not used.
    name : str
        Name of the device.
    config : dict, str or Path, optional
        Configuration to check the host for; None: check the host alone.
    root : path
        Root of the host's file system.
    folder : path
        Directory of captures.

    Raises
    ------
    ConfigError
        If the configuration has errors.
    """

    state = reading("", kind=Kind.hinted)
    failures = reading(0, kind=Kind.normal)
    warnings = reading(0, kind=Kind.normal)
    not_ready = reading("", kind=Kind.normal)
    platform = setting("auto", choices=("auto", *map(str, Platform)))
    checks = reading("", kind=Kind.normal)

    def __init__(
        self,
        prefix: str = "",
        *,
        name: str,
        config: ConfigSource | None = None,
        root: str | os.PathLike[str] = "/",
        folder: str | os.PathLike[str] = ".",
        **kwargs: Any,
    ) -> None:
        self._needs = None if config is None else load_config(config).to_dict()
        self._root, self._folder = root, folder
        self._report: Report | None = None
        super().__init__(prefix, name=name, **kwargs)

    @property
    def report(self) -> Report | None:
        """Report of the last `trigger`; None before the first."""
        return self._report

    def work(self) -> None:
        """Run the checks, and update the readings."""
        report = self._report = check_host(
            self._needs, platform=self.platform.get(), root=self._root, folder=self._folder
        )
        now = time.time()
        wrong = [r.check for r in report.results if r.status in (Status.WARN, Status.FAIL)]
        self.state.update(str(report.status), now)
        self.failures.update(report.count(Status.FAIL), now)
        self.warnings.update(report.count(Status.WARN), now)
        self.not_ready.update(", ".join(wrong), now)
        found = {r.check: {"status": str(r.status), "found": r.found} for r in report.results}
        self.checks.update(json.dumps(found), now)

    def metadata(self) -> Mapping[str, Any]:
        """
        Return the host's state for a run's start document.

        Returns
        -------
        dict
            ``platform``, ``status``, and ``not_ready``: findings by check, for those that warn or
            fail. Empty before the first `trigger`.
        """
        if self._report is None:
            return {}
        wrong = {
            r.check: r.found for r in self._report.results if r.status in (Status.WARN, Status.FAIL)
        }
        return {
            "platform": self._report.platform,
            "status": str(self._report.status),
            "not_ready": wrong,
        }
