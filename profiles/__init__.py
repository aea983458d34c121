"""Engine configurations that come with the package."""

from pathlib import Path

__all__ = ["names", "path"]

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Return the names of the profiles.

    Returns
    -------
    list of str
        In alphabetical order; each is accepted by `path`.
    """
    return sorted(file.stem for file in _FOLDER.glob("*.yaml"))


def path(name: str) -> Path:
    """Return the configuration file of a profile.

    Parameters
    ----------
    name : str
        Name of a profile, one of `names`.

    Returns
    -------
    pathlib.Path
        Configuration file for ``Engine.open``.

    Raises
    ------
    ValueError
        If there is no profile with that name; the message lists the profiles.
    """
    if name not in names():
        raise ValueError(f"no profile {name!r}; accepts {', '.join(names())}")
    return _FOLDER / f"{name}.yaml"
