"""``daqiri-ophyd completion``."""

from typing import Annotated, Literal

import typer
from typer.completion import (
    get_completion_script,  # pyright: ignore[reportPrivateImportUsage]
)

from ._output import print_line


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell.")],
) -> None:
    """
    Print a script that completes commands and options in a shell.

    For bash: [bold]daqiri-ophyd completion bash >
    ~/.local/share/bash-completion/completions/daqiri-ophyd[/bold]

    For zsh, in a folder of fpath: [bold]daqiri-ophyd completion zsh > ~/.zfunc/_daqiri-ophyd[/bold]

    For fish: [bold]daqiri-ophyd completion fish >
    ~/.config/fish/completions/daqiri-ophyd.fish[/bold]

    Example: [bold]eval "$(daqiri-ophyd completion bash)"[/bold], for this session
    """
    print_line(
        get_completion_script(
            prog_name="daqiri-ophyd", complete_var="_DAQIRI_OPHYD_COMPLETE", shell=shell
        )
    )
