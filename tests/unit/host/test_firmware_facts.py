"""The firmware settings of a NIC, from what mlxconfig prints."""

import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daqiri_ophyd.host import FactError, Facts
from daqiri_ophyd.host.facts._firmware import parse_mlxconfig

NEXT_BOOT = """\

Device #1:
----------

Device type:    ConnectX7
Name:           P3740-B0-QSFP_Ax
Description:    NVIDIA Prometheus P3740 ConnectX-7 VPI; 400Gb/s; dual-port QSFP; secure boot;
Device:         0005:03:00.0

Configurations:                                      Next Boot
        MEMIC_BAR_SIZE                              0
        MEMIC_SIZE_LIMIT                            _256KB(1)
        HOST_CHAINING_MODE                          DISABLED(0)
        HOST_CHAINING_DESCRIPTORS                   Array[0..7]
        NUM_OF_VL_P1                                _4_VLs(3)
        LINK_TYPE_P1                                ETH(2)
        LINK_TYPE_P2                                IB(1)
        KEEP_ETH_LINK_UP_P1                         True(1)
        KEEP_IB_LINK_UP_P1                          False(0)
"""

THREE_COLUMNS = """\

Device #1:
----------

Device type:    BlueField2
Name:           MBF2H516A-CEEO_Ax_Bx
Device:         /dev/mst/mt41686_pciconf0

Configurations:                              Default         Current         Next Boot
         INTERNAL_CPU_MODEL                  SEPARATED_HOST(0) EMBEDDED_CPU(1) EMBEDDED_CPU(1)
         NUM_OF_VFS                          0               0               0
*        KEEP_ETH_LINK_UP_P1                 True(1)         True(1)         False(0)
*        ROCE_CONTROL                        ROCE_ENABLE(2)  ROCE_ENABLE(2)  ROCE_DISABLE(1)
         PF_BAR2_SIZE                        0               0               3
The '*' shows parameters with next value different from default/current value.
"""

READ_ONLY = """\
Configurations:                                          Next Boot
RO      ALLOW_RD_COUNTERS                           True(1)
*       LINK_TYPE_P1                                ETH(2)
   *    LINK_TYPE_P2                                2
"""


def test_one_column():
    assert parse_mlxconfig(NEXT_BOOT) == {
        "MEMIC_BAR_SIZE": "0",
        "MEMIC_SIZE_LIMIT": "_256KB",
        "HOST_CHAINING_MODE": "DISABLED",
        "HOST_CHAINING_DESCRIPTORS": "Array[0..7]",
        "NUM_OF_VL_P1": "_4_VLs",
        "LINK_TYPE_P1": "ETH",
        "LINK_TYPE_P2": "IB",
        "KEEP_ETH_LINK_UP_P1": "True",
        "KEEP_IB_LINK_UP_P1": "False",
    }


def test_of_three_columns_the_next_boot_counts_and_stars_do_not_hide_it():
    assert parse_mlxconfig(THREE_COLUMNS) == {
        "INTERNAL_CPU_MODEL": "EMBEDDED_CPU",
        "NUM_OF_VFS": "0",
        "KEEP_ETH_LINK_UP_P1": "False",
        "ROCE_CONTROL": "ROCE_DISABLE",
        "PF_BAR2_SIZE": "3",
    }


def test_marks_before_a_name():
    assert parse_mlxconfig(READ_ONLY) == {
        "ALLOW_RD_COUNTERS": "True",
        "LINK_TYPE_P1": "ETH",
        "LINK_TYPE_P2": "2",
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-E- Failed to open the device\n",
        "-E- No such device: /dev/mst/mt4129_pciconf0\n",
        "Device type:    ConnectX7\nDevice:         0005:03:00.0\n",
        "        LINK_TYPE_P1\n",
    ],
)
def test_what_is_no_setting_is_none(text):
    assert parse_mlxconfig(text) == {}


@given(st.text())
def test_any_text_gives_names_with_values(text):
    assert all(name and value for name, value in parse_mlxconfig(text).items())


@given(st.dictionaries(st.from_regex(r"[A-Z][A-Z0-9_]{1,30}", fullmatch=True), st.integers(0)))
def test_plain_values_are_kept(settings):
    text = "".join(f"        {name:<44}{value}\n" for name, value in settings.items())
    assert parse_mlxconfig(text) == {name: str(value) for name, value in settings.items()}


@pytest.fixture
def mlxconfig(tmp_path, monkeypatch):
    """Put a program called mlxconfig in front of the path."""

    def install(script):
        program = tmp_path / "mlxconfig"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return Facts()

    return install


def test_the_program_is_asked_by_address(mlxconfig):
    facts = mlxconfig('echo "  ASKED_FOR $2"; echo "  HOW $3"')
    assert facts.firmware("0005:03:00.0") == {"ASKED_FOR": "0005:03:00.0", "HOW": "query"}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "echo '-E- Failed to open the device'; exit 3",
            "mlxconfig: -E- Failed to open the device",
        ),
        ("echo hint; echo 'Permission denied' >&2; exit 1", "mlxconfig: Permission denied"),
        ("exit 9", "mlxconfig: exit code 9"),
    ],
)
def test_errors_of_the_program_are_told(mlxconfig, script, message):
    with pytest.raises(FactError) as caught:
        mlxconfig(script).firmware("0005:03:00.0")
    assert str(caught.value) == message


def test_without_the_program_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FactError, match=r"mlxconfig is not installed \(package mft\)"):
        Facts().firmware("0005:03:00.0")
