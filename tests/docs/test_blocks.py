"""Every block of every page is tested, or a comment before it gives the reason why not.

Python runs, in the tests named here. C++ is compiled and run by `test_guide_blocks.py`. Commands of
`daqiri-ophyd` are parsed as the command parses them, and configurations are checked.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml
from page_blocks import PageBlock, page_blocks

from daqiri_ophyd import profiles
from daqiri_ophyd.cli import _main
from daqiri_ophyd.cli._config_schema import config_schema
from daqiri_ophyd.engine import check_config
from daqiri_ophyd.simulate import PacketFormat

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

# Pages whose blocks a test runs, by language: all without a comment.
TESTED = {
    "README.md": {"python": "integration/test_readme.py"},
    "docs/how-to/capture-in-your-own-plan.md": {"python": "integration/test_how_to.py"},
    "docs/how-to/change-flows.md": {"python": "integration/test_how_to.py"},
    "docs/how-to/facility-catalog.md": {
        "python": "integration/catalog/test_catalog_consumer.py",
        "yaml": "integration/catalog_servers.py",
    },
    "docs/how-to/frame-files.md": {"python": "integration/test_how_to.py"},
    "docs/how-to/from-areadetector.md": {"python": "integration/test_how_to.py"},
    "docs/how-to/give-a-run-to-a-colleague.md": {"python": "integration/test_how_to.py"},
    "docs/how-to/make-frames-of-packets.md": {"python": "integration/test_how_to.py"},
    "docs/how-to/my-format-does-not-fit.md": {"python": "integration/test_how_to.py"},
    "docs/how-to/plot-a-scan.md": {"python": "integration/test_how_to.py"},
    "docs/how-to/prepare-a-fly-scan.md": {"python": "integration/test_how_to.py"},
    "docs/how-to/read-captures.md": {"python": "integration/test_how_to.py"},
    "docs/how-to/read-stats.md": {"python": "integration/test_how_to.py"},
    "docs/how-to/record-frames-in-scans.md": {"python": "integration/test_how_to.py"},
    "docs/how-to/replay-a-run.md": {"python": "integration/test_how_to.py"},
    "docs/how-to/run-daqiri-scripts.md": {"python": "integration/compat/test_compat_guide.py"},
    "docs/how-to/run-from-a-queue.md": {
        "python": "integration/services/conftest.py",
        "yaml": "integration/services/conftest.py",
    },
    "docs/how-to/see-images-live.md": {"python": "integration/test_how_to.py"},
    "docs/how-to/ship-to-an-object-store.md": {
        "python": "integration/test_how_to.py",
        "yaml": "integration/test_how_to.py",
    },
    "docs/how-to/watch-in-grafana.md": {
        "python": "integration/test_how_to.py",
        "yaml": "integration/metrics/test_metrics.py",
    },
    "docs/how-to/send-on-a-schedule.md": {"python": "integration/test_how_to.py"},
    "CONTRIBUTING.md": {"cmake": "packaging/test_engine_targets.py"},
    "docs/how-to/use-the-cpp-library.md": {"cmake": "packaging/test_cpp_package.py"},
    "docs/how-to/write-a-configuration.md": {"python": "integration/test_how_to.py"},
    "docs/index.md": {"python": "integration/test_readme.py"},
    "docs/tutorials/facility.md": {
        "python": "integration/services/test_facility.py",
        "yaml": "integration/services/test_facility.py",
    },
    "docs/tutorials/first-capture.md": {"python": "integration/test_tutorial.py"},
    "docs/tutorials/first-frames.md": {"python": "integration/test_tutorial.py"},
    "docs/tutorials/first-replay.md": {"python": "integration/test_tutorial.py"},
    "docs/tutorials/first-scan.md": {"python": "integration/test_tutorial.py"},
    "docs/tutorials/first-udp.md": {"python": "integration/test_tutorial.py"},
}
CPP = {"cpp", "c++", "cxx", "cuda"}
SHELL = {"console", "sh", "bash"}
# Printed, drawn, or written to a file unchanged.
NOT_CODE = {"text"}

SCHEMA = jsonschema.Draft7Validator(config_schema())
BLOCKS = [block for page in PAGES for block in page_blocks(page)]


def name_of(block: PageBlock) -> str:
    return str(block.page.relative_to(ROOT))


def blocks_of(*languages: str) -> pytest.MarkDecorator:
    found = [b for b in BLOCKS if b.language in languages and not b.why_not_run]
    return pytest.mark.parametrize("block", found, ids=str)


def test_every_block_is_tested_or_says_why_not() -> None:
    known = CPP | SHELL | NOT_CODE | {"yaml"}
    untested = [
        f"{name_of(block)}:{block.line}: {block.language}"
        for block in BLOCKS
        if not block.why_not_run
        and block.language not in known
        and block.language not in TESTED.get(name_of(block), {})
    ]
    assert not untested, "no test runs these, and no `% not run: REASON`:\n" + "\n".join(untested)


@pytest.mark.parametrize("page", TESTED)
def test_the_tests_named_here_read_these_pages(page: str) -> None:
    languages = {block.language for block in BLOCKS if name_of(block) == page}
    for language, test in TESTED[page].items():
        assert language in languages
        assert Path(page).name in (TESTS / test).read_text()


def lines_typed(block: PageBlock) -> Iterator[str]:
    """Yield what is typed in a block for a shell; a text in quotes may have several lines."""
    lines = iter(block.code.replace("\\\n", " ").splitlines())
    for line in lines:
        if block.language == "console":
            if not re.match(r"[$#] ", line):
                continue
            line = line[2:]
        while line.count("'") % 2 == 1:
            line += "\n" + next(lines)
        yield line


def commands(block: PageBlock) -> Iterator[list[str]]:
    """Yield the arguments of each call of `daqiri-ophyd` in a block for a shell."""
    for line in lines_typed(block):
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        call: list[str] | None = None
        for word in [*words, ";"]:
            if set(word) <= set(words.punctuation_chars):
                if call is not None:
                    yield call
                call = None
            elif Path(word).name == "daqiri-ophyd":
                call = []
            elif call is not None:
                call.append(word)


def without_work(command: Any) -> None:
    """Let a command, and those below it, do nothing but read their arguments."""
    command.callback = lambda **_: None
    for below in getattr(command, "commands", {}).values():
        without_work(below)


def parse(arguments: list[str]) -> None:
    """Parse arguments as `daqiri-ophyd` does, and run nothing; fails as it does."""
    command = typer.main.get_command(_main._app(arguments))
    without_work(command)
    command(args=arguments, standalone_mode=False)


@blocks_of(*SHELL)
def test_commands_have_the_options_that_a_page_gives_them(block: PageBlock) -> None:
    for arguments in commands(block):
        try:
            parse(arguments)
        except typer.exceptions.TyperException as error:
            pytest.fail(f"daqiri-ophyd {shlex.join(arguments)}: {error.format_message()}")


@pytest.mark.parametrize(
    "arguments", ["capture --no-such-option", "no-such-command", "replay", "pcap info --json"]
)
def test_commands_that_are_wrong_are_found(arguments: str) -> None:
    with pytest.raises(typer.exceptions.TyperException):
        parse(arguments.split())


def test_commands_are_found_in_lines_for_a_shell() -> None:
    code = "$ cd /tmp && daqiri-ophyd info > a\nprinted\n$ daqiri-ophyd send udp \\\n  'a b' &\n"
    block = PageBlock(Path("page.md"), 1, "console", code, "")
    assert list(commands(block)) == [["info"], ["send", "udp", "a b"]]


def whole(fragment: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration that has a fragment in the place where its keys belong."""
    config = yaml.safe_load(profiles.path("jungfrau").read_text())["daqiri"]["cfg"]
    interface = next(each for each in config["interfaces"] if "reorder_configs" in each["rx"])
    (plan,) = interface["rx"]["reorder_configs"]
    for key, value in fragment.items():
        if key in ("rx", "tx"):
            interface[key] = interface.get(key, {}) | value
        elif key in ("data_types", "frame", "method"):
            plan[key] = value
        elif key == "memory_regions":
            config[key] = config[key] + value
        else:
            config[key] = value
    return {"daqiri": {"cfg": config}}


def unknown_keys(document: dict[str, Any]) -> list[str]:
    """Return what the schema says about keys that do not exist."""
    errors = SCHEMA.iter_errors(document)
    return [each.message for each in errors if each.validator == "additionalProperties"]


@blocks_of("yaml")
def test_configurations_are_valid_and_their_parts_have_keys_that_exist(block: PageBlock) -> None:
    document = yaml.safe_load(block.code)
    if "yaml" in TESTED.get(name_of(block), {}):
        return  # of another program, whose test reads it
    if "daqiri" in document or "interfaces" in document:
        report = check_config(document)
        assert report.ok, report.problems
        SCHEMA.validate(document)
    elif "header" in document:
        PacketFormat.from_document(document)
    else:
        report = check_config(whole(document))
        assert not [each for each in report.problems if "unknown key" in each.message]
        assert not unknown_keys(whole(document))


def test_a_key_that_does_not_exist_is_found() -> None:
    for fragment in ({"rx": {"flow_isolatio": True}}, {"memory_region": []}, {"frame": {"x": 1}}):
        report = check_config(whole(fragment))
        assert [each for each in report.problems if "unknown key" in each.message]
        assert unknown_keys(whole(fragment))
