"""Files that make a remedy last."""

from .._finding import Remedy

__all__ = ["at_every_boot", "grub_words", "module_at_boot"]


def grub_words(name: str, words: str) -> tuple[str, str]:
    """Return a drop-in of GRUB's that adds words to the kernel's command line."""
    text = f'GRUB_CMDLINE_LINUX="${{GRUB_CMDLINE_LINUX}} {words}"\n'
    return f"/etc/default/grub.d/daqiri-{name}.cfg", text


def at_every_boot(
    name: str, description: str, *commands: str, folder: str = "/usr/bin", note: str = ""
) -> Remedy:
    """Return a remedy of commands, now and at every boot when drivers are up, by a systemd unit.

    Parameters
    ----------
    name, description : str
        Of the unit.
    *commands : str
        Each begins with a program's name.
    folder : str
        Where the programs lie: units name them by their paths.
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
    """Return a file that has a kernel module loaded at every boot."""
    return f"/etc/modules-load.d/daqiri-{name}.conf", f"{name}\n"
