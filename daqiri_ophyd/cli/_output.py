"""Output of the command: JSON and tables on stdout, messages and progress on stderr."""

import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ._advice import as_options

# Without emoji: `:ab:` in a PCI address is the code of one.
out = Console(highlight=False, emoji=False)
messages = Console(stderr=True, highlight=False, emoji=False)
_WIDEST = 10_000


def open_closed_streams() -> None:
    """Discard what is written to standard streams that were closed, as with ``>&-``.

    Files that are opened later would get their descriptors, and messages of libraries with them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


@contextmanager
def _to_stdout() -> Iterator[None]:
    """Flush what the block writes to stdout; an error names it, since files were stored before."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RuntimeError(f"standard output cannot be written ({error.strerror})") from error


def print_json(value: Any) -> None:
    """Print one JSON document, unwrapped and uncolored."""
    with _to_stdout():
        sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def print_json_line(value: Any) -> None:
    """Print one JSON document on one line, and flush it for the reader."""
    with _to_stdout():
        sys.stdout.write(json.dumps(value, default=str) + "\n")


def printable(text: str) -> str:
    r"""Return text for a terminal: control characters, other than line ends, as ``\x1b``."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def one_line(text: str) -> str:
    r"""Return text for a part of a line on a terminal: line ends, too, as ``\n``."""
    return printable(text).replace("\n", "\\n")


def print_line(text: str) -> None:
    """Print text to stdout unchanged, without breaking lines."""
    with _to_stdout():
        out.print(printable(text), markup=False, soft_wrap=True)


def print_error(text: str) -> None:
    """Print an error to stderr; what it advises in Python, as options."""
    shown = Text("error: ", style="bold red")
    shown.append(printable(as_options(text)), style="not bold")
    messages.print(shown, soft_wrap=True)


def print_message(text: str) -> None:
    """Print a message to stderr, so that stdout can be piped."""
    messages.print(printable(text), markup=False, soft_wrap=True)


class LogMessages(logging.Handler):
    """Prints what the library logs, each record as one message without a traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        try:
            text = record.getMessage()
            error = record.exc_info[1] if record.exc_info else None
            if error is not None:
                text = f"{text.rstrip('.')} ({str(error) or type(error).__name__})"
            if record.levelno >= logging.ERROR:
                print_error(text)
            else:
                print_message(as_options(text))
        except Exception:  # noqa: BLE001 - who logs must not fail, as if stderr is closed
            self.handleError(record)


def print_whole(shown: RenderableType) -> None:
    """Print tables and texts to stdout; only a terminal limits their width."""
    # Without a terminal, rich would cut them at 80 columns.
    wide = Console(file=out.file, width=_WIDEST, highlight=False, emoji=False)
    with _to_stdout():
        (out if out.is_terminal else wide).print(shown, soft_wrap=True)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None
) -> None:
    """Print a table; columns of numbers are right-aligned."""
    body = [list(row) for row in rows]
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for i, name in enumerate(columns):
        numeric = bool(body) and all(isinstance(row[i], int | float) for row in body)
        table.add_column(name, justify="right" if numeric else "left")
    for row in body:
        table.add_row(*(_cell(value) for value in row))
    print_whole(table)


def _cell(value: Any) -> Text:
    return Text(f"{value:,}" if isinstance(value, int) else printable(str(value)))


def counts_text(total: int, reasons: Mapping[str, int]) -> str:
    """Return a number of packets with its reasons."""
    named = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items() if count)
    return f"{total:,}" + (f" ({named})" if named else "")


def print_facts(rows: Iterable[tuple[str, Any]]) -> None:
    """Print names and values in two columns, without line breaks, so that paths can be copied."""
    facts = [(name, printable(str(value))) for name, value in rows]
    width = max(len(name) for name, _ in facts)
    with _to_stdout():
        for name, value in facts:
            text = Text(f"{name:<{width}}  ", style="bold").append(value, style="not bold")
            out.print(text, soft_wrap=True)


@contextmanager
def progress_bar(text: str, total: int | None):
    """Yield a function that sets the progress; the bar is drawn on stderr if it is a terminal."""
    if not messages.is_terminal:
        yield lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=messages, transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done: bar.update(task, completed=done)


def reason(error: BaseException) -> str:
    """Return the text of an error and of its cause, as in a failed status."""
    text = str(error) or type(error).__name__
    cause = error.__cause__
    if cause is not None and str(cause) and str(cause) not in text:
        text = f"{text}\n  because: {cause}"
    return text
