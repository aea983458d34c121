"""Command line: sub-commands and exit codes."""

import gc
import logging
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from ._help import describe
from ._output import (
    LogMessages,
    open_closed_streams,
    print_error,
    print_line,
    print_message,
    reason,
)
from ._signals import end_on_signals, ended_by

_LOG_MESSAGES = LogMessages(logging.WARNING)

EXIT_FAILED = 1
EXIT_USAGE = 2
# Typer's exit code for Ctrl-C: the shell's code for a program ended by SIGINT.
_INTERRUPTED = 130

# Each command has a module of the same name, with a function of that name or an app. The list of
# commands imports none of them, so the first lines of their help stand here, too, by task.
TASKS = {
    "Begin": {
        "demo": "Send packets on a schedule, capture them, store the run, read it back, and replay "
        "it.",
        "shell": "Open an IPython session with a RunEngine, the devices of a configuration, and a "
        "catalog.",
    },
    "Acquire and send": {
        "capture": "Capture packets to pcap files, and store the run in a catalog.",
        "send": "Send the packets of a pcap file with their original gaps; gaps over 10 s are "
        "announced.",
        "replay": "Send the packets of a stored run again, with their original gaps.",
        "simulate": "Send the packets of a simulated instrument. The profile of the same name "
        "assembles frames.",
        "stats": "Show rates, drops, pool levels and lateness of running engines, updated in "
        "place.",
        "metrics": "Give counters and levels of running engines to Prometheus or OpenTelemetry.",
        "run": "Run a script written for DAQIRI's Python bindings, like python SCRIPT.",
    },
    "Read runs and files": {
        "runs": "List, show and export the runs of a catalog.",
        "catalog": "Browse and maintain a catalog.",
        "pcap": "Show, check and repair pcap files.",
        "frames": "Show, check, repair, join and correct files of frames.",
    },
    "Set up": {
        "config": "Write, check and show configuration files.",
        "host": "Check whether this host can receive the stream.",
        "field-test": "Test each feature of a configuration on this host and its cards, and "
        "write a report.",
        "gpu": "Check whether a GPU assembles correct frames.",
        "info": "Show the version, the engines of this build, and the included profiles.",
        "cmake-dir": "Print the folder of the CMake package, for C++ programs.",
        "completion": "Print a script that completes commands and options in a shell.",
    },
}
COMMANDS = {name: summary for commands in TASKS.values() for name, summary in commands.items()}
_COMPLETE = "_DAQIRI_OPHYD_COMPLETE"


def _show_version(asked: bool) -> None:
    if asked:
        from .. import __version__

        print_line(f"daqiri-ophyd {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            help="Show the version and exit.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """
    Packet acquisition for Bluesky.

    Exit code 0: done; 1: failed, or interrupted before its end; 2: wrong usage, or a configuration
    with errors. Results go to stdout, messages to stderr.
    """


def _words_to_complete() -> list[str]:
    """Return the complete words on a shell's command line, without the program and the last one."""
    if words := os.environ.get("COMP_WORDS"):
        return words.split()[1 : int(os.environ.get("COMP_CWORD", "1"))]
    words = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return words.split()[1:] if words.endswith(" ") else words.split()[1:-1]


def _app(argv: list[str]) -> typer.Typer:
    """Return the app with the requested command, or with names and summaries of all.

    Numpy takes a tenth of a second to import, Bluesky and Tiled seconds; only commands that need
    them import them.
    """
    completes = _COMPLETE in os.environ
    app = _empty_app(completes=completes)
    words = _words_to_complete() if completes else argv
    asked = next((word for word in words if word != "--"), "")
    if asked not in COMMANDS:
        for task, commands in TASKS.items():
            for name, summary in commands.items():
                app.command(name, help=summary, rich_help_panel=task)(lambda: None)
        return app
    _add(app, asked)
    return app


def _empty_app(*, completes: bool = False) -> typer.Typer:
    app = typer.Typer(
        name="daqiri-ophyd",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        # Only `completion` and the shells that use its script need what this adds.
        add_completion=completes,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    # Without a callback, Typer turns a single command into the whole program.
    app.callback()(_options)
    return app


def _add(app: typer.Typer, name: str) -> None:
    function = name.replace("-", "_")
    module: Any = import_module(f"{__package__}._{function}")
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name)
    else:
        settings = getattr(module, "CONTEXT_SETTINGS", None)
        app.command(name, context_settings=settings)(getattr(module, function))


def main(argv: list[str] | None = None) -> None:
    """
    Run the command line and exit: 0 done, 1 failed, 2 bad usage or configuration.

    SIGTERM and SIGHUP end it as Ctrl-C does, with exit code 128 + number of the signal.

    Parameters
    ----------
    argv
        Arguments without the program name; None: those of the process.
    """
    # What a command imports, up to a million objects, stays. Python would look for garbage among it
    # after each 700 new ones (2000 since 3.13): a seventh of the time to import Bluesky and Tiled.
    gc.set_threshold(100_000, 20, 20)
    # Failures are reported as one message; the library's log of them would repeat it.
    logging.getLogger("bluesky").setLevel(logging.CRITICAL)
    logging.getLogger("daqiri_ophyd").addHandler(_LOG_MESSAGES)
    open_closed_streams()
    end_on_signals()
    code = _run(argv)
    received = ended_by()
    sys.exit(code if received is None else 128 + received)


def _run(argv: list[str] | None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    try:
        # With standalone_mode=False, the code of `typer.Exit` is returned.
        command: Any = get_command(_app(arguments))
        describe(command)
        code = command(args=arguments, prog_name="daqiri-ophyd", standalone_mode=False)
    except TyperException as error:
        # All of these are usage errors.
        print_error(error.format_message())
        asked = next((word for word in arguments if word in COMMANDS), None)
        print_message(f"See daqiri-ophyd {asked + ' ' if asked else ''}--help.")
        return EXIT_USAGE
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - what a command raises is its message
        from ..engine import ConfigError, DaqiriError

        plain = isinstance(error, (DaqiriError, OSError, ValueError, LookupError, RuntimeError))
        # A plan's failure wraps the real cause.
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            # Without Python's [Errno 2].
            print_error(f"{error.filename}: {error.strerror}")
        else:
            print_error((str(error) or type(error).__name__) if plain else reason(error))
        return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED
    if code == _INTERRUPTED:
        received = ended_by()
        what = "interrupted" if received is None else f"ended by {received.name}"
        # The command, not an argument of another that has such a name.
        asked = next(iter(arguments), None)
        captures = asked in ("capture", "demo")
        # Ctrl-C also ends what the output is piped to; the exit code stays.
        with suppress(BrokenPipeError, SystemExit):
            print_error(f"{what}; the captured files are complete" if captures else what)
        # 1 means that a step failed, or that some are left.
        return _INTERRUPTED if asked == "field-test" else EXIT_FAILED
    return code if isinstance(code, int) else 0
