"""Command line: sub-commands and exit codes."""

import gc
import logging
import sys
from importlib import import_module
from typing import Any

import typer
from typer.exceptions import TyperException

from ._output import open_closed_streams, print_error
from ._signals import end_on_signals, ended_by

EXIT_FAILED = 1
EXIT_USAGE = 2
# Typer's exit code for Ctrl-C: the shell's code for a program ended by SIGINT.
_INTERRUPTED = 130

# Each command has a module of the same name, with a function of that name or an app. The list of
# commands imports none of them, so the first lines of their help stand here, too.
COMMANDS = {
    "demo": "Send packets on a schedule, capture them, store the run, read it back, and replay it.",
    "shell": "Open an IPython session with a RunEngine, the devices of a configuration, and a "
    "catalog.",
    "info": "Show the version, the engines of this build, and the included profiles.",
    "config": "Check and show configuration files.",
    "pcap": "Show, check and repair pcap files.",
    "host": "Check whether this host can receive the stream.",
    "capture": "Capture packets to pcap files, and store the run in a catalog.",
    "send": "Send the packets of a pcap file with their original gaps; gaps over 10 s are "
    "announced.",
    "replay": "Send the packets of a stored run again, with their original gaps.",
    "catalog": "Maintain a catalog.",
    "stats": "Show rates, drops, pool levels and lateness of running engines, updated in place.",
    "run": "Run a script written for DAQIRI's Python bindings, like python SCRIPT.",
    "simulate": "Send the packets of a simulated instrument. The profile of the same name "
    "assembles frames.",
    "frames": "Show, check and repair files of frames.",
    "gpu": "Check whether a GPU assembles correct frames.",
}


def _app(argv: list[str]) -> typer.Typer:
    """Return the app with the requested command, or with names and summaries of all.

    Numpy takes a tenth of a second to import, Bluesky and Tiled seconds; only commands that need
    them import them.
    """
    app = typer.Typer(
        name="daqiri-ophyd",
        help="Packet acquisition for Bluesky.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    # Without a callback, Typer turns a single command into the whole program.
    app.callback()(lambda: None)
    asked = next((word for word in argv if word != "--"), "")
    if asked not in COMMANDS:
        for name, summary in COMMANDS.items():
            app.command(name, help=summary)(lambda: None)
        return app
    module: Any = import_module(f"{__package__}._{asked}")
    if hasattr(module, "app"):
        app.add_typer(module.app, name=asked)
    else:
        settings = getattr(module, "CONTEXT_SETTINGS", None)
        app.command(asked, context_settings=settings)(getattr(module, asked))
    return app


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
    open_closed_streams()
    end_on_signals()
    code = _run(argv)
    received = ended_by()
    sys.exit(code if received is None else 128 + received)


def _run(argv: list[str] | None) -> int:
    try:
        # With standalone_mode=False, the code of `typer.Exit` is returned.
        arguments = sys.argv[1:] if argv is None else argv
        code = _app(arguments)(args=arguments, prog_name="daqiri-ophyd", standalone_mode=False)
    except TyperException as error:
        # All of these are usage errors.
        print_error(error.format_message())
        return EXIT_USAGE
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - what a command raises is its message
        from ..engine import ConfigError, DaqiriError

        plain = isinstance(error, (DaqiriError, OSError, ValueError, LookupError, RuntimeError))
        # A plan's failure wraps the real cause.
        print_error((str(error) or type(error).__name__) if plain else reason(error))
        return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED
    if code == _INTERRUPTED:
        received = ended_by()
        what = "interrupted" if received is None else f"ended by {received.name}"
        print_error(f"{what}; the captured files are complete")
        return EXIT_FAILED
    return code if isinstance(code, int) else 0


def reason(error: BaseException) -> str:
    """Return the text of an error and of its cause, as in a failed status."""
    text = str(error) or type(error).__name__
    cause = error.__cause__
    if cause is not None and str(cause) and str(cause) not in text:
        text = f"{text}\n  because: {cause}"
    return text
