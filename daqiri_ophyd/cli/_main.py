"""Command line: sub-commands and exit codes."""

import logging
import sys
from importlib import import_module

import typer
from typer.exceptions import TyperException

from ..engine import ConfigError, DaqiriError
from ._output import print_error
from ._signals import end_on_signals, ended_by

EXIT_FAILED = 1
EXIT_USAGE = 2
# Typer's exit code for Ctrl-C: the shell's code for a program ended by SIGINT.
_INTERRUPTED = 130

# Each command has a module of the same name, with a function of that name or an app.
_COMMANDS = (
    *("demo", "info", "config", "pcap", "host", "capture", "send", "replay", "catalog", "stats"),
    *("run", "simulate", "frames", "gpu"),
)


def _app(argv: list[str]) -> typer.Typer:
    """Return the app with the requested command, or with all commands.

    Bluesky and Tiled take seconds to import; only commands that need them import them.
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
    for name in argv[:1] if argv[:1] and argv[0] in _COMMANDS else _COMMANDS:
        module = import_module(f"{__package__}._{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            settings = getattr(module, "CONTEXT_SETTINGS", None)
            app.command(name, context_settings=settings)(getattr(module, name))
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
    # Failures are reported as one message; the library's log of them would repeat it.
    logging.getLogger("bluesky").setLevel(logging.CRITICAL)
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
    except ConfigError as error:
        print_error(str(error))
        return EXIT_USAGE
    except (DaqiriError, OSError, ValueError, LookupError, RuntimeError) as error:
        print_error(f"{error}" or type(error).__name__)
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - a plan's failure wraps the real cause
        print_error(reason(error))
        return EXIT_FAILED
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
