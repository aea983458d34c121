"""Files that make a remedy last."""

__all__ = ["grub_words", "module_at_boot", "one_shot_unit"]


def grub_words(name: str, words: str) -> tuple[str, str]:
    """Return a drop-in of GRUB's that adds words to the kernel's command line."""
    text = f'GRUB_CMDLINE_LINUX="${{GRUB_CMDLINE_LINUX}} {words}"\n'
    return f"/etc/default/grub.d/daqiri-{name}.cfg", text


def one_shot_unit(name: str, description: str, *commands: str) -> tuple[str, str]:
    """Return a unit of systemd's that runs commands once at every boot, when drivers are up."""
    lines = [
        "[Unit]",
        f"Description={description}",
        "After=multi-user.target",
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        *(f"ExecStart={command}" for command in commands),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return f"/etc/systemd/system/daqiri-{name}.service", "\n".join(lines) + "\n"


def module_at_boot(name: str) -> tuple[str, str]:
    """Return a file that has a kernel module loaded at every boot."""
    return f"/etc/modules-load.d/daqiri-{name}.conf", f"{name}\n"
