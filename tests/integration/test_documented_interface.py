"""Every name of DAQIRI's documents against the installed library: the tables of a page of the
documentation, which fails when it is out of date.
"""

import copy
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import documented_interface as documented
import pytest

from daqiri_ophyd.engine import Engine, NotSupportedError, check_config

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "coming-from-daqiri.md"
SAME = "same"
NOT_DECLARED = "not declared"
NOT_ACCEPTED = "not accepted"

PRELUDE = """
#include <daqiri/daqiri.h>
#include <cstdio>
#include <cstdlib>
#include <utility>
using namespace daqiri;
"""


@dataclass(frozen=True)
class Compiler:
    """Compiles against the installed library."""

    prefix: Path
    folder: Path

    def command(self, source: Path) -> list[str]:
        search = [f"-I{self.prefix}/include"]
        return ["g++", "-std=c++17", "-w", "-fmax-errors=0", *search, str(source)]

    def failing(self, lines: list[str]) -> set[int]:
        """Return the declarations that do not compile, each tested separately."""
        source = self.folder / "names.cpp"
        source.write_text(PRELUDE + '#line 1 "names"\n' + "\n".join(lines) + "\n")
        done = subprocess.run(
            [*self.command(source), "-fsyntax-only"], capture_output=True, text=True, timeout=280
        )
        found = {int(n) for n in re.findall(r"^names:(\d+):\d+: error", done.stderr, re.MULTILINE)}
        assert done.returncode == 0 or found, done.stderr
        return {n - 1 for n in found}

    def run(self, statements: list[str], *arguments: str) -> str:
        """Run a program with these statements; return its output."""
        source = self.folder / "calls.cpp"
        body = "\n".join(statements)
        source.write_text(f"{PRELUDE}int main(int, char** argv) {{\n{body}\n}}\n")
        (library,) = self.prefix.rglob("libdaqiri.so")
        link = [f"-L{library.parent}", "-ldaqiri", f"-Wl,-rpath,{library.parent}"]
        program = self.folder / "calls"
        subprocess.run([*self.command(source), "-o", program, *link], check=True, timeout=280)
        return subprocess.check_output([program, *arguments], text=True, timeout=60)


@pytest.fixture(scope="module")
def compiler(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(prefix, tmp_path_factory.mktemp("names"))


@dataclass(frozen=True)
class Function:
    chapter: str
    result: str
    name: str
    parameters: str

    def exact(self) -> str:
        pointer = f"{self.result} (*)({self.parameters})"
        return f"static_assert(sizeof(static_cast<{pointer}>(&daqiri::{self.name})) > 0);"

    def call(self) -> str:
        parameters = re.findall(r"(?:[^,<]|<[^>]*>)+", self.parameters)
        values = ", ".join(f"std::declval<{parameter.strip()}>()" for parameter in parameters)
        # An argument that is written in braces has no type.
        values = re.sub(r"std::declval<const std::initializer_list<int>&>\(\)", "{1, 2}", values)
        call = f"daqiri::{self.name}({values})"
        as_documented = "true" if self.result == "void" else f"!!sizeof(({self.result})({call}))"
        return f"static_assert(({as_documented}) && sizeof(decltype({call})*) > 0);"

    def __str__(self) -> str:
        return f"{self.result} {self.name}({self.parameters})"


def functions() -> Iterator[Function]:
    for chapter, text in documented.FUNCTIONS.items():
        for line in re.sub(r",\s+", ", ", text).strip().splitlines():
            found = re.fullmatch(r"\s*(.+?[ *])(\w+)\((.*)\)", line)
            assert found, line
            yield Function(chapter, found[1].strip(), found[2], found[3])


def reasons(compiler: Compiler) -> dict[str, str]:
    """Functions that this build declares but does not implement, and the reported reasons."""
    statements = [
        "if (daqiri_init(argv[1]) != Status::SUCCESS) { puts(last_error()); exit(1); }",
        "auto* burst = create_tx_burst_params();",
        "set_header(burst, 0, 0, 1, 1);",
        "get_tx_packet_burst(burst);",
        "ReorderBurstInfo info; FlowOpId op; FlowOpResult result;",
        "uintptr_t connection; uint16_t port;",
    ]
    for name, call in documented.MAY_BE_MISSING.items():
        statements.append(f'daqiri::{name}{call}; printf("{name}\\t%s\\n", last_error());')
    statements.append("daqiri::shutdown();")
    found = {}
    for line in compiler.run(statements, json.dumps(documented.RAW)).splitlines():
        name, _, reason = line.partition("\t")
        caller, _, why = reason.partition(": ")
        if caller == name and why.startswith("this build "):
            found[name] = re.split("[;:,(]", why.removeprefix("this build "))[0].strip()
    return found


def table(heading: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"| {heading} | here |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)]
    return "\n".join(lines)


def grouped(heading: str, rows: list[tuple[str, str]]) -> str:
    """Return a table of what differs, a row for each way to do so."""
    names: dict[str, dict[str, None]] = {}
    for name, verdict in other_than_same(rows):
        names.setdefault(verdict, {})[f"`{name}`"] = None
    return table(heading, [(", ".join(those), verdict) for verdict, those in names.items()])


def other_than_same(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, verdict) for name, verdict in rows if verdict != SAME]


def table_of_functions(compiler: Compiler) -> str:
    every = list(functions())
    other = [every[n] for n in compiler.failing([f.exact() for f in every])]
    missing = {other[n] for n in compiler.failing([f.call() for f in other])}
    lacking = reasons(compiler)

    def verdict(function: Function) -> str:
        if function in missing:
            return NOT_DECLARED
        if function.name in lacking:
            return f"not in this build, which {lacking[function.name]}"
        if function in other:
            return f"same calls: {documented.DECLARED_OTHERWISE[function.name]}"
        return SAME

    return grouped("functions", [(f.name, verdict(f)) for f in every])


def table_of_types(compiler: Compiler) -> str:
    checks: list[tuple[str, str, str]] = []  # type, what, declaration
    for name, words in documented.ENUMS.items():
        number = 0
        for word in words.split():
            word, _, given = word.partition("=")
            number = int(given or number)
            value = f"static_cast<int>(daqiri::{name}::{word})"
            checks.append((name, word, f"static_assert({value} == {number});"))
            number += 1
    for name, members in documented.STRUCTS.items():
        if members.startswith("="):
            same = f"std::is_same_v<daqiri::{name}, {members[1:]}>"
            checks.append((name, "", f"static_assert({same});"))
            continue
        checks.append((name, "", f"static_assert(sizeof(daqiri::{name}*) > 0);"))
        for member in members.split():
            member, _, wanted = member.partition(":")
            kind = f"decltype(daqiri::{name}::{member})"
            same = f"std::is_same_v<{kind}, {wanted}>" if wanted else f"sizeof({kind}*) > 0"
            checks.append((name, member, f"static_assert({same});"))
    failing = compiler.failing([declaration for *_, declaration in checks])
    rows = []
    for name in dict.fromkeys(name for name, *_ in checks):
        wrong = [what for n, (of, what, _) in enumerate(checks) if of == name and n in failing]
        if "" in wrong:
            rows.append((f"`{name}`", NOT_DECLARED))
            continue
        otherwise = documented.MEMBERS_OTHERWISE
        told = [f"`{what}`: {otherwise.get(f'{name}.{what}', 'not declared')}" for what in wrong]
        rows.append((f"`{name}`", "; ".join(told) or SAME))
    return table("type", other_than_same(rows))


def constants_that_differ(compiler: Compiler) -> list[str]:
    checks = {
        name: f"static_assert(daqiri::{name} == ({value}));"
        for name, value in documented.CONSTANTS.items()
    }
    for name, value in documented.MACROS.items():
        if name.startswith("DAQIRI_LOG_"):
            checks[name] = f'static_assert(([] {{ {name}("{{}} lines", 2); }}, true));'
        else:
            checks[name] = f"static_assert({f'{name} == {value}' if value else f'sizeof({name})'});"
    failing = compiler.failing(list(checks.values()))
    headers = [compiler.prefix / "include" / header for header in documented.HEADERS]
    return [
        *(name for n, name in enumerate(checks) if n in failing),
        *(header.name for header in headers if not header.is_file()),
    ]


def with_value(path: str, value: object) -> dict[str, object]:
    """Return RAW with another value; `x[]` in the path is the first item of the list `x`."""
    config = copy.deepcopy(documented.RAW)
    at: Any = config
    *steps, last = re.findall(r"\w+|\[\]", path)
    for step in steps:
        at = at[0] if step == "[]" else at.setdefault(step, {})
    at[0 if last == "[]" else last] = value
    return config


def key_verdict(key: str, given: object) -> str:
    """The result of a configuration with the key."""
    otherwise = documented.KEYS_OTHERWISE.get(key, "")
    told = otherwise or SAME
    if given is None:  # depends on the machine
        return told
    if isinstance(given, dict):
        config = given
    else:
        path, value = given if isinstance(given, tuple) else (key, given)
        config = with_value(path, value)
    report = check_config(config)
    if not report.ok:
        return NOT_ACCEPTED
    name = re.findall(r"\w+", key)[-1]
    for warning in report.warnings:
        if name in f"{warning.path} {warning.message}":
            told = "no effect with sockets and loopback; causes a warning"
    try:
        Engine.open(config).close()
    except NotSupportedError as error:
        # Without the interface that requires it, and without a proposed fix.
        lacking = re.sub(r"^interface '\w+': ", "", str(error).partition("; ")[0])
        return f"not in this build: {lacking}"
    return told


def table_of_keys() -> str:
    return grouped(
        "keys", [(key, key_verdict(key, given)) for key, given in documented.KEYS.items()]
    )


def test_the_page_shows_every_documented_name_as_it_is(compiler: Compiler) -> None:
    page = PAGE.read_text()
    differences, _, _ = page.partition("## Every name\n")
    made = f"""{differences}## Every name

A test generates this section. It compiles each documented name and opens an engine with each
key. What is listed neither here nor above is the same, as are all constants, macros and headers.

{table_of_functions(compiler)}

{table_of_types(compiler)}

{table_of_keys()}
"""
    assert not constants_that_differ(compiler)
    assert f"| {NOT_DECLARED} |" not in made
    assert f"| {NOT_ACCEPTED} |" not in made
    if page != made:
        renewed = ROOT / "build" / PAGE.name
        renewed.write_text(made)
        pytest.fail(f"{PAGE} is out of date: cp {renewed} {PAGE}")
