"""Attribute names and data keys for the names in a configuration."""

import keyword
import re
from collections.abc import Iterable, Sequence
from inspect import get_annotations
from unicodedata import combining, normalize

from ophyd import Device
from ophyd.ophydobj import Kind

__all__ = [
    "LONGEST_COLUMN",
    "attribute_name",
    "attribute_names",
    "column_names",
    "device_name",
    "fitted",
    "require_column",
    "require_own_column",
]

LONGEST_COLUMN = 60
"""Bytes of a data key. Databases accept 63, and columns of timestamps begin with ``ts_``."""

# Characters of shortened names: the second if data keys are too long with the first.
_LIMITS = (12, 7)

# Attributes that ophyd gives each device, in addition to those of its class.
_OF_DEVICES = frozenset({"control_layer_log", "log", "prefix", "stage_sigs"})


def attribute_name(name: str, kind: str, taken: frozenset[str]) -> str:
    """Return a Python attribute for a name in a configuration.

    Attributes are also columns of databases, addresses and file names, so they are ASCII: accents
    are left out (``détecteur 1`` is ``detecteur_1``), other characters than letters and digits
    become ``_``. A name that does not begin with a letter is prefixed with ``kind`` (queue ``0`` is
    ``queue_0``). A keyword, or a name that the device class uses, gets a trailing ``_``
    (``stage_``).

    Parameters
    ----------
    name : str
        Name as configured.
    kind : str
        Kind of the named object: ``port``, ``queue``, ``flow``, ``plan``.
    taken : frozenset of str
        Attributes that the device class already has.
    """
    letters = "".join(c for c in normalize("NFKD", name) if not combining(c))
    attribute = re.sub(r"\W", "_", letters, flags=re.ASCII)
    if not attribute[:1].isalpha():
        attribute = f"{kind}_{attribute.lstrip('_')}"
    if keyword.iskeyword(attribute) or attribute in taken:
        attribute += "_"
    return attribute


def attribute_names(
    names: Iterable[str], kind: str, device: type, others: Iterable[str] = ()
) -> dict[str, str]:
    """Return the attribute under ``device`` for each name.

    Parameters
    ----------
    names : iterable of str
        Names as configured, in order.
    kind : str
        Kind of the named objects.
    device : type
        Class of the device that gets the attributes.
    others : iterable of str
        Further attributes of the device.

    Returns
    -------
    dict of str to str
        Attribute by name, in order.

    Raises
    ------
    ValueError
        If two names have the same attribute.
    """
    taken = _OF_DEVICES | frozenset(dir(device)) | frozenset(get_annotations(device))
    taken |= frozenset(others)
    found: dict[str, str] = {}
    for name in names:
        attribute = attribute_name(name, kind, taken)
        for other, used in found.items():
            if used == attribute:
                raise ValueError(
                    f"{kind} names {other!r} and {name!r} would both be the attribute "
                    f"{attribute!r}. Rename one of them in the configuration."
                )
        found[name] = attribute
    return found


def _shortened(name: str, limit: int) -> str:
    """Return a name of which the longest words have lost their last letters.

    Numbers stay: ``detector_module_0001`` is ``det_mod_0001``.
    """
    words = re.findall(r"[a-zA-Z]+|[^a-zA-Z]+", name)
    for _ in range(len(name) - limit):
        letters = [len(word) if word.isalpha() else 0 for word in words]
        if max(letters) > 1:
            longest = letters.index(max(letters))
            words[longest] = words[longest][:-1]
    return "".join(words)


def fitted(path: Sequence[str], columns: Iterable[str]) -> str:
    """Return the beginning of data keys, with names shortened if a data key would be too long.

    Nothing but the path and its columns changes the result, so further devices in a configuration
    leave it as it is.

    Parameters
    ----------
    path : sequence of str
        A word of the device tree, a name of the configuration, a word, and so on. Names are
        shortened, words are not.
    columns : iterable of str
        Ends of the data keys.

    Returns
    -------
    str
        The parts of the path, joined by ``_``. If the longest data key fits with no limit, the
        names have that of the shortest.
    """
    rest = max((len(column) + 1 for column in columns), default=0)
    stem = "_".join(path)
    for limit in _LIMITS:
        if len(stem.encode(errors="surrogateescape")) + rest <= LONGEST_COLUMN:
            break
        parts = (_shortened(part, limit) if i % 2 else part for i, part in enumerate(path))
        stem = "_".join(parts)
    return stem


def column_names(device: type[Device]) -> list[str]:
    """Return the attributes of a device, without those of its parts, that may be readings."""
    components = {name: getattr(device, name) for name in device.component_names}
    return [
        name
        for name, component in components.items()
        # `lossy` is a reading if losses are marked.
        if (component.kind & Kind.normal or name == "lossy")
        and not issubclass(component.cls, Device)
    ]


def device_name(parent: Device, attribute: str, device: type[Device], *, port: str) -> str:
    """Return the name of a part of an engine, with which its data keys begin.

    Parameters
    ----------
    parent : Device
        What it is a part of.
    attribute : str
        Its attribute there.
    device : type
        Its class.
    port : str
        Port that it belongs to; empty: none.
    """
    words = [*filter(None, parent.dotted_name.split(".")), attribute]
    if port:
        path = [parent.root.name, *words]
    else:
        path = [f"{parent.root.name}_{words[0]}", *words[1:]]
    return fitted(path, column_names(device))


def require_column(key: str, origin: str, fix: str) -> None:
    """Raise if no catalog can store a data key, which would be noticed when a run is stored.

    Parameters
    ----------
    key : str
        The data key.
    origin : str
        What has it, such as ``port 'port0', queue 'rx_q0'``.
    fix : str
        How to make it shorter.

    Raises
    ------
    ValueError
        If it is longer than `LONGEST_COLUMN`.
    """
    size = len(key.encode(errors="surrogateescape"))
    if size > LONGEST_COLUMN:
        raise ValueError(
            f"{origin}: the data key {key!r} has {size} bytes, and catalogs accept up to "
            f"{LONGEST_COLUMN}. {fix}"
        )


def require_own_column(key: str, origin: str, owners: dict[str, str]) -> None:
    """Raise if something else has a data key; otherwise add it to ``owners``.

    Parameters
    ----------
    key : str
        The data key.
    origin : str
        What has it, such as ``port 'port0', queue 'rx_q0'``.
    owners : dict of str to str
        What has each data key so far, by the data key in small letters.

    Raises
    ------
    ValueError
        If it is in ``owners``.
    """
    # Databases do not tell A from a in names of columns.
    known = owners.setdefault(key.casefold(), origin)
    if known != origin:
        raise ValueError(
            f"{known} and {origin} would both have the data key {key!r}, in small or capital "
            "letters. In names that are too long for data keys, words lose their last letters. "
            "Rename one in the configuration: use another number or other first letters, or a "
            "shorter name."
        )
