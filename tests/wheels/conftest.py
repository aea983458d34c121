"""The wheels of ``make wheels``, and Debian systems that have nothing but Python."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

# The Python of each release.
RELEASES = {"bookworm": "cp311", "trixie": "cp313"}
MIRROR = "http://deb.debian.org/debian"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


@pytest.fixture(scope="session")
def wheels(request: pytest.FixtureRequest) -> list[Path]:
    """Return the wheels to test."""
    folder = request.config.getoption("--wheels")
    return sorted(Path(folder).resolve().glob("daqiri_ophyd-*.whl"))


@dataclass
class System:
    """The root folder of a Debian system."""

    root: Path

    def run(self, *command: str, cwd: str = "/root") -> str:
        """Run a command there that must succeed; return its output."""
        # Mounts in a namespace of their own end with the command.
        mounts = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev"'
        script = f'{mounts} && exec chroot "$0" sh -c \'cd "$1" && shift && exec "$@"\' sh "$@"'
        kept = ("LANG", "TERM")
        clean = {k: v for k, v in os.environ.items() if k in kept or k.startswith("PIP_")}
        paths = {"HOME": "/root", "PATH": "/env/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, self.root, cwd, *command],
            env=clean | paths | {"SSL_CERT_FILE": CERTIFICATES},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


def debootstrapped(root: Path, release: str, *packages: str, variant: str = "minbase") -> System:
    """Return a new system with these packages."""
    include = f"--include={','.join(packages)}"
    command = ["mmdebstrap", "--quiet", f"--variant={variant}", include, release, root, MIRROR]
    subprocess.run(command, check=True, capture_output=True)
    # The packages come from where they come from for this machine.
    for file in ("/etc/resolv.conf", CERTIFICATES):
        (root / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, root / file[1:])
    return System(root)


@pytest.fixture(scope="session", params=RELEASES)
def bare_system(
    request: pytest.FixtureRequest, wheels: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> System:
    """Return a system with Python, and the wheel installed in ``/env`` as a user does it."""
    tag = f"-{RELEASES[request.param]}-manylinux_2_31_x86_64.whl"
    chosen = [wheel for wheel in wheels if wheel.name.endswith(tag)]
    if not chosen:
        pytest.skip(f"no wheel …{tag} in {request.config.getoption('--wheels')}")
    (wheel,) = chosen
    root = tmp_path_factory.mktemp("system") / request.param
    system = debootstrapped(root, request.param, "ca-certificates", "python3-venv")
    shutil.copy(wheel, root / "root")
    system.run("python3", "-m", "venv", "/env")
    system.run("pip", "install", "--quiet", f"/root/{wheel.name}")
    return system


@pytest.fixture(scope="session")
def needed_libraries() -> Callable[[Path], set[str]]:
    """Return the function for the libraries that a file is linked with."""

    def needed(file: Path) -> set[str]:
        listed = subprocess.check_output(["readelf", "--dynamic", file], text=True)
        return set(re.findall(r"\(NEEDED\)\s+Shared library: \[(\S+)\]", listed))

    return needed
