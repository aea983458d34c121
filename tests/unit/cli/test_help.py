"""Help of all commands, and the man page, which is made of the same."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import typer
import typer.rich_utils
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from daqiri_ophyd.cli import _main
from daqiri_ophyd.cli._help import describe

MAN_PAGE = Path(__file__).parents[3] / "docs" / "man" / "daqiri-ophyd.1"
MARKUP = re.compile(r"\[/?bold\]")
Command = TyperCommand | TyperGroup


def program() -> tuple[TyperGroup, typer.Context]:
    """Return the program with all commands, described as for help."""
    app = _main._empty_app()
    for name in _main.COMMANDS:
        _main._add(app, name)
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    return root, describe(root)


def commands(command: Command, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield names
    if isinstance(command, TyperGroup):
        for name, each in command.commands.items():
            assert isinstance(each, Command)
            yield from commands(each, (*names, name))


def escaped(text: str) -> str:
    """Return text as roff, in ASCII."""
    text = MARKUP.sub("", text).replace("\\", "\\e").replace("-", "\\-")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return f"\\&{text}" if text.startswith((".", "'")) else text


def text_of(command: Command) -> list[str]:
    return [each for each in (command.help or "").split("\n\n") if each]


def paragraphs(texts: list[str]) -> Iterator[str]:
    for text in texts:
        yield ".PP"
        yield escaped(text)


def entries(command: Command, context: typer.Context) -> Iterator[str]:
    """Yield the arguments and options of a command."""
    for each in command.get_params(context):
        if not isinstance(each, TyperArgument | TyperOption) or "--help" in each.opts:
            continue
        yield ".TP"
        if isinstance(each, TyperArgument):
            yield f".I {escaped(each.metavar or '')}"
        else:
            names = ", ".join(f"\\fB{escaped(name)}\\fR" for name in sorted(each.opts, key=len))
            names += "".join(f", \\fB{escaped(name)}\\fR" for name in each.secondary_opts)
            yield f"{names} \\fI{escaped(each.metavar or '')}\\fR".removesuffix(" \\fI\\fR")
        given = each._extract_default_help_str(ctx=context)
        default = each._get_default_string(
            ctx=context, show_default_is_str=False, default_value=given
        )
        shown = f" Default: {default}." if given is not None and default else ""
        yield escaped(f"{each.help or ''}{shown}")


def sections(command: Command, context: typer.Context) -> Iterator[str]:
    """Yield a command, and those below it."""
    inner = typer.Context(command, context, info_name=command.name)
    path = inner.command_path.partition(" ")[2]
    runs = not isinstance(command, TyperGroup) or command.invoke_without_command
    if runs:
        usage = [path, *command.collect_usage_pieces(inner)]
        plain = " ".join(usage).replace("{", "").replace("}", "").replace("COMMAND [ARGS]...", "")
        yield f'.SS "{escaped(plain.strip())}"'
        yield from paragraphs(text_of(command))
        yield from entries(command, inner)
    if isinstance(command, TyperGroup):
        for each in command.commands.values():
            assert isinstance(each, Command)
            yield from sections(each, inner)


def man_page() -> str:
    root, context = program()
    summary, *others = text_of(root)
    lines = [
        f'.\\" Made by pytest --write tests/unit/cli/{Path(__file__).name}, of the commands.',
        '.TH DAQIRI\\-OPHYD 1 "" daqiri\\-ophyd "User Commands"',
        ".SH NAME",
        f"daqiri\\-ophyd \\- {escaped(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        "\\fBdaqiri\\-ophyd\\fR \\fICOMMAND\\fR [OPTIONS] [ARGUMENTS]",
        ".SH DESCRIPTION",
        *list(paragraphs(others))[1:],
        *entries(root, context),
    ]
    for task, names in _main.TASKS.items():
        lines.append(f'.SH "{escaped(task.upper())}"')
        for name in names:
            command = root.commands[name]
            assert isinstance(command, Command)
            lines += sections(command, context)
    return "\n".join(lines) + "\n"


def test_the_man_page_is_that_of_the_commands(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--write"):
        MAN_PAGE.write_text(man_page())
    assert MAN_PAGE.read_text() == man_page(), (
        f"{MAN_PAGE.name} is out of date; run pytest --write {__file__}"
    )


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_the_man_page_is_valid() -> None:
    shown = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", MAN_PAGE],
        capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    assert shown.stderr == ""
    words = " ".join(shown.stdout.split())
    assert "daqiri-ophyd - Packet acquisition for Bluesky" in words
    assert "capture [OPTIONS] CONFIG" in words
    assert "-o, --data DIR" in words
    assert "runs export [OPTIONS] RUN DIR" in words


def test_help_says_in_words_what_options_accept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typer.rich_utils, "MAX_WIDTH", 80)
    root, _ = program()
    for names in commands(root):
        assert _main._run([*names, "--help"]) == 0
        shown = capsys.readouterr().out
        assert re.findall(r"<.+?>|<=|\d{10}", shown) == [], names
    assert _main._run(["capture", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.replace("│", "").split())
    for expected in (
        "--packets COUNT",
        "--seconds SECONDS",
        "--data -o DIR",
        "--on-drop fail|flag",
    ):
        assert expected in words
    assert words.count("Accepts") == 1 and "Can be repeated. Accepts 1 to 65535." in words
    assert _main._run(["capture", "lo", "--udp-port", "65536"]) == 2
    assert "--udp-port" in capsys.readouterr().err


def numeric_options() -> Iterator[tuple[tuple[str, ...], str, int]]:
    """Yield command, name, and number of values of each option whose value is a number."""
    root, _ = program()
    for names in commands(root):
        command: Command = root
        for name in names:
            assert isinstance(command, TyperGroup)
            each = command.commands[name]
            assert isinstance(each, Command)
            command = each
        for option in command.params:
            assert isinstance(option, TyperArgument | TyperOption)
            kind = option.type_descriptor.annotation
            if {kind, *get_args(kind)} & {int, float}:
                yield names, option.opts[0], option.nargs


NUMERIC_OPTIONS = [*numeric_options()]


@pytest.mark.parametrize(
    ("names", "option", "values", "wrong"),
    [
        (*each, wrong)
        for each in NUMERIC_OPTIONS
        for wrong in ("x", "", "nan", "inf", "-1", "9" * 5000)
        # Pixels without a value may have any.
        if each[1] != "--fill" or wrong in ("x", "")
    ],
)
def test_each_option_tells_the_numbers_that_it_accepts(
    names: tuple[str, ...],
    option: str,
    values: int,
    wrong: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _main._run([*names, option, *[wrong] * values]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(f"'{option}'.*: found '{wrong[:70]}.*; accepts (whole )?numbers", said), said
    assert "from" in said or option == "--fill"
    assert not list(tmp_path.iterdir())


def test_numeric_options_are_found() -> None:
    found = {(names[0], option) for names, option, _ in NUMERIC_OPTIONS}
    assert {
        ("simulate", "--loss"),
        ("capture", "--udp-port"),
        ("send", "--between"),
        ("stats", "--pid"),
        ("frames", "--fill"),
    } <= found


def test_paragraphs_fill_the_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typer.rich_utils, "MAX_WIDTH", 80)
    assert _main._run(["capture", "--help"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    start = next(i for i, line in enumerate(lines) if line.startswith("Packets that arrive"))
    assert lines[start + 1].startswith("if there is no limit. Ctrl-C, SIGTERM")
