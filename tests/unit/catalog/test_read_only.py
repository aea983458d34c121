"""Temporary copies of catalogs that cannot be written."""

import shutil
import tempfile
from pathlib import Path

import pytest

from daqiri_ophyd.catalog._address import DATABASE, CatalogError, lock_directory
from daqiri_ophyd.catalog._read_only import copy_catalog


def test_nobody_opens_a_catalog_while_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lock_directory(tmp_path)
    assert first is not None
    first.close()
    (tmp_path / DATABASE).write_text("rows")
    copyfile = shutil.copyfile
    copied: list[str] = []

    def copy_unless_open(source: Path, to: Path) -> None:
        assert lock_directory(tmp_path) is None
        copied.append(source.name)
        copyfile(source, to)

    monkeypatch.setattr(shutil, "copyfile", copy_unless_open)
    with copy_catalog(tmp_path) as copy:
        assert (Path(copy) / DATABASE).read_text() == "rows"
    assert copied == [DATABASE]
    after = lock_directory(tmp_path)
    assert after is not None
    after.close()


def test_a_catalog_that_its_owner_keeps_private_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / DATABASE
    private.write_text("rows")

    def denied(source: Path, _: Path) -> None:
        raise PermissionError(13, "Permission denied", str(source))

    monkeypatch.setattr(shutil, "copyfile", denied)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(CatalogError) as found:
        copy_catalog(tmp_path)
    assert str(found.value) == (
        f"The catalog in {tmp_path} cannot be read: Permission denied ({private}). Its owner can "
        f"change that: chmod -R a+rX {tmp_path}"
    )
    assert list(tmp_path.iterdir()) == [private]
