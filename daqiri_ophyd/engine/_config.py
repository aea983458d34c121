"""Reading and checking configurations."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

import numpy as np

from daqiri_ophyd import _native
from daqiri_ophyd._native import FlowConfig, NetworkConfig, ReorderConfig

from ._errors import ConfigError, InvalidParameterError
from ._native_path import native_path

__all__ = [
    "engine_problems",
    "find_plan",
    "ConfigProblem",
    "ConfigReport",
    "ConfigSource",
    "check_config",
    "load_config",
    "read_config",
    "store_address_error",
]

ConfigSource = NetworkConfig | Mapping[str, Any] | str | Path
"""Keys and values, YAML text, or a YAML file's path (as str: one line ending .yaml or .yml)."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One finding about a configuration.

    Parameters
    ----------
    severity : {"error", "warning"}
        A configuration with an error cannot be used; a warning reports an adjusted value.
    file : str
        File name; ``<text>`` or ``<config>`` if there is none.
    line, column : int
        Position, from 1; 0: unknown.
    path : str
        Path of the key, such as ``interfaces[1].rx.queues[0].id``.
    message : str
        The value found and the accepted values.
    """

    severity: Literal["error", "warning"]
    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        key = f"{self.path}: " if self.path else ""
        return f"{place}: {self.severity}: {key}{self.message}"


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """All findings about a configuration.

    Parameters
    ----------
    problems : list of ConfigProblem
        In the order of the file.
    """

    problems: list[ConfigProblem]

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    @property
    def errors(self) -> list[ConfigProblem]:
        """The problems that are errors."""
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> list[ConfigProblem]:
        """The problems that are warnings."""
        return [problem for problem in self.problems if problem.severity == "warning"]

    def text(self) -> str:
        """Return one line per problem: file, position, severity, key, message."""
        return "\n".join(map(str, self.problems))


def read_config(
    source: ConfigSource, file: str | None = None
) -> tuple[NetworkConfig | None, ConfigReport]:
    """Read and check a configuration without logging.

    Parameters
    ----------
    source, file
        As for `load_config`.

    Returns
    -------
    NetworkConfig or None
        The readable part of the configuration. None: the source has values of other types.
    ConfigReport
        All findings; errors in the configuration do not raise.

    Raises
    ------
    InvalidParameterError
        If the source is not one of the accepted types, or the name of its file is not UTF-8.
    """
    if isinstance(source, NetworkConfig):
        return source, ConfigReport([])
    if isinstance(source, Mapping):
        name = file or "<config>"
        try:
            text = _as_text(source)
        except _NotPlainError as error:
            path, message = error.args
            return None, ConfigReport([ConfigProblem("error", name, 0, 0, path, message)])
        config, problems = _native.parse_config(text, name, positions=False)
    elif _is_path(source):
        config, problems = _native.read_config(native_path(Path(source)))
    elif isinstance(source, str):
        config, problems = _native.parse_config(source, file or "<text>", positions=True)
    else:
        raise InvalidParameterError(
            f"configuration is {type(source)}; accepted are a dict, YAML text, a path, or the "
            "result of load_config"
        )
    return config, ConfigReport([ConfigProblem(*problem) for problem in problems])


def check_config(source: ConfigSource, *, file: str | None = None) -> ConfigReport:
    """Find all problems of a configuration.

    The result is the same on every machine: whether the host has the cores, interfaces and engines
    is checked when an engine is opened.

    Parameters
    ----------
    source : dict, str or Path
        Keys and values, YAML text, or the path of a YAML file. A str is a path if it is one line
        that ends .yaml or .yml.
    file : str, optional
        Name of the source in the report.

    Returns
    -------
    ConfigReport
        All findings; errors in the configuration do not raise.

    Raises
    ------
    InvalidParameterError
        If the source is not one of the accepted types.
    """
    return read_config(source, file)[1]


def load_config(source: ConfigSource, *, file: str | None = None) -> NetworkConfig:
    """Read and check a configuration.

    Adjusted values are logged as warnings; `check_config` returns them.

    Parameters
    ----------
    source : dict, str or Path
        Keys and values, YAML text, or the path of a YAML file. A str is a path if it is one line
        that ends .yaml or .yml.
    file : str, optional
        Name of the source in messages.

    Returns
    -------
    NetworkConfig
        The configuration with all defaults and adjustments.

    Raises
    ------
    ConfigError
        If there are errors; its text and its ``report`` list all of them.
    InvalidParameterError
        If the source is not one of the accepted types.
    """
    config, report = read_config(source, file)
    if config is None or not report.ok:
        raise ConfigError(report)
    for warning in report.warnings:
        _log.warning("%s", warning)
    return config


def flows_text(flows: Sequence[Mapping[str, Any]]) -> str:
    """Return flows as the text of a configuration file that contains only them.

    Raises
    ------
    InvalidParameterError
        If they have values that a file cannot contain.
    """
    try:
        return _as_text({"flows": flows})
    except _NotPlainError as error:
        path, message = error.args
        raise InvalidParameterError(f"{path}: {message}") from None


def _is_path(source: object) -> bool:
    if isinstance(source, Path):
        return True
    if not isinstance(source, str) or "\n" in source:
        return False
    return source.lower().endswith((".yaml", ".yml"))


class _NotPlainError(Exception):
    """A value that a configuration file cannot contain: its path, and the problem."""


def _as_text(source: Mapping[str, Any]) -> str:
    """Return JSON, which is YAML with all strings in quotes and on one line."""

    def plain(value: object, path: str) -> object:
        if path.count(".") + path.count("[") > 100:
            raise _NotPlainError(path[:60] + "...", "is nested without end")
        if isinstance(value, Mapping):
            start = f"{path}." if path else ""
            return {str(key): plain(item, f"{start}{key}") for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
        if isinstance(value, (np.generic, np.ndarray)):
            value = value.tolist()
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, date):
            return str(value)
        raise _NotPlainError(
            path, f"found {value!r} of {type(value)}; accepted are plain Python values"
        )

    text = json.dumps(plain(source, ""), ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()


def engine_problems(config: NetworkConfig) -> list[ConfigProblem]:
    """Return what the engine of a valid configuration does not have, on any host.

    Opening the engine rejects the same. If the engine is not part of this build, that is a warning:
    another host may have it.

    Parameters
    ----------
    config : NetworkConfig
        The configuration.
    """
    needs = _native.host_needs(config.to_yaml())
    state = _native.capabilities().get(needs["engine"], "")
    severity = "error" if state == "available" else "warning"
    return [ConfigProblem(severity, "", 0, 0, "", text) for text in needs["refusals"]]


def store_address_error(address: str) -> str:
    """Return what is wrong with an address of an object store; empty: nothing.

    It is the rule of the key ``ship_to``.

    Parameters
    ----------
    address : str
        ``s3://BUCKET/PREFIX``, ``gs://`` or ``az://``.
    """
    return _native.store_address_error(address)


def find_plan(
    config: NetworkConfig, name: str
) -> tuple[ReorderConfig, tuple[FlowConfig, ...]] | None:
    """Return a reorder plan, and the flows that it may use.

    Parameters
    ----------
    config : NetworkConfig
        Configuration.
    name : str
        Names of interface and plan, as files have them: ``port0/images``; of a plan with flows of
        several interfaces, ``images``.

    Returns
    -------
    tuple of ReorderConfig and tuple of FlowConfig, or None
        None: there is no such plan.
    """
    for interface in config.interfaces:
        for plan in interface.rx.reorder_configs:
            if f"{interface.name}/{plan.name}" == name:
                return plan, interface.rx.flows
    for plan in config.reorder_configs:
        if plan.name == name:
            return plan, tuple(f for interface in config.interfaces for f in interface.rx.flows)
    return None
