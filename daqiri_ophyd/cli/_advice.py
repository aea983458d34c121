"""What messages of the library advise, as options of the command line."""

import ast
import re
from shlex import quote

__all__ = ["as_options"]

# As `repr` has it.
_PATH = r"(?P<path>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
# Each as a message has it, and what the user of a command does instead.
_ADVICE: list[tuple[str, str]] = [
    (
        r"Name its new place, NEW: Catalog\.open\(\.\.\., readable=\['NEW'\], "
        rf"moved=\{{{_PATH}: 'NEW'\}}\)",
        r"Name its new place, NEW: --moved {path}=NEW",
    ),
    (
        r"Open it with Catalog\.open\(\.\.\., readable=\[" + _PATH + r"\]\)",
        "Commands read it with --readable {path}",
    ),
    (rf"readable=\[\.\.\., {_PATH}\]", "--readable {path}"),
    (rf"readable=\[{_PATH}\]", "--readable {path}"),
    (
        r": Catalog\.open or Catalog\.connect\(\.\.\., readable=\[directory\]\), or "
        r"capture_files\(run, readable=\.\.\.\)",
        ": --readable DIR",
    ),
    (r"then need Catalog\.open\(\.\.\., moved=\.\.\.\)", "then need --moved OLD=NEW"),
    (
        r"or connect to a server: Catalog\.connect\(uri\)\. To only read it: "
        r"Catalog\.open\(directory, create=False\)",
        "or name a server: --catalog ADDRESS",
    ),
    (r"Catalog\.connect\(uri, api_key\), or set TILED_API_KEY", "set TILED_API_KEY"),
    (r"Open it again: Catalog\.open\(directory\)", "Run the command again"),
    (r"download them with raw_export", "export the run there"),
    (r"store them with Catalog\.ingest_backup", "store them with `daqiri-ophyd catalog recover`"),
]
_COMPILED = [(re.compile(pattern), option) for pattern, option in _ADVICE]


def as_options(text: str) -> str:
    """Return a message of the library for the user of a command: options in place of Python."""
    for pattern, option in _COMPILED:
        text = pattern.sub(lambda found, to=option: to.format(**_paths(found)), text)
    return text


def _paths(found: re.Match[str]) -> dict[str, str]:
    """Return the path in a message as a shell reads it."""
    return {name: quote(ast.literal_eval(text)) for name, text in found.groupdict().items()}
