"""Both programs of the guide run, and print the same."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from free_ports import free_port

from daqiri_ophyd import profiles

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "run-daqiri-scripts.md"
Run = Callable[..., tuple[int, str, str]]


def program(interface: str) -> str:
    """Return the blocks of one of the interfaces, in order."""
    return "\n".join(
        re.findall(rf"^`{interface}`:\n\n```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    )


def test_both_forms_of_each_step_do_the_same(run: Run, tmp_path: Path) -> None:
    page = PAGE.read_text()
    sections = re.findall(r"^### .*?(?=^##|\Z)", page, re.M | re.S)
    assert len(sections) >= 7
    for section in sections:
        assert re.findall(r"^`(daqiri|daqiri_ophyd\.engine)`:$", section, re.M) == [
            "daqiri",
            "daqiri_ophyd.engine",
        ]

    command = "daqiri-ophyd config show loopback > loopback.yaml"
    assert f"$ {command}" in page
    shown = subprocess.check_output(
        [sys.executable, "-m", "daqiri_ophyd", *command.split()[1:4]], text=True
    )
    (tmp_path / "loopback.yaml").write_text(shown)
    (sockets,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
    port = free_port("udp")
    (tmp_path / "sockets.yaml").write_text(sockets.replace("47300", str(port)))
    assert profiles.path("loopback").exists()

    documented, native = tmp_path / "documented.py", tmp_path / "native.py"
    documented.write_text(program("daqiri"))
    native.write_text(program(r"daqiri_ophyd\.engine"))
    status, output, errors = run(documented, cwd=tmp_path)
    assert (status, errors) == (0, "")
    done = subprocess.run(
        [sys.executable, "-W", "error", native],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert output == done.stdout
    assert "100 packets, 4700 bytes, flows {1} b'hello'" in output
    assert output.endswith("b'answer'\n")
