"""Files for permanent remedies."""

from .._finding import Remedy

__all__ = ["at_every_boot", "grub_words", "module_at_boot"]


def grub_words(name: str, words: str) -> tuple[str, str]:
    """Return a GRUB drop-in that adds words to the kernel command line."""
    text = f'GRUB_CMDLINE_LINUX="${{GRUB_CMDLINE_LINUX}} {words}"\n'
    return f"/etc/default/grub.d/daqiri-{name}.cfg", text


def at_every_boot(
    name: str, description: str, *commands: str, folder: str = "/usr/bin", note: str = ""
) -> Remedy:
    """Return a remedy that runs commands now and, by a systemd unit, after every boot.

    Parameters
    ----------
    name, description : str
        Of the unit.
    *commands : str
        Each begins with the name of a program.
    folder : str
        Directory of the programs, because units need full paths.
    note : str
        As of `Remedy`.
    """
    lines = [
        "[Unit]",
        f"Description={description}",
        "After=multi-user.target",
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        *(f"ExecStart={folder}/{command}" for command in commands),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    unit = f"daqiri-{name}.service"
    return Remedy(
        now=commands,
        files=((f"/etc/systemd/system/{unit}", "\n".join(lines) + "\n"),),
        lasting=(f"systemctl enable --now {unit}",),
        note=note,
    )


def module_at_boot(name: str) -> tuple[str, str]:
    """Return a file that loads a kernel module at every boot."""
    return f"/etc/modules-load.d/daqiri-{name}.conf", f"{name}\n"
