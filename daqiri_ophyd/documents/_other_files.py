"""Other files that an HDF5 file takes data from: external links, external storage, virtual sources.

HDF5 opens them without asking, so a file could name any file of this host.
"""

import os
from collections.abc import Iterator
from typing import Any

__all__ = ["other_files"]


def other_files(file: Any) -> Iterator[tuple[str, str, str]]:
    """Yield what an open HDF5 file takes from other files.

    Parameters
    ----------
    file : h5py.File
        The file.

    Yields
    ------
    tuple of str
        Name of an object; ``link``, ``storage`` or ``virtual``; and the name of the other file. A
        virtual dataset may have the file itself as a source, ``.``.
    """
    import h5py  # takes longer to import than commands that read no HDF5 file

    groups, seen = [file["/"]], set[int]()
    while groups:
        group = groups.pop()
        for name in group:
            link = group.get(name, getlink=True)
            inner = f"{group.name.rstrip('/')}/{name}"
            if isinstance(link, h5py.ExternalLink):
                yield inner, "link", link.filename
            if not isinstance(link, h5py.HardLink):
                continue
            try:
                part = group[name]
            except (KeyError, OSError, RuntimeError):
                continue  # a broken object: nobody can open it
            number = h5py.h5o.get_info(part.id).addr
            if number in seen:
                continue
            seen.add(number)
            if isinstance(part, h5py.Group):
                groups.append(part)
            elif isinstance(part, h5py.Dataset):
                settings = part.id.get_create_plist()
                for i in range(settings.get_external_count()):
                    yield inner, "storage", os.fsdecode(settings.get_external(i)[0])
                if settings.get_layout() == h5py.h5d.VIRTUAL:
                    for i in range(settings.get_virtual_count()):
                        yield inner, "virtual", settings.get_virtual_filename(i)
