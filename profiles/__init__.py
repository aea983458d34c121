"""Engine configurations that come with the package."""

from pathlib import Path

__all__ = ["names", "path"]

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Name the profiles there are.

    Returns
    -------
    list of str
        In alphabetical order; each is accepted by `path`.
    """
    return sorted(file.stem for file in _FOLDER.glob("*.yaml"))


def path(name: str) -> Path:
    """Find the configuration file of a profile.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    pathlib.Path
        File that ``Engine.open`` accepts.

    Raises
    ------
    ValueError
        There is no profile of that name; the text lists those there are.
    """
    if name not in names():
        raise ValueError(f"no profile {name!r}; accepts {', '.join(names())}")
    return _FOLDER / f"{name}.yaml"
