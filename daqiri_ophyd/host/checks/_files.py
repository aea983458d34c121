"""Files for permanent remedies."""

from .._finding import Remedy

__all__ = ["at_every_boot", "module_at_boot"]

_FOLDER = "/etc/daqiri-host.d"
# After what may set the same things, and once the drivers of the devices are loaded. Not after
# multi-user.target: no service of that target could then be ordered after this one.
_UNIT = f"""\
[Unit]
Description=Host settings for daqiri-ophyd, in the order of the files in {_FOLDER}
After=network.target network-online.target
After=nvidia-persistenced.service tuned.service power-profiles-daemon.service

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=5min
ExecStartPre=-/bin/sh -c 'udevadm settle'
ExecStart=/bin/sh -c 'e=0; for f in {_FOLDER}/*.sh; do sh "$$f" || e=1; done; exit $$e'

[Install]
WantedBy=multi-user.target
"""


def at_every_boot(
    order: int, name: str, *commands: str, verify: tuple[str, ...] = (), note: str = ""
) -> Remedy:
    """Return a remedy that runs commands now and, by ``daqiri-host.service``, after every boot.

    Parameters
    ----------
    order : int
        Two digits: lower ones run first.
    name : str
        Of the file, with the device where there may be several.
    *commands : str
        Shell commands.
    verify, note
        As of `Remedy`; the service fails where these commands fail.
    """
    lines = ["set -e", *commands, *verify]
    return Remedy(
        now=commands,
        files=(
            (f"{_FOLDER}/{order}-{name}.sh", "\n".join(lines) + "\n"),
            ("/etc/systemd/system/daqiri-host.service", _UNIT),
        ),
        lasting=("systemctl daemon-reload", "systemctl enable daqiri-host.service"),
        note=note,
        verify=verify,
        verify_lasting=("systemctl is-enabled daqiri-host.service",),
    )


def module_at_boot(name: str) -> tuple[str, str]:
    """Return a file that loads a kernel module at every boot."""
    return f"/etc/modules-load.d/daqiri-{name}.conf", f"{name}\n"
