"""``daqiri-ophyd cmake-dir``."""

from ._output import print_line


def cmake_dir() -> None:
    """
    Print the folder of the CMake package, for C++ programs.

    Example: [bold]cmake -B build -Ddaqiri_DIR="$(daqiri-ophyd cmake-dir)"[/bold]
    """
    from ..engine import cmake_dir

    print_line(str(cmake_dir()))
