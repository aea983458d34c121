"""The device tree of one configuration as Python classes, for editors and type checkers."""

import keyword
from inspect import get_annotations

from ophyd import Device
from ophyd.ophydobj import OphydObject

from daqiri_ophyd import devices

from ..daq._daq import Daq
from ..parts._base import Group

__all__ = ["typed_tree"]

_TREE = "DaqTree"
_VALUES = {
    "boolean": "bool",
    "integer": "int",
    "number": "float",
    "string": "str",
    "array": "list",
}
_HEADER = '''\
"""Devices of a configuration, for editors and type checkers; nothing imports this at run time.

Written by ``daqiri-ophyd config stub CONFIG``; write it again when the configuration has changed.
Save it as ``daq_tree.py`` next to a startup file and use it so:

    from typing import TYPE_CHECKING

    from daqiri_ophyd.devices import make_daq

    if TYPE_CHECKING:
        from daq_tree import DaqTree

    daq: "DaqTree" = make_daq(CONFIG, "daq")
"""

# ruff: noqa
# pyright: reportIncompatibleVariableOverride=false, reportIncompatibleMethodOverride=false
'''


def typed_tree(daq: Daq) -> str:
    """Return a Python module with a class for each device whose parts the configuration names.

    If a variable is declared as its class ``DaqTree``, editors and type checkers show exactly the
    attributes of the device tree.

    Parameters
    ----------
    daq : Daq
        Device tree of the configuration; it need not be open.
    """
    # Inside a class, an attribute hides a class of the same name.
    tree = _Classes({_TREE, *(part.attr_name for _, part in daq.walk_subdevices())})
    tree.type_of(daq, _TREE)
    imports = "".join(f"    {line},\n" for line in sorted(tree.imports))
    imported = f"{_HEADER}\nfrom daqiri_ophyd.devices import (\n{imports})\n"
    return "\n\n".join([imported, *tree.classes])


class _Classes:
    """Source of the classes of devices, with unique names; each follows those of its parts."""

    def __init__(self, used: set[str]) -> None:
        self.imports: set[str] = set()
        self.classes: list[str] = []
        self._names = used
        self._imported = {name: self._class_name("", name) for name in devices.__all__}

    def type_of(self, part: OphydObject, name: str) -> str:
        """Return the type of a part; create a class of that name if it needs one."""
        base = next(c for c in type(part).__mro__ if getattr(devices, c.__name__, None) is c)
        base_name = self._imported[base.__name__]
        renamed = base_name != base.__name__
        self.imports.add(f"{base.__name__} as {base_name}" if renamed else base_name)
        if not isinstance(part, Device):
            return f"{base_name}[{_VALUES[part.describe()[part.name]['dtype']]}]"
        members = self._members(part, base, "" if name == _TREE else name)
        is_open = issubclass(base, Group | Daq)
        if not members and not is_open:
            return base_name
        if is_open:
            members.append("    __getattr__: None  # type: ignore # there are no others")
        self.classes.append("\n".join([f"class {name}({base_name}):", *members, ""]))
        return name

    def _members(self, part: Device, base: type, prefix: str) -> list[str]:
        """Return the declarations of attributes that the base class does not declare."""
        declared = {}
        for ancestor in reversed(base.__mro__):
            declared |= get_annotations(ancestor)
        members = []
        for attribute in part.component_names:
            if attribute in dir(base):
                continue
            kind = self.type_of(getattr(part, attribute), self._class_name(prefix, attribute))
            if declared.get(attribute) != kind:
                members.append(f"    {attribute}: {kind}")
        return members

    def _class_name(self, prefix: str, attribute: str) -> str:
        name = prefix + "".join(word[:1].upper() + word[1:] for word in attribute.split("_"))
        while name in self._names or keyword.iskeyword(name):
            name += "_"
        self._names.add(name)
        return name
