"""Command line: sub-commands and exit codes."""

import logging
import sys

import typer
from typer.exceptions import TyperException

from ..engine import ConfigError, DaqiriError
from . import _capture, _config, _demo, _host, _info, _pcap, _replay, _send, _stats
from ._output import complain

EXIT_FAILED = 1
EXIT_USAGE = 2
# What typer makes of Ctrl-C: the shell's code for a program that SIGINT ended.
_INTERRUPTED = 130

app = typer.Typer(
    name="daqiri-ophyd",
    help="Packet acquisition for Bluesky.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(_demo.demo)
app.command("info")(_info.info)
app.add_typer(_config.app, name="config")
app.add_typer(_pcap.app, name="pcap")
app.add_typer(_host.app, name="host")
app.command("capture")(_capture.capture)
app.command("send")(_send.send)
app.command("replay")(_replay.replay)
app.command("stats")(_stats.stats)


def main(argv: list[str] | None = None) -> None:
    """
    Run the command line and exit: 0 done, 1 failed, 2 bad usage or configuration.

    Parameters
    ----------
    argv
        Arguments without the program's name; None: those of the process.
    """
    # Failures reach the user as one message; what libraries log about them is noise here.
    logging.getLogger("bluesky").setLevel(logging.CRITICAL)
    sys.exit(_run(argv))


def _run(argv: list[str] | None) -> int:
    try:
        # What `typer.Exit` carries comes back as the result.
        code = app(args=argv, prog_name="daqiri-ophyd", standalone_mode=False)
    except TyperException as error:
        # Every one of them is about how the command was called.
        complain(error.format_message())
        return EXIT_USAGE
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except ConfigError as error:
        complain(str(error))
        return EXIT_USAGE
    except (DaqiriError, OSError, ValueError, LookupError, RuntimeError) as error:
        complain(f"{error}" or type(error).__name__)
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - a plan's failure wraps the cause that the user needs
        complain(reason(error))
        return EXIT_FAILED
    if code == _INTERRUPTED:
        complain("interrupted; what was captured is complete")
        return EXIT_FAILED
    return code if isinstance(code, int) else 0


def reason(error: BaseException) -> str:
    """Return an error's text with its cause, which a failed status only carries along."""
    text = str(error) or type(error).__name__
    cause = error.__cause__
    if cause is not None and str(cause) and str(cause) not in text:
        text = f"{text}\n  because: {cause}"
    return text
